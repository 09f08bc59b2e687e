"""Experiments: a function run over cases and seeds, and the table that comes of it."""

import inspect
import itertools
import json
import math
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from workingpapers.lab.arguments import check_count, names_problem
from workingpapers.lab.store import RunStore, run_key
from workingpapers.lab.tables import table_of
from workingpapers.lab.workers import Outcome, check_place, finished_runs

Scalar = str | int | float | bool | None
Case = dict[str, Scalar]


@dataclass(frozen=True)
class Experiment:
    """A function to be run once for every case and every seed.

    Parameters
    ----------
    name : str
        An ASCII letter, then ASCII letters, digits, ``-`` and ``_`` (it becomes part of file
        names).
    run : callable
        ``run(seed, **case) -> Mapping[str, float]``: a function defined at the top level of a
        module, so that other processes can be sent it. It returns the metrics of one run: finite
        numbers, under the same names in every run.
    cases : sequence of mappings
        The arguments of ``run`` beside the seed: at least one case, no two equal, all with the
        same keys; the values are JSON scalars (str, int, finite float, bool, None). ``[{}]`` is
        one case without arguments.
    seeds : int
        Number of seeds a case, at least 1.
    timed : bool, default False
        Whether the runs measure seconds. Then they are made one after the other in this process,
        since runs at the same time slow each other down.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or ``run`` does not take the keys of a case.
    """

    name: str
    run: Callable[..., Mapping[str, float]]
    cases: Sequence[Mapping[str, Scalar]]
    seeds: int
    timed: bool = False

    def __post_init__(self):
        if not isinstance(self.timed, bool):
            raise TypeError(f"timed must be a bool; got {self.timed!r}")
        if not isinstance(self.name, str) or not re.fullmatch("[A-Za-z][A-Za-z0-9_-]*", self.name):
            raise ValueError(
                f"name must be an ASCII letter, then letters, digits, - and _; got {self.name!r}"
            )
        object.__setattr__(self, "seeds", check_count("seeds", self.seeds, least=1))
        object.__setattr__(self, "cases", _checked_cases(self.cases))
        _check_run(self.run, self.cases)


def product(**grid: Iterable[Scalar]) -> list[Case]:
    """Return the Cartesian product of the grid: one case a combination.

    Parameters
    ----------
    **grid : iterables
        The values of each argument, at least one value each, in an order of their own (not a
        text, set or mapping). The last argument varies fastest.

    Returns
    -------
    list of dict
        The cases, as :class:`Experiment` takes them.

    Raises
    ------
    TypeError
        If the values of an argument are a text, set or mapping, or cannot be iterated over.
    ValueError
        If an argument has no values.
    """
    values = {name: _grid_values(name, column) for name, column in grid.items()}
    return [
        dict(zip(values, combination, strict=True))
        for combination in itertools.product(*values.values())
    ]


def spawn_generators(seed: int, n: int) -> list[np.random.Generator]:
    """Return independent generators; asking for more does not change the first ones.

    Parameters
    ----------
    seed : int
        At least 0.
    n : int
        Number of generators, at least 1.

    Returns
    -------
    list of numpy.random.Generator

    Raises
    ------
    TypeError, ValueError
        If an argument is not an integer, or too small.
    """
    check_count("seed", seed, least=0)
    check_count("n", n, least=1)
    return [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(n)]


def run_experiment(
    experiment: Experiment,
    *,
    jobs: int | None = None,
    scheduler: str | None = None,
    progress: bool = True,
    store: Path | str | None = None,
    stamp: Mapping[str, str] | None = None,
    first_seed: int = 0,
) -> pd.DataFrame:
    """Run an experiment; the table is the same, bit for bit, for any number of workers.

    Every worker uses one BLAS thread. When a run fails no new one starts, those under way
    are finished and kept, and then the error is raised.

    Parameters
    ----------
    experiment : Experiment
        What to run.
    jobs : int, optional
        Number of local processes, at least 1; all cores by default. With 1 the runs are made in
        this process.
    scheduler : str, optional
        Address of a Dask scheduler (``"tcp://host:8786"``) to run on instead of local processes.
    progress : bool, default True
        Show a progress bar on standard error (``TQDM_DISABLE=1`` hides it too).
    store : path, optional
        JSON-lines file to which each run is appended as soon as it is finished. If the file is
        there, its runs are not made again. One process at a time may write to it.
    stamp : mapping of str to str, optional
        What the runs depend on beside the experiment (version of the source, device), kept in the
        store. A store with another stamp is refused.
    first_seed : int, default 0
        The seeds are ``first_seed, ..., first_seed + experiment.seeds - 1``.

    Returns
    -------
    pandas.DataFrame
        A row for each case and seed, in that order: ``seed``, the keys of the case, the metrics.

    Raises
    ------
    RuntimeError
        If a run raises, or returns something else than finite numbers under the names that the
        other runs used; the message names the case and the seed.
    ValueError, TypeError
        If an argument is out of range, or the store belongs to another experiment.
    ImportError
        If ``scheduler`` is given and Dask is not installed.
    """
    if not isinstance(experiment, Experiment):
        raise TypeError(f"experiment must be an Experiment; got {experiment!r}")
    check_count("first_seed", first_seed, least=0)
    check_place(jobs, scheduler)
    seeds = range(first_seed, first_seed + experiment.seeds)
    runs = [(case, seed) for case in experiment.cases for seed in seeds]
    kept = None if store is None else RunStore(Path(store), store_header(experiment, stamp))
    done = {} if kept is None else kept.load()
    pending = [run for run in runs if run_key(*run) not in done]

    stop = threading.Event()
    if experiment.timed:
        jobs, scheduler = 1, None
    outcomes = finished_runs(experiment.run, pending, stop, jobs=jobs, scheduler=scheduler)
    # tqdm reads TQDM_DISABLE only where `disable` is not given.
    hidden = {} if progress else {"disable": True}
    bar = tqdm(total=len(runs), initial=len(runs) - len(pending), desc=experiment.name, **hidden)
    with bar:
        _collect(experiment, outcomes, stop, done, kept, bar)
    rows = [{"seed": seed, **case, **done[run_key(case, seed)]} for case, seed in runs]
    return table_of(list(rows[0]), [[row[name] for name in rows[0]] for row in rows])


def _collect(
    experiment: Experiment,
    outcomes: Iterable[Outcome],
    stop: threading.Event,
    done: dict,
    kept: RunStore | None,
    bar: tqdm,
) -> None:
    """Add the outcomes to ``done`` and to the store; raise the first failure at the end."""
    failures = []
    for outcome in outcomes:
        if failure := _failure(experiment, outcome, done):
            failures.append(failure)
            stop.set()
            continue
        done[run_key(outcome.case, outcome.seed)] = outcome.metrics
        if kept is not None:
            kept.append(outcome.case, outcome.seed, outcome.metrics)
        bar.update()
    if failures:
        raise failures[0]


def store_header(experiment: Experiment, stamp: Mapping[str, str] | None) -> dict[str, Any]:
    """Return what two experiments must share for their runs to stand in one store.

    Cases and seeds are not part of it, so that both can be added to.
    """
    return {
        "store": 1,
        "experiment": experiment.name,
        "run": experiment.run.__qualname__,
        "parameters": sorted(experiment.cases[0]),
        "stamp": dict(stamp or {}),
    }


def _failure(experiment: Experiment, outcome: Outcome, done: Mapping) -> RuntimeError | None:
    """Return what is wrong with a run, as an error that names its case and seed."""
    others = next(iter(done.values()), outcome.metrics)
    problem = outcome.problem or names_problem(outcome.metrics, others, experiment.cases[0])
    if problem is None:
        return None
    error = RuntimeError(
        f"experiment {experiment.name!r}: the run of case {outcome.case}, "
        f"seed {outcome.seed} failed: {problem}"
    )
    if outcome.trace:
        error.add_note(outcome.trace)
    return error


def _checked_cases(cases: Sequence[Mapping[str, Scalar]]) -> tuple[Case, ...]:
    """Return the cases as dictionaries, or raise naming the one that is at fault."""
    if isinstance(cases, str | Mapping) or not isinstance(cases, Sequence):
        raise TypeError(f"cases must be a sequence of mappings; got {cases!r}")
    if not cases:
        raise ValueError("cases must hold at least one case; got none")
    checked, seen = [], set()
    for case in cases:
        _check_case(case, cases[0])
        # The JSON text tells 1 from True and 1.0, which Python's == does not.
        text = json.dumps(case, sort_keys=True)
        if text in seen:
            raise ValueError(f"cases must differ from each other; got {case} twice")
        seen.add(text)
        checked.append(dict(case))
    return tuple(checked)


def _check_case(case: Mapping[str, Scalar], first: Mapping[str, Scalar]) -> None:
    if not isinstance(case, Mapping) or not all(isinstance(key, str) for key in case):
        raise TypeError(f"a case must be a mapping with string keys; got {case!r}")
    if "seed" in case:
        raise ValueError(f"a case may not have the key 'seed', which run is given; got {case}")
    if set(case) != set(first):
        raise ValueError(
            f"cases must all have the same keys; got {sorted(case)} and {sorted(first)}"
        )
    for key, value in case.items():
        if not (value is None or isinstance(value, str | int | float)):
            raise TypeError(
                f"case value {key!r} must be a str, int, float, bool or None; "
                f"got {value!r} ({type(value).__name__})"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"case value {key!r} must be finite; got {value}")


def _check_run(run: Callable, cases: Sequence[Case]) -> None:
    if not inspect.isfunction(run):
        raise TypeError(f"run must be a function; got {run!r}")
    if run.__qualname__ != run.__name__ or run.__name__ == "<lambda>":
        raise ValueError(
            f"run must be defined at the top level of a module, so that other processes can be "
            f"sent it; got {run.__qualname__}"
        )
    try:
        inspect.signature(run).bind(0, **cases[0])
    except TypeError as error:
        raise TypeError(
            f"run must take (seed, **case); {run.__name__}{inspect.signature(run)} "
            f"does not take seed and {sorted(cases[0])}: {error}"
        ) from None


def _grid_values(name: str, values: Iterable[Scalar]) -> list[Scalar]:
    unordered = isinstance(values, str | bytes | Set | Mapping)
    if unordered or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a sequence of values; got {values!r}")
    values = list(values)
    if not values:
        raise ValueError(f"{name} must have at least one value; got none")
    return values
