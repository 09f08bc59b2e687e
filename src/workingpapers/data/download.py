"""One file over HTTP, resumable."""

import os
import uuid
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from tqdm.auto import tqdm

from workingpapers.data.registry import is_local, is_safe

TIMEOUT_S = (10.0, 30.0)  # to connect; between two pieces of data
CHUNK_BYTES = 1 << 16
_WRITE = os.O_RDWR | getattr(os, "O_BINARY", 0)  # which is for Windows only


class _Guard(HTTPAdapter):
    """Sends nothing to an unsafe address, nor from elsewhere to this machine.

    Every request passes here before it is sent, those that follow a redirect too.
    """

    def __init__(self, origin: str) -> None:
        super().__init__()
        self.local = is_local(origin)

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> Any:
        url = request.url or ""
        if not is_safe(url) or (is_local(url) and not self.local):
            raise ValueError(f"{url} is refused: files are fetched over https only")
        return super().send(request, *args, **kwargs)


def download(url: str, part: Path, size: int, progress: bool) -> None:
    """Complete the file `part`, going on from the bytes that it already holds.

    What it holds is touched only by bytes that go on from there, or once the whole is there.
    Two downloads at a time write the same bytes to the same places.

    Parameters
    ----------
    url : str
        Where the file is.
    part : pathlib.Path
        The file to write; left in place when the transfer breaks off.
    size : int
        The bytes that the whole file must have.
    progress : bool
        Whether to show a progress bar.

    Raises
    ------
    requests.RequestException
        If the transfer fails or ends early; a later call resumes it.
    ValueError
        If the server has a file of another size, or an address on the way to it is not https.
    """
    have = part.stat().st_size if part.exists() else 0
    if have == size:
        return
    if have > size:  # not a beginning of this file
        part.unlink()
        have = 0
    headers = {"Accept-Encoding": "identity", "Range": f"bytes={have}-"}
    with requests.Session() as session:
        session.adapters.clear()
        session.mount("", _Guard(url))
        with session.get(url, headers=headers, stream=True, timeout=TIMEOUT_S) as response:
            if _start(response, have, size) == have:
                _go_on(response, part, have, size, progress)
            else:
                _replace(response, part, size, progress)


def _start(response: requests.Response, have: int, size: int) -> int:
    """Offset of the response's first byte: zero where the server knows no ranges."""
    if response.status_code == requests.codes.requested_range_not_satisfiable:
        raise ValueError(f"{response.url} has no byte after {have}, but {size} are registered")
    response.raise_for_status()
    if response.status_code not in (requests.codes.ok, requests.codes.partial_content):
        raise requests.HTTPError(f"{response.url} answers {response.status_code}, not with a file")
    partial = response.status_code == requests.codes.partial_content
    start = have if partial else 0
    sent = response.headers.get("Content-Range", "")
    if partial and sent not in (f"bytes {have}-{size - 1}/{total}" for total in (size, "*")):
        raise ValueError(f"{response.url} sent another range than bytes {have}-: {sent!r}")
    promised = response.headers.get("Content-Length", f"{size - start}")
    if promised != f"{size - start}":
        raise ValueError(f"{response.url} has {promised} bytes after {start}, not {size - start}")
    return start


def _go_on(response: requests.Response, part: Path, have: int, size: int, progress: bool) -> None:
    try:
        _write(response, part, have, size, progress)
    except ValueError:
        if have:
            os.truncate(part, have)
        else:
            part.unlink(missing_ok=True)
        raise


def _replace(response: requests.Response, part: Path, size: int, progress: bool) -> None:
    """Write the whole beside the part, which stays until the whole is there."""
    whole = part.with_name(f"{part.name}.{uuid.uuid4().hex}")
    try:
        _write(response, whole, 0, size, progress)
        whole.replace(part)
    finally:
        whole.unlink(missing_ok=True)


def _write(response: requests.Response, file: Path, start: int, size: int, progress: bool) -> None:
    quiet = {} if progress else {"disable": True}  # unset, so that TQDM_DISABLE is heard
    bar = tqdm(total=size, initial=start, unit="B", unit_scale=True, unit_divisor=1024, **quiet)
    # Not emptied at the start, since another fetch may be at work on it; not made later on, since
    # another fetch may have finished it.
    flags = _WRITE if start else _WRITE | os.O_CREAT
    with bar, os.fdopen(os.open(file, flags, 0o666), "r+b") as stream:
        if stream.seek(0, os.SEEK_END) < start:
            raise requests.ConnectionError("another fetch has begun the file anew")
        stream.seek(start)
        for chunk in response.iter_content(CHUNK_BYTES):
            start += len(chunk)
            if start > size:
                raise ValueError(f"{response.url} sends more than the {size} bytes registered")
            stream.write(chunk)
            bar.update(len(chunk))
    if start < size:
        raise requests.ConnectionError(f"it ended after {start} of {size} bytes")
