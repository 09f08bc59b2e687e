"""Where runs are made: in local processes or on a Dask cluster."""

import pickle
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any

import cloudpickle
import joblib
from threadpoolctl import threadpool_limits

from workingpapers.lab.arguments import check_count, check_metrics

Task = tuple[Mapping[str, Any], int]


@dataclass(frozen=True)
class Outcome:
    """A run that has ended: its metrics, or the problem and where it arose."""

    case: Mapping[str, Any]
    seed: int
    metrics: dict[str, float] | None = None
    problem: str | None = None
    trace: str | None = None


def check_place(jobs: int | None, scheduler: str | None) -> None:
    """Raise unless the two say where the runs are to be made."""
    if scheduler is not None and jobs is not None:
        raise ValueError(f"jobs is for local processes only; got jobs={jobs} and a scheduler")
    if scheduler is not None and not isinstance(scheduler, str):
        raise TypeError(f"scheduler must be an address such as 'tcp://host:8786'; got {scheduler}")
    if jobs is not None:
        check_count("jobs", jobs, least=1)


def finished_runs(
    run: Callable[..., Mapping[str, float]],
    tasks: Sequence[Task],
    stop: threading.Event,
    *,
    jobs: int | None,
    scheduler: str | None,
) -> Iterator[Outcome]:
    """Return an iterator over the outcomes of ``run(seed, **case)``, in the order they end.

    Once ``stop`` is set no further run starts.
    """
    if not tasks:
        return iter(())
    if scheduler is not None:
        return _on_cluster(_dask(), run, tasks, stop, scheduler)
    jobs = min(jobs or joblib.cpu_count(), len(tasks))
    if jobs == 1:
        return _in_this_process(run, tasks, stop)
    return _in_processes(run, tasks, stop, jobs)


def _in_this_process(
    run: Callable, tasks: Sequence[Task], stop: threading.Event
) -> Iterator[Outcome]:
    with threadpool_limits(limits=1):
        for case, seed in takewhile(lambda _: not stop.is_set(), tasks):
            yield _attempt(run, case, seed)


def _in_processes(
    run: Callable, tasks: Sequence[Task], stop: threading.Event, jobs: int
) -> Iterator[Outcome]:
    # One task at a time a worker: what is finished is known at once, and `stop` has effect.
    one_at_a_time = {"return_as": "generator_unordered", "batch_size": 1, "pre_dispatch": "n_jobs"}
    sent = _pickled(run)
    todo = takewhile(lambda _: not stop.is_set(), tasks)
    with joblib.parallel_config(backend="loky", n_jobs=jobs, inner_max_num_threads=1):
        parallel = joblib.Parallel(**one_at_a_time)
        yield from parallel(joblib.delayed(_attempt_sent)(*task, run=sent) for task in todo)


def _on_cluster(
    dask: Any, run: Callable, tasks: Sequence[Task], stop: threading.Event, scheduler: str
) -> Iterator[Outcome]:
    cases, seeds = zip(*tasks, strict=True)
    with dask.Client(scheduler, set_as_default=False) as client:
        futures = client.map(_attempt_sent, cases, seeds, run=_pickled(run), pure=False)
        for _, outcome in dask.as_completed(futures, loop=client.loop, with_results=True):
            yield outcome
            if stop.is_set():
                return


def _attempt(run: Callable, case: Mapping[str, Any], seed: int) -> Outcome:
    """Make one run. Errors come back as text, since not every error can be pickled."""
    try:
        return Outcome(case, seed, metrics=check_metrics(run(seed, **case)))
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        return Outcome(case, seed, problem=problem, trace=traceback.format_exc())


def _attempt_sent(case: Mapping[str, Any], seed: int, run: bytes) -> Outcome:
    return _attempt(_received(run), case, seed)


@lru_cache(maxsize=1)
def _received(run: bytes) -> Callable:
    """Return the function; the same one for all runs of a worker, so that its caches live on."""
    function = pickle.loads(run)
    # After the libraries that it needs are loaded. Not undone after a run, since a cluster's
    # worker may make several in threads.
    threadpool_limits(limits=1)
    return function


def _pickled(run: Callable) -> bytes:
    """Pickle ``run`` with its code, so that workers need not be able to import its module.

    The modules of this package are left out: every worker has them. (A function under
    ``functools.lru_cache`` does not travel so; it works where its module can be imported.)
    """
    module = sys.modules.get(run.__module__)
    known = run.__module__ in cloudpickle.list_registry_pickle_by_value()
    if module is None or known or run.__module__.startswith("workingpapers."):
        return cloudpickle.dumps(run)
    cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps(run)
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _dask() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise ImportError(
            'a scheduler needs Dask: pip install "workingpapers[distributed]"'
        ) from error
    return distributed
