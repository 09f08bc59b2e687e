"""Where a data set lies on this machine, and how it gets there."""

import hashlib
import os
from pathlib import Path

import platformdirs
import requests

from workingpapers.data.download import download
from workingpapers.data.registry import DataSet, get


def cache_folder() -> Path:
    """Folder that fetched files are kept in.

    Returns
    -------
    pathlib.Path
        The value of the environment variable ``WORKINGPAPERS_DATA`` if it is set, else the user's
        cache folder of this operating system. It need not exist yet.
    """
    chosen = os.environ.get("WORKINGPAPERS_DATA")
    return Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("workingpapers")


def path(name: str, local: str | os.PathLike[str] | None = None) -> Path:
    """Path of a data set's file, checked against its checksum. Never fetches.

    Parameters
    ----------
    name : str
        Name of the data set.
    local : path, optional
        A copy that the user already has; it is used where it lies. By default, the cache.

    Returns
    -------
    pathlib.Path
        A file whose sha256 is the registered one.

    Raises
    ------
    FileNotFoundError
        If the file is not there; the message names the command that fetches it.
    ValueError
        If `name` is unknown, or the file is not the registered one.
    """
    dataset = get(name)
    file = cache_folder() / dataset.filename if local is None else Path(local).expanduser()
    if not file.is_file():
        where = f"it has not been fetched to {file}" if local is None else f"{file} is not a file"
        raise FileNotFoundError(f"{name}: {where}; run `workingpapers data fetch {name}`")
    _verify(file, dataset)
    return file


def fetch(name: str, progress: bool = True) -> Path:
    """Bring a data set into the cache, unless it is there already.

    A transfer that was cut off is resumed where it stopped, or begun anew if what there was turns
    out to be of another file. The file appears under its own name only when it is complete and its
    checksum is right. Two fetches at a time do not disturb each other.

    Parameters
    ----------
    name : str
        Name of the data set.
    progress : bool, default True
        Whether to show a progress bar.

    Returns
    -------
    pathlib.Path
        The file in the cache.

    Raises
    ------
    ConnectionError
        If the server cannot be reached, refuses, is too slow or breaks off.
    FileExistsError
        If a folder stands where the file should.
    ValueError
        If `name` is unknown, the server sends another file than the registered one, or it
        redirects to an address that is not https. Nothing of a wrong file is kept.
    """
    dataset = get(name)
    file = cache_folder() / dataset.filename
    if _is_right(file, dataset):
        return file
    part = _place_of_part(file)
    resumed = part.exists()
    _transfer(dataset, part, file, progress)
    try:
        return _settle(dataset, part, file)
    except ValueError:
        if not resumed:
            raise
    _transfer(dataset, part, file, progress)  # what was there was not of this file
    return _settle(dataset, part, file)


def _place_of_part(file: Path) -> Path:
    """Path for an unfinished transfer, with nothing in its way or in the file's."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    if part.is_symlink():
        part.unlink()
    for place in (part, file):
        if place.is_dir():
            raise FileExistsError(f"{place} is a folder; move it away")
    return part


def _transfer(dataset: DataSet, part: Path, file: Path, progress: bool) -> None:
    try:
        download(dataset.url, part, dataset.size, progress)
    except (FileNotFoundError, requests.RequestException) as error:
        if _is_right(file, dataset):  # another fetch was faster, and took the part away
            return
        if isinstance(error, ValueError):  # not an address that requests can follow
            raise ValueError(f"{dataset.name}: {error}") from error
        again = f"`workingpapers data fetch {dataset.name}` goes on where this stopped"
        raise ConnectionError(f"{dataset.name}: the transfer failed: {error}; {again}") from error


def _settle(dataset: DataSet, part: Path, file: Path) -> Path:
    """Give the file its own name if it is right, else remove it."""
    try:
        _verify(part, dataset)
        return part.replace(file)
    except (FileNotFoundError, ValueError):
        if _is_right(file, dataset):  # another fetch was faster
            return file
        part.unlink(missing_ok=True)
        raise


def _is_right(file: Path, dataset: DataSet) -> bool:
    return file.is_file() and _sha256(file) == dataset.sha256


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _verify(file: Path, dataset: DataSet) -> None:
    found = _sha256(file)
    if found != dataset.sha256:
        raise ValueError(
            f"{dataset.name}: {file} is not the registered file: "
            f"its sha256 is {found}, it must be {dataset.sha256}"
        )
