"""A file of finished runs, to which each is added at once, so that nothing finished is lost."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Metrics = dict[str, float]
Key = tuple[str, int]


def run_key(case: Mapping[str, Any], seed: int) -> Key:
    """Return what tells a run from the others of its experiment."""
    return json.dumps(case, sort_keys=True), seed


def stored_header(path: Path) -> dict[str, Any] | None:
    """Return the header of the store at ``path``; None if there is no whole first line."""
    if not path.exists():
        return None
    first, newline, _ = path.read_bytes().partition(b"\n")
    return _parsed(path, 1, first) if newline else None


@dataclass(frozen=True)
class RunStore:
    """A JSON-lines file: a header line, then one line a finished run.

    Parameters
    ----------
    path : Path
        The file; its folder must exist.
    header : mapping
        What the runs of the file have in common.
    """

    path: Path
    header: Mapping[str, Any]

    def load(self) -> dict[Key, Metrics]:
        """Return the finished runs, and make the file ready to be appended to.

        A last line that was cut off while it was being written is removed.

        Raises
        ------
        ValueError
            If the file was made by another experiment, or is not a store.
        """
        data = self.path.read_bytes() if self.path.exists() else b""
        header_line = _line(self.header)
        if header_line.startswith(data):  # nothing yet, or a header that was cut off
            self.path.write_bytes(header_line)
            return {}
        self._check_header()
        whole, _, rest = data.rpartition(b"\n")
        if rest:
            os.truncate(self.path, len(whole) + 1)
        lines = whole.split(b"\n")[1:]
        return dict(self._run(number, line) for number, line in enumerate(lines, start=2))

    def append(self, case: Mapping[str, Any], seed: int, metrics: Metrics) -> None:
        """Add a finished run; when this returns it is on the disk."""
        with self.path.open("ab") as file:
            file.write(_line({"case": case, "seed": seed, "metrics": metrics}))
            file.flush()
            os.fsync(file.fileno())

    def _check_header(self) -> None:
        found = stored_header(self.path)
        if not isinstance(found, dict) or "store" not in found:
            raise ValueError(f"store {self.path} is not a file of runs; name another file")
        differing = [key for key in self.header if found.get(key) != self.header[key]]
        if differing:
            was = {key: found.get(key) for key in differing}
            now = {key: self.header[key] for key in differing}
            raise ValueError(
                f"store {self.path} was made by another experiment: it has {was}, not {now}; "
                "delete it or name another file"
            )

    def _run(self, number: int, line: bytes) -> tuple[Key, Metrics]:
        record = _parsed(self.path, number, line)
        try:
            return run_key(record["case"], record["seed"]), record["metrics"]
        except (KeyError, TypeError):
            raise ValueError(f"store {self.path}: line {number} is not a run") from None


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, allow_nan=False).encode() + b"\n"


def _parsed(path: Path, number: int, line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise ValueError(f"store {path}: line {number} is not JSON; delete the file") from None
