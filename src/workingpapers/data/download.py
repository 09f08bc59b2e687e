"""One file over HTTP, resumable."""

from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from tqdm.auto import tqdm

from workingpapers.data.registry import is_safe

TIMEOUT_S = (10.0, 30.0)  # to connect; between two pieces of data
CHUNK_BYTES = 1 << 16


class _LocalOnly(HTTPAdapter):
    """Plain http, for this machine alone.

    Every request passes here before it is sent, those that follow a redirect too.
    """

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> Any:
        if not is_safe(request.url or ""):
            raise ValueError(f"{request.url} is refused: files are fetched over https only")
        return super().send(request, *args, **kwargs)


def download(url: str, part: Path, size: int, progress: bool) -> None:
    """Complete the file `part`, going on from the bytes that it already holds.

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
        If the server has a file of another size (`part` is then removed), or an address on the
        way to it is not https.
    """
    have = part.stat().st_size if part.exists() else 0
    if have == size:
        return
    if have > size:  # not a beginning of this file
        have = 0
    headers = {"Accept-Encoding": "identity", "Range": f"bytes={have}-"}
    with requests.Session() as session:
        session.mount("http://", _LocalOnly())
        with session.get(url, headers=headers, stream=True, timeout=TIMEOUT_S) as response:
            try:
                _append(response, part, _start(response, have, size), size, progress)
            except ValueError:
                part.unlink(missing_ok=True)
                raise
    if part.stat().st_size < size:
        raise requests.ConnectionError(f"it ended after {part.stat().st_size} of {size} bytes")


def _start(response: requests.Response, have: int, size: int) -> int:
    """Offset of the response's first byte: zero where the server knows no ranges."""
    if response.status_code == requests.codes.requested_range_not_satisfiable:
        raise ValueError(f"{response.url} has no byte after {have}, but {size} are registered")
    response.raise_for_status()
    partial = response.status_code == requests.codes.partial_content
    start = have if partial else 0
    if partial and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
        raise ValueError(f"{response.url} sent another range than the one asked for, {have}-")
    promised = response.headers.get("Content-Length")
    if promised is not None and start + int(promised) != size:
        raise ValueError(f"{response.url} has {start + int(promised)} bytes, not {size}")
    return start


def _append(response: requests.Response, part: Path, start: int, size: int, progress: bool) -> None:
    quiet = {} if progress else {"disable": True}  # unset, so that TQDM_DISABLE is heard
    bar = tqdm(total=size, initial=start, unit="B", unit_scale=True, unit_divisor=1024, **quiet)
    with bar, part.open("ab" if start else "wb") as file:
        for chunk in response.iter_content(CHUNK_BYTES):
            start += len(chunk)
            if start > size:
                raise ValueError(f"{response.url} sends more than the {size} bytes registered")
            file.write(chunk)
            bar.update(len(chunk))
