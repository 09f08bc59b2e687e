"""Result files: what was measured, on what, with what, and which claims hold."""

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from workingpapers.lab.arguments import is_finite
from workingpapers.lab.tables import table_of

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
    slug={"type": "string", "pattern": r"\A[a-z][a-z0-9_]*\Z"},
    scale=_WORD,
    command=_WORD,
    created={
        "type": "string",
        "pattern": r"\A\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|\+00:00)\Z",
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
    source={"type": "string", "pattern": r"\A[0-9a-f]{64}\Z"},
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
        return table_of(experiment["columns"], experiment["rows"])


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
        If the results are not as the schema wants them; the message names the field.
    OSError
        If the file cannot be written.
    """
    path = Path(path)
    check_results(results, f"results for {path}")
    record = {"schema": VERSION, **asdict(results)}
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    new = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
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
        If the file is cut off, has another schema version, is not as the schema wants it, or is
        not called as :func:`file_name` says. Each message names the file and the command that
        makes it anew.
    """
    path = Path(path)
    remedy = f"make it anew with `{_command_for(path)}`"
    if not path.is_file():
        raise FileNotFoundError(f"result file {path} does not exist; {remedy}")
    try:
        record = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
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
    results = Results(**{field.name: record[field.name] for field in fields(Results)})
    if path.name != file_name(results.slug, results.scale):
        raise ValueError(
            f"result file {path} must be called {file_name(results.slug, results.scale)}, "
            f"since it holds {results.slug!r} at scale {results.scale!r}; {remedy}"
        )
    return results


def file_name(slug: str, scale: str) -> str:
    """Return what a result file is called: ``slug.json``, or ``slug-scale.json`` if not laptop."""
    return f"{slug}.json" if scale == "laptop" else f"{slug}-{scale}.json"


def check_results(results: Results, what: str) -> None:
    """Raise a ValueError that begins with ``what`` unless the results can be written."""
    _check_record({"schema": VERSION, **asdict(results)}, what)


def _check_record(record: Mapping[str, Any], what: str) -> None:
    # Not at the top: with its optional parts it takes seconds to load, in every worker.
    import jsonschema

    draft = jsonschema.Draft202012Validator
    numbers = draft.TYPE_CHECKER.redefine("number", _is_json_number)
    validator = jsonschema.validators.extend(draft, type_checker=numbers)(_SCHEMA)
    error = jsonschema.exceptions.best_match(validator.iter_errors(record))
    if error is not None:
        raise ValueError(f"{what}: {error.json_path}: {error.message}")
    for name, experiment in record["experiments"].items():
        width = len(experiment["columns"])
        if any(len(row) != width for row in experiment["rows"]):
            raise ValueError(f"{what}: experiment {name!r} must have {width} cells in every row")
    for claim in record["claims"]:
        if claim["low"] > claim["high"]:
            raise ValueError(f"{what}: claim {claim['id']!r} must have low at most high")
    ids = [claim["id"] for claim in record["claims"]]
    if len(set(ids)) < len(ids):
        raise ValueError(f"{what}: claims must have different ids; got {ids}")


def _is_json_number(_: Any, value: Any) -> bool:
    return type(value) is not bool and isinstance(value, int | float) and is_finite(value)


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def _command_for(path: Path) -> str:
    slug, _, scale = path.stem.partition("-")
    return f"workingpapers reproduce {slug}" + (f" --scale {scale}" if scale else "")
