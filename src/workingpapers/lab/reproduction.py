"""From a benchmark module to its result file."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pandas as pd

from workingpapers.lab.claims import Claim, check_claims, evaluate
from workingpapers.lab.experiments import Experiment, run_experiment, store_header
from workingpapers.lab.provenance import fingerprint, machine, versions
from workingpapers.lab.results import Results, check_results, file_name, write_results
from workingpapers.lab.store import stored_header
from workingpapers.lab.tables import table_record


def reproduce(
    benchmark_module: ModuleType,
    slug: str,
    *,
    scale: str = "laptop",
    seeds: int | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    device: str = "cpu",
    dry_run: bool = False,
    folder: Path,
    sources: Sequence[Path],
    command: str,
    progress: bool = True,
) -> Path | None:
    """Run a benchmark's experiments, evaluate its claims, and write the result file.

    Finished runs are kept beside the result file until it is written, so that an interrupted
    command goes on where it was. Runs made with another source, device or version of a package,
    and a file of runs that was cut off in its first line, are thrown away, with a notice.

    Parameters
    ----------
    benchmark_module : module
        Has ``SCALES`` and ``DEVICES`` (tuples of str), ``plan(scale, device)`` (a list of
        :class:`Experiment` with different names) and ``CLAIMS`` (a list of :class:`Claim`, or a
        dict of such lists where each scale has claims of its own).
    slug : str
        The paper, in snake_case.
    scale : str, default "laptop"
        One of ``SCALES``.
    seeds : int, optional
        Number of seeds for every experiment, instead of its own.
    jobs : int, optional
        Number of local processes; all cores by default.
    scheduler : str, optional
        Address of a Dask scheduler to run on instead.
    device : str, default "cpu"
        One of ``DEVICES``.
    dry_run : bool, default False
        Build every experiment, make its first two runs, and write nothing.
    folder : Path
        Where the result file goes: ``<slug>.json``, or ``<slug>-<scale>.json`` for other scales
        than laptop. It is made if it does not exist.
    sources : sequence of Path
        The source files and folders that the results depend on.
    command : str
        The command that makes the file anew, as it shall stand in the file.
    progress : bool, default True
        Show progress bars.

    Returns
    -------
    Path or None
        The result file; None after a dry run.

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described, or the module does not have what it needs.
    RuntimeError
        If a run fails; the message names its case and seed.
    """
    started = time.monotonic()
    experiments, claims = _planned(benchmark_module, slug, scale, device, seeds)
    place = {"jobs": jobs, "scheduler": scheduler, "progress": progress}
    if dry_run:
        for experiment in experiments:
            run_experiment(_first_two_runs(experiment), **place)
        return None

    draft = Results(
        slug=slug,
        scale=scale,
        command=command,
        created=_now(),
        duration_s=0.0,
        versions=versions(),
        machine=machine(),
        source=fingerprint(sources),
        experiments={},
        claims=[],
    )
    check_results(draft, "what is to be reproduced")  # before any time is spent
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stamp = {"source": draft.source, "device": device, **draft.versions}
    stores = [folder / f"{slug}-{scale}.{one.name}.partial.jsonl" for one in experiments]
    tables = {}
    for experiment, store in zip(experiments, stores, strict=True):
        _discard_other(store, store_header(experiment, stamp))
        tables[experiment.name] = run_experiment(experiment, store=store, stamp=stamp, **place)

    path = folder / file_name(slug, scale)
    results = replace(
        draft,
        created=_now(),
        duration_s=round(time.monotonic() - started, 1),
        experiments=_records(experiments, tables),
        claims=evaluate(claims, tables),
    )
    write_results(path, results)
    for store in stores:
        store.unlink(missing_ok=True)  # the same command may have run twice at a time
    return path


def _planned(
    benchmark: ModuleType, slug: str, scale: str, device: str, seeds: int | None
) -> tuple[list[Experiment], list[Claim]]:
    """Return the experiments and claims, or raise before any time is spent on them."""
    if not isinstance(slug, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", slug):
        raise ValueError(f"slug must be in snake_case; got {slug!r}")
    missing = {"SCALES", "DEVICES", "plan", "CLAIMS"} - set(dir(benchmark))
    if missing:
        raise ValueError(f"the benchmark of {slug!r} must define {sorted(missing)}; it does not")
    for name, value, plural in (("scale", scale, "SCALES"), ("device", device, "DEVICES")):
        known = getattr(benchmark, plural)
        if isinstance(known, str):  # in which "lap" would be one of "laptop"
            raise TypeError(f"{plural} must be a tuple of str; got {known!r}")
        if value not in known:
            raise ValueError(f"{name} must be one of {list(known)}; got {value!r}")
    experiments = list(benchmark.plan(scale, device))
    names = [experiment.name for experiment in experiments]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"plan must give experiments with different names; got {names}")
    claims = claims_of(benchmark, scale)
    check_claims(claims, names)
    if seeds is not None:
        experiments = [replace(experiment, seeds=seeds) for experiment in experiments]
    return experiments, claims


def claims_of(benchmark: ModuleType, scale: str) -> list[Claim]:
    """Return the claims that a benchmark decides on at a scale.

    Parameters
    ----------
    benchmark : module
        As in :func:`reproduce`.
    scale : str
        One of its ``SCALES``.

    Returns
    -------
    list of Claim

    Raises
    ------
    ValueError
        If ``CLAIMS`` is a dict without that scale.
    """
    if not isinstance(benchmark.CLAIMS, Mapping):
        return list(benchmark.CLAIMS)
    if scale not in benchmark.CLAIMS:
        raise ValueError(f"CLAIMS must hold the scale {scale!r}; it holds {list(benchmark.CLAIMS)}")
    return list(benchmark.CLAIMS[scale])


def _first_two_runs(experiment: Experiment) -> Experiment:
    """Return the experiment cut down to two runs: of two cases, if it has as many."""
    cases = experiment.cases[:2]
    return replace(experiment, cases=cases, seeds=min(3 - len(cases), experiment.seeds))


def _discard_other(store: Path, header: dict) -> None:
    """Remove a store that is not of this header: of other results, or cut off in its header."""
    if not store.exists() or stored_header(store) == header:
        return
    print(f"{store.name}: not left by a run of this source, device and versions; starting anew")
    store.unlink(missing_ok=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _records(experiments: Sequence[Experiment], tables: dict[str, pd.DataFrame]) -> dict[str, dict]:
    return {one.name: table_record(tables[one.name], one.seeds) for one in experiments}
