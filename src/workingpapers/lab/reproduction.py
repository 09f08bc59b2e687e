"""From a benchmark module to its result file."""

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pandas as pd

from workingpapers.lab.claims import check_claims, evaluate
from workingpapers.lab.experiments import Experiment, run_experiment, store_header
from workingpapers.lab.provenance import fingerprint, machine, versions
from workingpapers.lab.results import Results, table_record, write_results
from workingpapers.lab.store import stored_header


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
    command goes on where it was. Runs made with another source, device or version of a package
    are thrown away, with a notice.

    Parameters
    ----------
    benchmark_module : module
        Has ``SCALES`` and ``DEVICES`` (tuples of str), ``plan(scale, device)`` (a list of
        :class:`Experiment` with different names) and ``CLAIMS`` (a list of :class:`Claim`).
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
    experiments = _planned(benchmark_module, slug, scale, device, seeds)
    place = {"jobs": jobs, "scheduler": scheduler, "progress": progress}
    if dry_run:
        for experiment in experiments:
            run_experiment(_first_two_runs(experiment), **place)
        return None

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stamp = {"source": fingerprint(sources), "device": device, **versions()}
    stores = [folder / f"{slug}-{scale}.{one.name}.partial.jsonl" for one in experiments]
    tables = {}
    for experiment, store in zip(experiments, stores, strict=True):
        _discard_other(store, store_header(experiment, stamp))
        tables[experiment.name] = run_experiment(experiment, store=store, stamp=stamp, **place)

    path = folder / (f"{slug}.json" if scale == "laptop" else f"{slug}-{scale}.json")
    results = Results(
        slug=slug,
        scale=scale,
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        duration_s=round(time.monotonic() - started, 1),
        versions=versions(),
        machine=machine(),
        source=stamp["source"],
        experiments=_records(experiments, tables),
        claims=evaluate(benchmark_module.CLAIMS, tables),
    )
    write_results(path, results)
    for store in stores:
        store.unlink()
    return path


def _planned(
    benchmark: ModuleType, slug: str, scale: str, device: str, seeds: int | None
) -> list[Experiment]:
    """Return the experiments to run, or raise before any time is spent on them."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", slug):
        raise ValueError(f"slug must be in snake_case; got {slug!r}")
    missing = {"SCALES", "DEVICES", "plan", "CLAIMS"} - set(dir(benchmark))
    if missing:
        raise ValueError(f"the benchmark of {slug!r} must define {sorted(missing)}; it does not")
    if scale not in benchmark.SCALES:
        raise ValueError(f"scale must be one of {list(benchmark.SCALES)}; got {scale!r}")
    if device not in benchmark.DEVICES:
        raise ValueError(f"device must be one of {list(benchmark.DEVICES)}; got {device!r}")
    experiments = list(benchmark.plan(scale, device))
    names = [experiment.name for experiment in experiments]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"plan must give experiments with different names; got {names}")
    check_claims(benchmark.CLAIMS, names)
    if seeds is None:
        return experiments
    return [replace(experiment, seeds=seeds) for experiment in experiments]


def _first_two_runs(experiment: Experiment) -> Experiment:
    """Return the experiment cut down to two runs: of two cases, if it has as many."""
    cases = experiment.cases[:2]
    return replace(experiment, cases=cases, seeds=min(3 - len(cases), experiment.seeds))


def _discard_other(store: Path, header: dict) -> None:
    """Remove a store that was left by a run whose results would not be the same."""
    found = stored_header(store)
    if found is None or found == header:
        return
    print(f"{store.name}: left by a run with another source, device or version; starting anew")
    store.unlink()


def _records(experiments: Sequence[Experiment], tables: dict[str, pd.DataFrame]) -> dict[str, dict]:
    return {one.name: table_record(tables[one.name], one.seeds) for one in experiments}
