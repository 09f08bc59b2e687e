"""Real data sets: where they come from, under which licence, and where they lie on this machine.

Nothing is fetched behind the user's back: only `fetch` touches the network.
"""

from workingpapers.data.cache import fetch, path
from workingpapers.data.registry import DataSet, get, list_datasets

__all__ = ["DataSet", "fetch", "get", "list_datasets", "path"]
