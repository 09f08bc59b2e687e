"""The data sets that the book knows, each with its origin, licence and checksum."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class DataSet:
    """One file that can be fetched, and what must be known before it is used.

    Attributes
    ----------
    name : str
        What the data set is called in code and on the command line: lower-case letters, digits
        and underscores.
    title : str
        What the file holds, in a line.
    source : str
        Who made it, and the page where it is described.
    licence : str
        The licence of the file.
    url : str
        Where the file is fetched from; https (http only on this very machine).
    sha256 : str
        Checksum of the file: 64 lower-case hexadecimal digits.
    size : int
        Size of the file in bytes, at least 1.
    filename : str
        Name of the file in the cache; a plain name, not hidden.
    offline : str or None, default None
        What can stand in for it without a download; None where nothing can.

    Raises
    ------
    ValueError
        If a field is not as described above.
    """

    name: str
    title: str
    source: str
    licence: str
    url: str
    sha256: str
    size: int
    filename: str
    offline: str | None = None

    def __post_init__(self) -> None:
        for field in ("name", "title", "source", "licence", "url", "sha256", "filename"):
            text = getattr(self, field)
            _require(isinstance(text, str) and text.strip(), field, text, "a text, not empty")
        offline = self.offline is None or (isinstance(self.offline, str) and self.offline.strip())
        _require(offline, "offline", self.offline, "None or a text, not empty")
        _require(re.fullmatch(r"[a-z][a-z0-9_]*", self.name), "name", self.name, "snake_case")
        _require(is_safe(self.url), "url", self.url, "an https address")
        digest = re.fullmatch(r"[0-9a-f]{64}", self.sha256)
        _require(digest, "sha256", self.sha256, "64 lower-case hexadecimal digits")
        whole = isinstance(self.size, int) and not isinstance(self.size, bool)
        _require(whole and self.size >= 1, "size", self.size, "a positive whole number of bytes")
        plain = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.filename)
        _require(plain, "filename", self.filename, "a plain file name that is not hidden")


def _require(condition: object, field: str, given: object, allowed: str) -> None:
    if not condition:
        raise ValueError(f"{field} must be {allowed}, got {given!r}")


def is_safe(url: str) -> bool:
    """Whether a file may be fetched from here: over https, or from this machine.

    Parameters
    ----------
    url : str
        A full address.

    Returns
    -------
    bool
        True for https, and for http on localhost; False for what is no address at all.
    """
    # Libraries do not agree on where the host ends before a backslash or a space.
    if not re.fullmatch(r"[!-\[\]-~]+", url):
        return False
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or is_local(url))


def is_local(url: str) -> bool:
    """Whether this is plain http to this very machine.

    Parameters
    ----------
    url : str
        A full address.

    Returns
    -------
    bool
    """
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in LOCAL_HOSTS


AUCKLAND = "the pedestrian counts of Auckland"
ETT_SOURCE = "Zhou et al., Informer, AAAI 2021; https://github.com/zhouhaoyi/ETDataset"
ETT_URL = "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small"
TSLIB_URL = "https://huggingface.co/datasets/thuml/Time-Series-Library/resolve/main"


def _ett(name: str, title: str, size: int, sha256: str) -> DataSet:
    """Describe one of the four files of electricity transformer temperature."""
    return DataSet(
        name=name.lower(),
        title=f"Electricity transformer temperature, {title} (July 2016 to June 2018)",
        source=ETT_SOURCE,
        licence="CC BY-ND 4.0",
        url=f"{ETT_URL}/{name}.csv",
        sha256=sha256,
        size=size,
        filename=f"{name}.csv",
        offline=AUCKLAND,
    )


DATASETS: tuple[DataSet, ...] = (
    _ett(
        "ETTh1",
        "hourly, transformer 1",
        2_589_657,
        "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
    ),
    _ett(
        "ETTh2",
        "hourly, transformer 2",
        2_417_960,
        "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b",
    ),
    _ett(
        "ETTm1",
        "every 15 minutes, transformer 1",
        10_360_719,
        "6ce1759b1a18e3328421d5d75fadcb316c449fcd7cec32820c8dafda71986c9e",
    ),
    _ett(
        "ETTm2",
        "every 15 minutes, transformer 2",
        9_677_236,
        "db973ca252c6410a30d0469b13d696cf919648d0f3fd588c60f03fdbdbadd1fd",
    ),
    DataSet(
        name="weather",
        title="21 weather readings of a station in Jena, every 10 minutes of 2020",
        source="Max Planck Institute for Biogeochemistry, Jena; as packed by Wu et al., "
        "Autoformer, NeurIPS 2021; https://huggingface.co/datasets/thuml/Time-Series-Library",
        licence="none stated",
        url=f"{TSLIB_URL}/weather/weather.csv",
        sha256="34ee981d07313e51da2a50bb600072c8ae4a69cb4b0651f4cb93a069d7a2ba63",
        size=7_235_425,
        filename="weather.csv",
        offline=AUCKLAND,
    ),
    DataSet(
        name="ecl",
        title="Electricity consumption of 321 customers, hourly, three years",
        source="Trindade, ElectricityLoadDiagrams20112014, UCI, 2015; as packed by Wu et al., "
        "Autoformer, NeurIPS 2021; https://huggingface.co/datasets/thuml/Time-Series-Library",
        licence="CC BY 4.0 (the original at UCI)",
        url=f"{TSLIB_URL}/electricity/electricity.csv",
        sha256="7e45845d54c5219bad0ae6bc1b5316cf8ff9cead5d33fa998a5a51c2e4a497ad",
        size=95_581_762,
        filename="electricity.csv",
        offline=AUCKLAND,
    ),
    DataSet(
        name="traffic",
        title="Road occupancy at 862 sensors in the San Francisco Bay area, hourly, two years",
        source="California Department of Transportation, PeMS; as packed by Wu et al., Autoformer, "
        "NeurIPS 2021; https://huggingface.co/datasets/thuml/Time-Series-Library",
        licence="none stated",
        url=f"{TSLIB_URL}/traffic/traffic.csv",
        sha256="cb06463d56fa17d87f47027cd9389ceae82a69eddee51cdb61480e120dab0b16",
        size=136_478_119,
        filename="traffic.csv",
        offline=AUCKLAND,
    ),
    DataSet(
        name="cifar10",
        title="CIFAR-10, 60,000 colour images of 32 x 32 pixels in 10 classes (binary version)",
        source="Krizhevsky, Technical report, 2009; https://www.cs.toronto.edu/~kriz/cifar.html",
        licence="none stated",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        size=170_052_171,
        filename="cifar-10-binary.tar.gz",
        offline="the digits of scikit-learn",
    ),
)


def list_datasets() -> tuple[DataSet, ...]:
    """List all data sets of the registry, sorted by name.

    Returns
    -------
    tuple of DataSet
        Fetched or not.
    """
    return tuple(sorted(DATASETS, key=lambda dataset: dataset.name))


def get(name: str) -> DataSet:
    """Look a data set up by its name.

    Parameters
    ----------
    name : str
        One of the names in `list_datasets`.

    Returns
    -------
    DataSet
        Its entry in the registry.

    Raises
    ------
    TypeError
        If `name` is not a string.
    ValueError
        If there is no data set of this name; the message lists those there are.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {name!r}")
    known = {dataset.name: dataset for dataset in list_datasets()}
    if name not in known:
        raise ValueError(f"no data set is called {name!r}; there is: {', '.join(known)}")
    return known[name]
