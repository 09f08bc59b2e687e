"""Result files: what was measured, on what, with what, and which claims hold."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

VERSION = 1


def _record_of(**properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has just these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_TEXT = {"type": "string"}
_WORD = {"type": "string", "minLength": 1}
_NUMBER = {"type": "number"}
_COUNT = {"type": "integer", "minimum": 1}
_CELL = {"type": ["string", "number", "boolean", "null"]}

_EXPERIMENT = _record_of(
    columns={"type": "array", "items": _WORD, "minItems": 1, "uniqueItems": True},
    rows={"type": "array", "items": {"type": "array", "items": _CELL}},
    seeds=_COUNT,
)
_CLAIM = _record_of(
    id=_WORD,
    sentence=_WORD,
    paper=_WORD,
    metric=_WORD,
    value=_NUMBER,
    low=_NUMBER,
    high=_NUMBER,
    n=_COUNT,
    threshold=_WORD,
    holds={"type": "boolean"},
    note=_TEXT,
)
_SCHEMA = _record_of(
    schema={"const": VERSION},
    slug={"type": "string", "pattern": r"^[a-z][a-z0-9_]*$"},
    scale=_WORD,
    command=_WORD,
    created={
        "type": "string",
        "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|\+00:00)$",
    },
    duration_s={"type": "number", "minimum": 0},
    versions={
        "type": "object",
        "required": ["python", "numpy"],
        "additionalProperties": _WORD,
    },
    machine=_record_of(
        processor=_TEXT, cores=_COUNT, memory_gib={"type": "number", "minimum": 0}, system=_WORD
    ),
    source={"type": "string", "pattern": r"^[0-9a-f]{64}$"},
    experiments={"type": "object", "additionalProperties": _EXPERIMENT},
    claims={"type": "array", "items": _CLAIM},
)


@dataclass(frozen=True)
class Results:
    """The content of a result file.

    Parameters
    ----------
    slug : str
        The paper.
    scale : str
        The scale it was run at, such as ``"laptop"``.
    command : str
        The command that makes the file anew.
    created : str
        When it was made: ISO 8601, UTC.
    duration_s : float
        Wall-clock seconds of the command that wrote it; parts resumed from an earlier one are not
        in it.
    versions : dict of str to str
        Of Python and the packages.
    machine : dict
        ``processor, cores, memory_gib, system``.
    source : str
        Fingerprint of the source it was made with.
    experiments : dict
        By name: ``columns``, ``rows`` and the number of ``seeds``.
    claims : list of dict
        The records of :func:`workingpapers.lab.evaluate`.
    """

    slug: str
    scale: str
    command: str
    created: str
    duration_s: float
    versions: dict[str, str]
    machine: dict[str, Any]
    source: str
    experiments: dict[str, dict[str, Any]]
    claims: list[dict[str, Any]]

    def table(self, name: str) -> pd.DataFrame:
        """Return the table of an experiment.

        Parameters
        ----------
        name : str
            Name of the experiment.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        ValueError
            If there is no such experiment.
        """
        if name not in self.experiments:
            raise ValueError(f"name must be one of {sorted(self.experiments)}; got {name!r}")
        experiment = self.experiments[name]
        return pd.DataFrame(experiment["rows"], columns=experiment["columns"])


def table_record(table: pd.DataFrame, seeds: int) -> dict[str, Any]:
    """Return a table as it stands in a result file.

    Parameters
    ----------
    table : pandas.DataFrame
        Columns of strings, numbers, bools or None.
    seeds : int
        Number of seeds a case.

    Returns
    -------
    dict
        ``columns``, ``rows`` (lists of JSON scalars) and ``seeds``.
    """
    cells = table.astype(object).where(table.notna(), None)
    return {"columns": list(table.columns), "rows": cells.to_numpy().tolist(), "seeds": seeds}


def write_results(path: Path | str, results: Results) -> None:
    """Write a result file; whatever happens, an old one is replaced whole or not at all.

    Parameters
    ----------
    path : path
        The file; its folder must exist.
    results : Results
        What to write.

    Raises
    ------
    ValueError
        If the results are not as the schema wants them.
    OSError
        If the file cannot be written.
    """
    path = Path(path)
    record = {"schema": VERSION, **asdict(results)}
    _check_record(record, f"results for {path}")
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def read_results(path: Path | str) -> Results:
    """Read a result file.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    Results

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is cut off, has another schema version, or is not as the schema wants it. Each
        message names the file and the command that makes it anew.
    """
    path = Path(path)
    remedy = f"make it anew with `{_command_for(path)}`"
    if not path.is_file():
        raise FileNotFoundError(f"result file {path} does not exist; {remedy}")
    try:
        record = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except ValueError as error:
        raise ValueError(f"result file {path} is cut off or not JSON ({error}); {remedy}") from None
    found = record.get("schema") if isinstance(record, dict) else None
    if found != VERSION:
        raise ValueError(
            f"result file {path} must have schema {VERSION}; it has {found!r}; {remedy}"
        )
    try:
        _check_record(record, f"result file {path}")
    except ValueError as error:
        raise ValueError(f"{error}; {remedy}") from None
    return Results(**{field.name: record[field.name] for field in fields(Results)})


def _check_record(record: Mapping[str, Any], what: str) -> None:
    # Not at the top: with its optional parts it takes seconds to load, in every worker.
    import jsonschema

    errors = jsonschema.Draft202012Validator(_SCHEMA).iter_errors(record)
    error = jsonschema.exceptions.best_match(errors)
    if error is not None:
        raise ValueError(f"{what}: {error.json_path}: {error.message}")
    for name, experiment in record["experiments"].items():
        width = len(experiment["columns"])
        if any(len(row) != width for row in experiment["rows"]):
            raise ValueError(f"{what}: experiment {name!r} must have {width} cells in every row")
    ids = [claim["id"] for claim in record["claims"]]
    if len(set(ids)) < len(ids):
        raise ValueError(f"{what}: claims must have different ids; got {ids}")


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def _command_for(path: Path) -> str:
    slug, _, scale = path.stem.partition("-")
    return f"workingpapers reproduce {slug}" + (f" --scale {scale}" if scale else "")
