"""Working Papers: nineteen ICML 2025 papers you can run.

One package a paper holds the paper's method and its baselines; ``lab`` runs experiments,
``page`` shows them, ``data`` fetches data sets.
"""

from importlib.metadata import version

__version__ = version("workingpapers")
