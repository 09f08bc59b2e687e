"""Experiments: the same table anywhere, nothing finished lost, and errors that say where."""

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from workingpapers.lab import Experiment, product, run_experiment, spawn_generators

SCALE = 2.0


def spectrum(seed, size, scale):
    """A run whose digits depend on BLAS and on what else the module holds."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(size, size))
    eigenvalues = np.linalg.eigvalsh(matrix @ matrix.T)
    return {"top": scale * SCALE * eigenvalues[-1], "trace": np.float32(eigenvalues.sum())}


def logged(seed, log, fail_at):
    """Write down that this run was made, and fail at one seed."""
    with Path(log).open("a") as file:
        file.write(f"{seed}\n")
    time.sleep(0.005)  # long enough for the others to hear of a failure
    if seed == fail_at:
        raise ZeroDivisionError(f"seed {seed} is cursed")
    return {"square": seed**2}


def blas_threads(seed):
    return {"threads": max(pool["num_threads"] for pool in threadpool_info())}


def process(seed):
    time.sleep(0.05)
    return {"pid": os.getpid()}


def returning(seed, what):
    values = {
        "nan": {"loss": math.nan},
        "inf": {"loss": -math.inf},
        "huge": {"loss": 10**400},
        "text": {"loss": "low"},
        "nothing": {},
        "number": 3.0,
        "number key": {1: 2.0},
        "seed": {"seed": 1.0},
        "what": {"what": 1.0},
    }
    return values[what]


def changing(seed):
    return {"a": 1.0} if seed < 2 else {"b": 1.0}


def plain(seed):
    return {"value": float(np.random.default_rng(seed).normal()), "flag": np.bool_(seed % 2)}


SPECTRA = Experiment("spectra", spectrum, product(size=[3, 60], scale=[1.0, 0.5]), seeds=3)


def runs_made(log):
    return sorted(int(line) for line in Path(log).read_text().split())


# --- the table


def test_rows_are_cases_and_seeds_in_order():
    table = run_experiment(SPECTRA, jobs=1, progress=False)
    assert list(table.columns) == ["seed", "size", "scale", "top", "trace"]
    expected = [
        (seed, size, scale) for size in (3, 60) for scale in (1.0, 0.5) for seed in range(3)
    ]
    rows = table[["seed", "size", "scale"]].itertuples(index=False, name=None)
    assert list(rows) == expected
    # scale enters linearly, through an exact power of two
    tops = table.pivot(index=["size", "seed"], columns="scale", values="top")
    assert (tops[1.0] == 2 * tops[0.5]).all()


def test_two_workers_give_the_same_bits_as_one():
    one = run_experiment(SPECTRA, jobs=1, progress=False)
    two = run_experiment(SPECTRA, jobs=2, progress=False)
    pd.testing.assert_frame_equal(one, two, check_exact=True)


def test_two_workers_are_two_processes():
    experiment = Experiment("process", process, [{}], seeds=20)
    pids = set(run_experiment(experiment, jobs=2, progress=False)["pid"])
    assert len(pids) == 2 and os.getpid() not in pids


def test_runs_that_measure_seconds_are_made_one_after_the_other():
    timed = Experiment("timed", process, [{}], seeds=4, timed=True)
    for place in ({"jobs": 2}, {"scheduler": "tcp://127.0.0.1:1"}):
        assert set(run_experiment(timed, progress=False, **place)["pid"]) == {os.getpid()}
    with pytest.raises(TypeError, match="timed must be a bool; got 1"):
        Experiment("timed", process, [{}], seeds=4, timed=1)


@pytest.mark.parametrize("jobs", [1, 2])
def test_workers_use_one_blas_thread(jobs):
    experiment = Experiment("threads", blas_threads, [{}], seeds=3)
    assert (run_experiment(experiment, jobs=jobs, progress=False)["threads"] == 1).all()


def test_a_dask_cluster_gives_the_same_bits():
    distributed = pytest.importorskip("distributed")
    local = run_experiment(SPECTRA, jobs=1, progress=False)
    failing = Experiment("spectra", returning, [{"what": "nan"}], seeds=1)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0"
    ) as cluster:
        address = cluster.scheduler_address
        there = run_experiment(SPECTRA, scheduler=address, progress=False)
        with pytest.raises(RuntimeError, match="seed 0 failed: ValueError: metric 'loss'"):
            run_experiment(failing, scheduler=address, progress=False)
    pd.testing.assert_frame_equal(local, there, check_exact=True)


def test_a_scheduler_without_dask_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r'pip install "workingpapers\[distributed\]"'):
        run_experiment(SPECTRA, scheduler="tcp://127.0.0.1:1", progress=False)


def test_workers_need_not_find_the_module_of_the_run(tmp_path):
    script = tmp_path / "main.py"
    script.write_text(
        """
import importlib.util, sys
from pathlib import Path
from workingpapers.lab import Experiment, run_experiment

if __name__ == "__main__":
    path = Path(__file__).parent / "elsewhere" / "bench.py"
    spec = importlib.util.spec_from_file_location("benchmarks.hidden", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    experiment = Experiment("hidden", module.run, [{}], seeds=4)
    print(list(run_experiment(experiment, jobs=2, progress=False)["y"]))
"""
    )
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "bench.py").write_text(
        "OFFSET = 10\n\n\ndef run(seed):\n    return {'y': shifted(seed)}\n\n\n"
        "def shifted(seed):\n    return seed + OFFSET\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "[10.0, 11.0, 12.0, 13.0]"


def test_first_seed_shifts_the_seeds():
    experiment = Experiment("plain", plain, [{}], seeds=5)
    whole = run_experiment(experiment, jobs=1, progress=False)
    tail = run_experiment(
        Experiment("plain", plain, [{}], seeds=2), jobs=1, progress=False, first_seed=3
    )
    pd.testing.assert_frame_equal(whole[3:].reset_index(drop=True), tail, check_exact=True)


# --- progress


def test_progress_bar_goes_to_standard_error(capsys, monkeypatch):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    run_experiment(Experiment("plain", plain, [{}], seeds=3), jobs=1)
    shown = capsys.readouterr()
    assert "plain" in shown.err and "3/3" in shown.err and shown.out == ""
    run_experiment(Experiment("plain", plain, [{}], seeds=3), jobs=1, progress=False)
    assert capsys.readouterr().err == ""


# --- failures, interruption, resumption


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failing_run_is_named_and_the_finished_ones_are_not_made_again(tmp_path, jobs):
    log, store = str(tmp_path / "log"), tmp_path / "runs.jsonl"
    failing = Experiment("logged", logged, [{"log": log, "fail_at": 4}], seeds=200)
    with pytest.raises(RuntimeError, match=r"'fail_at': 4.*seed 4 failed: ZeroDivisionError") as e:
        run_experiment(failing, jobs=jobs, progress=False, store=store)
    assert "in logged" in e.value.__notes__[0]
    before = runs_made(log)
    assert 5 <= len(before) < 200
    kept = [json.loads(line)["seed"] for line in store.read_text().splitlines()[1:]]
    assert sorted([*kept, 4]) == before

    # The same runs, which would fail again if they were made again; seed 4 is past the end.
    shorter = Experiment("logged", logged, failing.cases, seeds=4)
    run_experiment(shorter, jobs=jobs, progress=False, store=store)
    assert runs_made(log) == before

    with pytest.raises(RuntimeError, match="seed 4"):
        run_experiment(failing, jobs=1, progress=False, store=store)
    assert runs_made(log) == sorted([*before, 4])


KILLED = """
import os, sys
from pathlib import Path
from workingpapers.lab import Experiment, run_experiment

def run(seed):
    with Path("log").open("a") as file:
        file.write(f"{seed}\\n")
    if seed == 3 and not Path("mended").exists():
        os._exit(9)
    return {"square": seed**2}

table = run_experiment(Experiment("killed", run, [{}], seeds=6), jobs=1, store="runs.jsonl")
print(list(table["square"]))
"""


def test_a_killed_process_loses_nothing_finished(tmp_path):
    def attempt():
        return subprocess.run(
            [sys.executable, "-c", KILLED],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "TQDM_DISABLE": "1"},
        )

    assert attempt().returncode == 9
    (tmp_path / "mended").touch()
    second = attempt()
    assert second.stdout.strip() == "[0.0, 1.0, 4.0, 9.0, 16.0, 25.0]"
    assert second.stderr == ""  # TQDM_DISABLE hides the bar
    assert runs_made(tmp_path / "log") == [0, 1, 2, 3, 3, 4, 5]


@pytest.mark.parametrize("cut", range(1, 40, 6))
def test_a_cut_off_last_line_is_made_again(tmp_path, cut):
    log, store = str(tmp_path / "log"), tmp_path / "runs.jsonl"
    experiment = Experiment("logged", logged, [{"log": log, "fail_at": -1}], seeds=3)
    whole = run_experiment(experiment, jobs=1, progress=False, store=store)
    text = store.read_bytes()
    store.write_bytes(text[:-cut])
    again = run_experiment(experiment, jobs=1, progress=False, store=store)
    pd.testing.assert_frame_equal(whole, again, check_exact=True)
    assert runs_made(log) == [0, 1, 2, 2]
    assert store.read_bytes() == text


@pytest.mark.parametrize("kept", [0, 1, 20])
def test_a_cut_off_header_is_written_again(tmp_path, kept):
    store = tmp_path / "runs.jsonl"
    experiment = Experiment("plain", plain, [{}], seeds=2)
    run_experiment(experiment, jobs=1, progress=False, store=store)
    text = store.read_bytes()
    store.write_bytes(text[:kept])
    run_experiment(experiment, jobs=1, progress=False, store=store)
    assert store.read_bytes() == text


def test_seeds_and_cases_can_be_added(tmp_path):
    log, store = str(tmp_path / "log"), tmp_path / "runs.jsonl"
    case = {"log": log, "fail_at": -1}
    run_experiment(Experiment("logged", logged, [case], 2), jobs=1, progress=False, store=store)
    more = Experiment("logged", logged, [case, {"log": log, "fail_at": -2}], seeds=3)
    stored = run_experiment(more, jobs=1, progress=False, store=store)
    assert runs_made(log) == [0, 0, 1, 1, 2, 2]
    fresh = run_experiment(more, jobs=1, progress=False)
    pd.testing.assert_frame_equal(stored, fresh, check_exact=True)


@pytest.mark.parametrize(
    ("other", "stamp", "part"),
    [
        (Experiment("renamed", plain, [{}], 2), {"source": "a"}, "renamed"),
        (Experiment("plain", changing, [{}], 2), {"source": "a"}, "changing"),
        (Experiment("plain", returning, [{"what": "nan"}], 2), {"source": "a"}, "parameters"),
        (Experiment("plain", plain, [{}], 2), {"source": "b"}, "stamp"),
        (Experiment("plain", plain, [{}], 2), None, "stamp"),
    ],
)
def test_a_store_of_another_experiment_is_refused_and_left_alone(tmp_path, other, stamp, part):
    store = tmp_path / "runs.jsonl"
    experiment = Experiment("plain", plain, [{}], 2)
    run_experiment(experiment, jobs=1, progress=False, store=store, stamp={"source": "a"})
    text = store.read_bytes()
    with pytest.raises(ValueError, match=f"another experiment.*{part}"):
        run_experiment(other, jobs=1, progress=False, store=store, stamp=stamp)
    assert store.read_bytes() == text


@pytest.mark.parametrize(
    "text", ["some notes\nwithout an end", "[1]\n", '{"a": 1}\n', "1\n", "no newline"]
)
def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path, text):
    store = tmp_path / "notes.txt"
    store.write_text(text)
    with pytest.raises(ValueError, match=r"notes\.txt"):
        run_experiment(Experiment("plain", plain, [{}], 2), jobs=1, progress=False, store=store)
    assert store.read_text() == text


METRICS = '"metrics": {"value": 1.0, "flag": 0.0}'


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "nonsense",
        "[]",
        "1" * 5000,
        9999 * "[" + 9999 * "]",
        '{"case": {}, "seed": 5, "metrics": {"value": NaN, "flag": 0.0}}',
        '{"case": {}, "seed": 5, "metrics": {"value": 1e999, "flag": 0.0}}',
        '{"case": {}, "seed": 5, "metrics": {"value": "1", "flag": 0.0}}',
        '{"case": {}, "seed": 5, "metrics": {"value": 1.0}}',
        '{"case": {}, "seed": 5, "metrics": {"value": 1.0, "flag": 0.0, "more": 1.0}}',
        '{"case": {}, "seed": 5, "metrics": [1.0]}',
        '{"case": {}, "seed": 5, "metrics": {}}',
        f'{{"case": {{}}, "seed": 5, {METRICS}, "more": 1}}',
        f'{{"case": {{}}, "seed": "5", {METRICS}}}',
        f'{{"case": {{}}, "seed": -1, {METRICS}}}',
        f'{{"case": {{}}, "seed": true, {METRICS}}}',
        f'{{"case": {{"a": 1}}, "seed": 5, {METRICS}}}',
        f'{{"case": "", "seed": 5, {METRICS}}}',
    ],
)
def test_a_damaged_line_is_named(tmp_path, line):
    store = tmp_path / "runs.jsonl"
    experiment = Experiment("plain", plain, [{}], 2)
    run_experiment(experiment, jobs=1, progress=False, store=store)
    lines = store.read_text().splitlines()
    store.write_text("\n".join([lines[0], lines[1], line, lines[2]]) + "\n")
    with pytest.raises(ValueError, match=r"runs\.jsonl: line 3 is not a run"):
        run_experiment(experiment, jobs=1, progress=False, store=store)


def test_a_stored_metric_named_like_an_argument_is_refused(tmp_path):
    store = tmp_path / "runs.jsonl"
    experiment = Experiment("plain", plain, [{}], 1)
    run_experiment(experiment, jobs=1, progress=False, store=store)
    store.write_text(store.read_text().replace('"flag"', '"seed"'))
    with pytest.raises(ValueError, match=r"line 2 .*named like the arguments \['seed'\]"):
        run_experiment(experiment, jobs=1, progress=False, store=store)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("huge", "metric 'loss' must be finite"),
        ("nan", "metric 'loss' must be finite; got nan"),
        ("inf", "metric 'loss' must be finite; got -inf"),
        ("text", "metric 'loss' must be a number"),
        ("nothing", "at least one metric"),
        ("number", "mapping"),
        ("number key", "string names"),
        ("seed", r"named like the arguments \['seed'\]"),
        ("what", r"named like the arguments \['what'\]"),
    ],
)
def test_bad_metrics_name_case_and_seed(what, message):
    experiment = Experiment("bad", returning, [{"what": what}], seeds=2)
    with pytest.raises(RuntimeError, match=rf"case {{'what': '{what}'}}, seed 0 failed.*{message}"):
        run_experiment(experiment, jobs=1, progress=False)


def test_every_run_must_use_the_same_metrics(tmp_path):
    experiment = Experiment("changing", changing, [{}], seeds=4)
    with pytest.raises(RuntimeError, match=r"seed 2 failed.*\['b'\].*\['a'\]"):
        run_experiment(experiment, jobs=1, progress=False)
    run_experiment(
        Experiment("changing", changing, [{}], 2), jobs=1, progress=False, store=tmp_path / "s"
    )
    with pytest.raises(RuntimeError, match=r"seed 2 failed.*\['b'\].*\['a'\]"):
        run_experiment(experiment, jobs=1, progress=False, store=tmp_path / "s")


# --- definitions and bad input


def nested():
    def inside(seed):
        return {"y": 1.0}

    return inside


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": ""}, ValueError, "name"),
        ({"name": "a/b"}, ValueError, "name"),
        ({"name": 3}, ValueError, "name"),
        ({"name": "größe"}, ValueError, "ASCII"),
        ({"name": "a\n"}, ValueError, "name"),
        ({"run": lambda seed: {}}, ValueError, "top level"),
        ({"run": nested()}, ValueError, "top level"),
        ({"run": "plain"}, TypeError, "run must be a function"),
        ({"run": np.sum}, TypeError, "run"),
        ({"cases": []}, ValueError, "at least one case"),
        ({"cases": {}}, TypeError, "sequence of mappings"),
        ({"cases": "abc"}, TypeError, "sequence of mappings"),
        ({"cases": iter([{}])}, TypeError, "sequence of mappings"),
        ({"cases": [3]}, TypeError, "mapping with string keys"),
        ({"cases": [{1: 2}]}, TypeError, "string keys"),
        ({"cases": [{}, {}]}, ValueError, "twice"),
        ({"cases": [{}, {"a": 1}]}, ValueError, "same keys"),
        ({"cases": [{"seed": 1}]}, ValueError, "'seed'"),
        ({"cases": [{"a": 1}]}, TypeError, "does not take"),
        ({"run": returning}, TypeError, "does not take"),
        ({"run": returning, "cases": [{"what": [1]}]}, TypeError, "'what'"),
        ({"run": returning, "cases": [{"what": np.int64(1)}]}, TypeError, "int64"),
        ({"run": returning, "cases": [{"what": math.nan}]}, ValueError, "finite"),
        ({"seeds": 0}, ValueError, "seeds must be at least 1"),
        ({"seeds": 1.0}, TypeError, "seeds must be an integer"),
        ({"seeds": True}, TypeError, "seeds must be an integer"),
    ],
)
def test_bad_definitions(arguments, error, message):
    with pytest.raises(error, match=message):
        Experiment(**{"name": "x", "run": plain, "cases": [{}], "seeds": 1, **arguments})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"jobs": 0}, ValueError, "jobs must be at least 1"),
        ({"jobs": -1}, ValueError, "jobs must be at least 1"),
        ({"jobs": 1.5}, TypeError, "jobs must be an integer"),
        ({"jobs": 1, "scheduler": "tcp://h:1"}, ValueError, "jobs is for local"),
        ({"scheduler": 8786}, TypeError, "scheduler must be an address"),
        ({"first_seed": -1}, ValueError, "first_seed"),
        ({"first_seed": "0"}, TypeError, "first_seed"),
    ],
)
def test_bad_ways_to_run(arguments, error, message, tmp_path):
    store = tmp_path / "runs.jsonl"
    with pytest.raises(error, match=message):
        run_experiment(
            Experiment("plain", plain, [{}], 1), progress=False, store=store, **arguments
        )
    assert not store.exists()


def test_only_an_experiment_can_be_run():
    with pytest.raises(TypeError, match="experiment must be an Experiment; got <function plain"):
        run_experiment(plain)


def test_numpy_integers_count(tmp_path):
    experiment = Experiment("plain", plain, [{}], seeds=np.int64(2))
    assert type(experiment.seeds) is int
    table = run_experiment(
        experiment, jobs=np.int64(1), progress=False, store=tmp_path / "s", first_seed=np.int64(3)
    )
    assert list(table["seed"]) == [3, 4]


def mixed(seed, size):
    return {"y": 1.0}


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [
        ([None, 3], object),
        ([None, 2**53 + 1], object),
        ([0.5, 2**53 + 1], object),
        ([2**70, -1], object),
        (["a", None], object),
        ([True, None], object),
        ([1, 0.5], float),
        ([1, 2], "int64"),
        ([True, False], bool),
    ],
)
def test_a_table_keeps_the_values_of_the_cases(sizes, kind):
    experiment = Experiment("mixed", mixed, product(size=sizes), seeds=1)
    column = run_experiment(experiment, jobs=1, progress=False)["size"]
    assert column.tolist() == sizes and column.dtype == kind


def test_cases_are_copied_and_told_apart_by_type():
    case = {"what": 1}
    experiment = Experiment("x", returning, [case, {"what": True}, {"what": 1.0}], seeds=1)
    case["what"] = 2
    assert experiment.cases[0] == {"what": 1}


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,3}", fullmatch=True),
        st.lists(st.integers(), min_size=1, max_size=4, unique=True),
        max_size=3,
    )
)
def test_product_is_every_combination_once(grid):
    cases = product(**grid)
    assert len(cases) == math.prod(len(values) for values in grid.values())
    assert len({tuple(case.items()) for case in cases}) == len(cases)
    assert all(list(case) == list(grid) for case in cases)
    assert all(case[name] in grid[name] for case in cases for name in grid)


def test_product_varies_the_last_fastest():
    assert product(a=[1, 2], b=["x", "y"]) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


@pytest.mark.parametrize(
    ("grid", "error"),
    [
        ({"a": []}, ValueError),
        ({"a": "xy"}, TypeError),
        ({"a": b"xy"}, TypeError),
        ({"a": {1, 2}}, TypeError),
        ({"a": {"b": 1}}, TypeError),
        ({"a": 3}, TypeError),
        ({"a": None}, TypeError),
    ],
)
def test_bad_grids(grid, error):
    with pytest.raises(error, match="a must"):
        product(**grid)


@given(st.integers(0, 2**64), st.integers(1, 8), st.integers(1, 8))
def test_more_generators_leave_the_first_ones_as_they_were(seed, few, more):
    first = [rng.random() for rng in spawn_generators(seed, few)]
    again = [rng.random() for rng in spawn_generators(seed, few + more)]
    assert again[:few] == first
    assert len(set(again)) == few + more


@pytest.mark.parametrize(
    ("seed", "n", "error"),
    [(-1, 1, ValueError), (0, 0, ValueError), (0.0, 1, TypeError), (0, True, TypeError)],
)
def test_bad_spawning(seed, n, error):
    with pytest.raises(error, match="must be"):
        spawn_generators(seed, n)
