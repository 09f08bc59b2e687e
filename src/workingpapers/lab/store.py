"""A file of finished runs, to which each is added at once, so that nothing finished is lost."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workingpapers.lab.arguments import check_count, check_metrics, names_problem

Metrics = dict[str, float]
Key = tuple[str, int]


def run_key(case: Mapping[str, Any], seed: int) -> Key:
    """Return what tells a run from the others of its experiment."""
    return json.dumps(case, sort_keys=True), seed


def stored_header(path: Path) -> dict[str, Any] | None:
    """Return the header of the store at ``path``; None if its first line is not a whole one."""
    first, newline, _ = path.read_bytes().partition(b"\n")
    try:
        header = json.loads(first) if newline else None
    except (ValueError, RecursionError):
        return None
    return header if isinstance(header, dict) and "store" in header else None


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
            If the file was made by another experiment, is not a store, or holds a line that is
            not a run; the message names the file and the line.
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
        runs: dict[Key, Metrics] = {}
        for number, line in enumerate(whole.split(b"\n")[1:], start=2):
            try:
                run, metrics = self._run(line, runs)
            except (TypeError, ValueError, RecursionError) as error:
                raise ValueError(
                    f"store {self.path}: line {number} is not a run of this experiment: {error}; "
                    "delete the file"
                ) from None
            runs[run] = metrics
        return runs

    def append(self, case: Mapping[str, Any], seed: int, metrics: Metrics) -> None:
        """Add a finished run; when this returns it is on the disk."""
        with self.path.open("ab") as file:
            file.write(_line({"case": case, "seed": seed, "metrics": metrics}))
            file.flush()
            os.fsync(file.fileno())

    def _check_header(self) -> None:
        found = stored_header(self.path)
        if found is None:
            raise ValueError(f"store {self.path} is not a file of runs; name another file")
        differing = [key for key in self.header if found.get(key) != self.header[key]]
        if differing:
            was = {key: found.get(key) for key in differing}
            now = {key: self.header[key] for key in differing}
            raise ValueError(
                f"store {self.path} was made by another experiment: it has {was}, not {now}; "
                "delete it or name another file"
            )

    def _run(self, line: bytes, others: Mapping[Key, Metrics]) -> tuple[Key, Metrics]:
        record = json.loads(line)
        if not isinstance(record, dict) or set(record) != {"case", "seed", "metrics"}:
            raise ValueError("it must hold just case, seed and metrics")
        case = record["case"]
        if not isinstance(case, dict) or set(case) != set(self.header["parameters"]):
            raise ValueError(f"its case must have the keys {self.header['parameters']}")
        seed = check_count("seed", record["seed"], least=0)
        metrics = check_metrics(record["metrics"])
        names = next(iter(others.values()), metrics)
        if problem := names_problem(metrics, names, case):
            raise ValueError(problem)
        return run_key(case, seed), metrics


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, allow_nan=False).encode() + b"\n"
