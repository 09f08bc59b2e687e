"""Result files, fingerprints, claims, and the way from a benchmark module to its file."""

import json
import math
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workingpapers.lab import (
    Claim,
    Estimate,
    Experiment,
    Results,
    check,
    evaluate,
    fingerprint,
    mean_interval,
    paired_difference,
    product,
    read_results,
    reproduce,
    write_results,
)
from workingpapers.lab.provenance import _processor, machine, versions
from workingpapers.lab.tables import table_record


def made(**changes):
    results = Results(
        slug="fair_bandits",
        scale="laptop",
        command="workingpapers reproduce fair_bandits",
        created="2025-07-13T12:00:00+00:00",
        duration_s=1.5,
        versions={"python": "3.11.9", "numpy": "2.0.0"},
        machine={"processor": "x", "cores": 2, "memory_gib": 7.6, "system": "Linux x86_64"},
        source="0" * 64,
        experiments={"e": {"columns": ["seed", "y"], "rows": [[0, 0.1], [1, 1e-300]], "seeds": 2}},
        claims=[claim_record()],
    )
    return replace(results, **changes)


def claim_record(**changes):
    record = {
        "id": "c",
        "sentence": "It is small.",
        "paper": "Figure 1: 0.1",
        "metric": "mean of y",
        "value": 0.1,
        "low": 0.0,
        "high": 0.2,
        "n": 2,
        "threshold": "≤ 0.5",
        "holds": True,
        "note": "",
    }
    return {**record, **changes}


# --- result files


def test_results_come_back_as_they_were(tmp_path):
    write_results(tmp_path / "fair_bandits.json", made())
    assert read_results(tmp_path / "fair_bandits.json") == made()
    table = read_results(tmp_path / "fair_bandits.json").table("e")
    expected = pd.DataFrame({"seed": [0, 1], "y": [0.1, 1e-300]})
    pd.testing.assert_frame_equal(table, expected, check_exact=True)
    with pytest.raises(ValueError, match=r"one of \['e'\]; got 'f'"):
        made().table("f")


def test_tables_become_json_scalars():
    table = pd.DataFrame(
        {
            "seed": np.arange(2),
            "name": ["a", None],
            "flag": [True, False],
            "size": [None, 3],
            "y": np.array([0.1, 2.0]),
        }
    )
    record = table_record(table, seeds=2)
    assert record == {
        "columns": ["seed", "name", "flag", "size", "y"],
        "rows": [[0, "a", True, None, 0.1], [1, None, False, 3.0, 2.0]],
        "seeds": 2,
    }
    assert json.loads(json.dumps(record)) == record
    assert [type(cell) for cell in record["rows"][0]] == [int, str, bool, type(None), float]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5),
    st.text(min_size=1),
)
def test_any_numbers_and_texts_come_back_exactly(tmp_path, numbers, text):
    text = text.encode("utf-8", "ignore").decode() or "x"
    rows = [[text, number] for number in numbers]
    experiments = {text: {"columns": ["a", "b"], "rows": rows, "seeds": 1}}
    results = made(experiments=experiments, claims=[claim_record(sentence=text)])
    write_results(tmp_path / "fair_bandits.json", results)
    assert read_results(tmp_path / "fair_bandits.json") == results


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.999])
def test_a_cut_off_file_is_a_clear_error(tmp_path, share):
    path = tmp_path / "fair_bandits.json"
    write_results(path, made())
    text = path.read_text().rstrip()
    path.write_text(text[: int(share * len(text))])
    with pytest.raises(ValueError, match=r"fair_bandits\.json is cut off.*reproduce fair_bandits`"):
        read_results(path)


@pytest.mark.parametrize("schema", [0, 2, "1", None, True])
def test_another_schema_is_a_clear_error(tmp_path, schema):
    path = tmp_path / "fair_bandits-paper.json"
    write_results(path, made())
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": schema}))
    with pytest.raises(ValueError, match=r"must have schema 1.*fair_bandits --scale paper`|schema"):
        read_results(path)


def test_a_missing_file_is_a_clear_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="make it anew with `workingpapers reproduce abc`"):
        read_results(tmp_path / "abc.json")


@pytest.mark.parametrize(
    "text", ["[]", "3", '{"schema": NaN}', "{}", 9999 * "[" + 9999 * "]", "\xff"]
)
def test_other_json_is_a_clear_error(tmp_path, text):
    (tmp_path / "abc.json").write_text(text)
    with pytest.raises(ValueError, match=r"abc\.json.*make it anew"):
        read_results(tmp_path / "abc.json")


BAD_CONTENT = [
    ({"slug": "Fair-Bandits"}, "slug"),
    ({"slug": "fair_bandits\n"}, "slug"),
    ({"source": "0" * 64 + "\n"}, "source"),
    ({"created": "2025-07-13T12:00:00Z\n"}, "created"),
    ({"scale": ""}, "scale"),
    ({"created": "2025-07-13 12:00"}, "created"),
    ({"created": "2025-07-13T12:00:00+02:00"}, "created"),
    ({"duration_s": -1}, "duration_s"),
    ({"duration_s": "1"}, "duration_s"),
    ({"versions": {"python": "3.11"}}, "numpy"),
    ({"machine": {"processor": "x"}}, "machine"),
    ({"machine": {**made().machine, "host": "laptop-of-ann"}}, "host"),
    ({"source": "abc"}, "source"),
    ({"experiments": {"e": {"columns": ["a"], "rows": [[1, 2]], "seeds": 1}}}, "1 cells"),
    ({"experiments": {"e": {"columns": ["a", "a"], "rows": [], "seeds": 1}}}, "columns"),
    ({"experiments": {"e": {"columns": ["a"], "rows": [[[1]]], "seeds": 1}}}, "rows"),
    ({"experiments": {"e": {"columns": ["a"], "rows": [], "seeds": 0}}}, "seeds"),
    ({"claims": [claim_record(), claim_record()]}, "different ids"),
    ({"claims": [claim_record(holds=1)]}, "holds"),
    ({"claims": [claim_record(extra=1)]}, "extra"),
    ({"claims": [claim_record(n=0)]}, "n"),
    ({"claims": [claim_record(low=0.3)]}, "'c' must have low at most high"),
    ({"claims": [claim_record(value=True)]}, "value"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_CONTENT)
def test_bad_content_is_refused_on_writing_and_on_reading(tmp_path, changes, message):
    path = tmp_path / "fair_bandits.json"
    write_results(path, made())
    good = path.read_text()
    with pytest.raises(ValueError, match=message):
        write_results(path, made(**changes))
    assert path.read_text() == good
    path.write_text(json.dumps({**json.loads(good), **changes}))
    with pytest.raises(ValueError, match=rf"fair_bandits\.json.*{message}.*make it anew"):
        read_results(path)


@pytest.mark.parametrize("number", [math.nan, math.inf, 10**400, np.int64(1)])
def test_numbers_must_be_finite_ones_of_python(tmp_path, number):
    path = tmp_path / "fair_bandits.json"
    experiments = {"e": {"columns": ["y"], "rows": [[0.5], [number]], "seeds": 1}}
    for changes, field in (
        ({"experiments": experiments}, r"\$\.experiments\.e\.rows\[1\]\[0\]"),
        ({"claims": [claim_record(value=number)]}, r"\$\.claims\[0\]\.value"),
        ({"duration_s": number}, r"\$\.duration_s"),
    ):
        with pytest.raises(ValueError, match=field):
            write_results(path, made(**changes))
    assert list(tmp_path.iterdir()) == []


def test_a_number_in_a_file_that_is_too_large_is_named(tmp_path):
    path = tmp_path / "fair_bandits.json"
    write_results(path, made())
    path.write_text(path.read_text().replace("1e-300", "1e999"))
    with pytest.raises(ValueError, match=r"fair_bandits\.json: \$\.experiments.*inf.*make it anew"):
        read_results(path)


@pytest.mark.parametrize(
    "name", ["modular_duality.json", "fair_bandits-paper.json", "fair_bandits.json.json"]
)
def test_a_file_under_the_name_of_another_is_refused(tmp_path, name):
    write_results(tmp_path / name, made())
    with pytest.raises(ValueError, match=r"must be called fair_bandits\.json, since it holds"):
        read_results(tmp_path / name)


def test_files_written_at_once_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "fair_bandits.json"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: write_results(path, made(duration_s=number)), range(40)))
    assert list(tmp_path.iterdir()) == [path]
    assert read_results(path).duration_s in range(40)


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, broken):
    path = tmp_path / "fair_bandits.json"
    write_results(path, made())

    def fail(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(*((os, "fsync") if broken == "fsync" else (Path, "replace")), fail)
    with pytest.raises(OSError, match="no space left"):
        write_results(path, made(duration_s=9.0))
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == [path]
    assert read_results(path) == made()


# --- fingerprints

SOURCE = '''"""The module's docstring,

on several lines."""
# a comment

import math


class Circle:
    """A circle."""

    def area(self, radius):
        """Return the area.

        # not code
        """
        text = """kept
# kept too

"""
        return math.pi * radius**2, text  # trailing
'''


def printed(text, tmp_path, name="circle.py"):
    (tmp_path / name).write_text(text)
    return fingerprint([tmp_path / name])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# a comment\n", ""),
        ("# a comment", "# another comment"),
        ("import math\n", "\n\n   \nimport math\n    # indented\n"),
        ("A circle.", "A round thing.\n\n    More.\n    "),
        ('    """A circle."""\n', ""),
        ("        # not code\n", ""),
        ("on several lines.", "on one line."),
        ("# trailing\n", "# trailing\n\n\n"),
    ],
)
def test_what_cannot_matter_does_not_change_the_fingerprint(tmp_path, old, new):
    assert old in SOURCE
    assert printed(SOURCE, tmp_path) == printed(SOURCE.replace(old, new), tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("radius**2", "radius**3"),
        ("kept\n", "Kept\n"),
        ("# kept too\n", ""),
        ("# kept too\n\n", "# kept too\n"),
        ("import math\n", "import math\nx = 1\n"),
    ],
)
def test_what_may_matter_changes_the_fingerprint(tmp_path, old, new):
    assert old in SOURCE
    assert printed(SOURCE, tmp_path) != printed(SOURCE.replace(old, new), tmp_path)


def test_code_on_the_line_of_a_docstring_counts(tmp_path):
    line = 'def f(): "doc"; return {}\n'
    assert printed(line.format(1), tmp_path) != printed(line.format(2), tmp_path)
    after = 'def f():\n    "doc"; return {}\n'
    assert printed(after.format(1), tmp_path) != printed(after.format(2), tmp_path)
    commented = 'def f():\n    "{}"  # noqa\n    return 1\n'
    assert printed(commented.format("a"), tmp_path) == printed(commented.format("b"), tmp_path)


def test_line_ends_and_the_last_one_do_not_count(tmp_path):
    path = tmp_path / "circle.py"
    prints = set()
    for text in (SOURCE, SOURCE.rstrip("\n"), SOURCE.replace("\n", "\r\n")):
        path.write_bytes(text.encode())
        prints.add(fingerprint([path]))
    assert len(prints) == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.lists(st.sampled_from(SOURCE.split("\n")), max_size=4), st.integers(0, 5))
def test_comments_and_blank_lines_anywhere_in_code_do_not_count(tmp_path, notes, place):
    code = ["x = [", "    1,", "    2,", "]", "y = x", "z = y"]
    notes = [f"# {note}" if note else "  " for note in notes]
    text = "\n".join(code[:place] + notes + code[place:])
    assert printed(text, tmp_path) == printed("\n".join(code), tmp_path)


def test_the_order_of_paths_and_the_place_of_the_tree_do_not_count(tmp_path):
    tree = tmp_path / "one" / "pkg"
    (tree / "sub").mkdir(parents=True)
    files = [tree / "a.py", tree / "sub" / "b.py"]
    for number, file in enumerate(files):
        file.write_text(f"x = {number}\n")
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"\0")
    whole = fingerprint([tree])
    assert whole == fingerprint(files) == fingerprint(files[::-1]) == fingerprint([*files, tree])
    shutil.copytree(tree, tmp_path / "two" / "deeper" / "pkg")
    assert fingerprint([tmp_path / "two" / "deeper" / "pkg"]) == whole
    files[0].rename(tree / "c.py")
    assert fingerprint([tree]) != whole


def test_swapped_contents_change_the_fingerprint(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "b.py").write_text("x = 2\n")
    before = fingerprint([tmp_path])
    (tmp_path / "a.py").write_text("x = 2\n")
    (tmp_path / "b.py").write_text("x = 1\n")
    assert fingerprint([tmp_path]) != before


def test_other_files_count_byte_by_byte(tmp_path):
    assert printed("# a\n", tmp_path, "a.toml") != printed("# b\n", tmp_path, "a.toml")


def test_bad_sources(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.py does not exist"):
        fingerprint([tmp_path / "absent.py"])
    with pytest.raises(ValueError, match="at least one file"):
        fingerprint([])
    with pytest.raises(ValueError, match="at least one file"):
        fingerprint([tmp_path])
    with pytest.raises(TypeError, match="single path"):
        fingerprint(tmp_path)
    bad = tmp_path / "bad.py"
    for text in ("def f(:\n", "x = (\n", 'x = """\n', "  x\n y\n", "x = '\0'\n"):
        bad.write_text(text)
        with pytest.raises(ValueError, match=r"bad\.py is not Python"):
            fingerprint([bad])
    for content in (b"x = '\xe9'\n", b"# coding: klingon\n"):
        bad.write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.py is not Python"):
            fingerprint([bad])


def test_sources_may_declare_their_encoding(tmp_path):
    code = "x = 'größe'\n"
    bom = b"\xef\xbb\xbf" + code.encode()
    latin = b"# coding: latin-1\n" + code.encode("latin-1")
    source = tmp_path / "circle.py"
    prints = set()
    for content in (code.encode(), bom, latin):
        source.write_bytes(content)
        prints.add(fingerprint([source]))
    assert len(prints) == 1


# --- the machine and the versions


def test_nothing_names_the_machine_or_its_user():
    found = machine()
    assert set(found) == {"processor", "cores", "memory_gib", "system"}
    assert found["cores"] >= 1 and found["memory_gib"] > 0
    text = json.dumps([found, versions()])
    assert str(Path.home()) not in text and os.uname().nodename not in text


def test_versions_are_those_in_use():
    found = versions()
    assert found["numpy"] == np.__version__ and found["pandas"] == pd.__version__
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))


def test_the_processor_is_read_where_linux_says_it(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Imaginary 9000 @ 2GHz\nflags\t: fpu\n")
    assert _processor(info) == "Imaginary 9000 @ 2GHz"
    info.write_text("Features: none\n")
    assert _processor(info) and _processor(tmp_path / "absent")


# --- claims


def mean_of_y(table):
    """Mean of y over the seeds.

    And more about it.
    """
    return mean_interval(table["y"])


def difference_of_y(a, b):
    return paired_difference(a["y"], b["y"])


def claim(**changes):
    parts = {
        "id": "small",
        "sentence": "It is small.",
        "paper": "Table 1: 0.5",
        "experiment": "e",
        "measure": mean_of_y,
        "at_most": 1.0,
    }
    return Claim(**{**parts, **changes})


TABLE = pd.DataFrame({"seed": range(4), "y": [1.0, 2.0, 3.0, 4.0]})


@pytest.mark.parametrize(
    ("at_least", "at_most", "holds"),
    [
        (1.0, None, True),
        (1.0000001, None, False),
        (None, 2.0, True),
        (None, 1.9999999, False),
        (1.0, 2.0, True),
        (1.5, 2.0, False),
        (1.0, 1.5, False),
        (-1.0, 3.0, True),
    ],
)
def test_a_claim_holds_only_if_the_whole_interval_does(at_least, at_most, holds):
    estimate = Estimate(1.5, 1.0, 2.0, n=3)
    found = claim(at_least=at_least, at_most=at_most, measure=lambda _: estimate)
    assert evaluate([found], {"e": TABLE})[0]["holds"] is holds


def test_records_of_claims():
    two = claim(
        id="pair",
        experiment=("e", "f"),
        measure=difference_of_y,
        at_least=-1,
        at_most=0.25,
        note="why",
    )
    first, second = evaluate([claim(), two], {"e": TABLE, "f": TABLE + 1})
    expected = mean_interval(TABLE["y"])
    assert first == {
        "id": "small",
        "sentence": "It is small.",
        "paper": "Table 1: 0.5",
        "metric": "Mean of y over the seeds",
        "value": 2.5,
        "low": expected.low,
        "high": expected.high,
        "n": 4,
        "threshold": "≤ 1",
        "holds": False,
        "note": "",
    }
    assert second["threshold"] == "≥ -1 and ≤ 0.25" and second["metric"] == "difference of y"
    assert second["value"] == -1.0 and second["holds"] is True and second["note"] == "why"
    write = made(claims=[first, second])
    assert json.loads(json.dumps(write.claims)) == [first, second]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"at_most": None}, ValueError, "needs at_least or at_most"),
        ({"at_most": float("nan")}, ValueError, "at_most must be a finite number"),
        ({"at_least": float("inf")}, ValueError, "at_least must be a finite number"),
        ({"at_most": "1"}, ValueError, "at_most must be a finite number"),
        ({"at_most": True}, ValueError, "at_most must be a finite number"),
        ({"at_least": 2.0}, ValueError, "at_least must not be above at_most"),
        ({"id": " "}, ValueError, "id must be a text"),
        ({"sentence": ""}, ValueError, "sentence must be a text"),
        ({"paper": None}, ValueError, "paper must be a text"),
        ({"note": None}, TypeError, "note must be a text"),
        ({"experiment": ""}, TypeError, "experiment must be a name"),
        ({"experiment": None}, TypeError, "experiment must be a name"),
        ({"experiment": iter(["e"])}, TypeError, "experiment must be a name"),
        ({"at_most": 10**400}, ValueError, "at_most must be a finite number"),
        ({"experiment": ()}, TypeError, "experiment must be a name"),
        ({"experiment": (1,)}, TypeError, "experiment must be a name"),
        ({"measure": "mean"}, TypeError, "measure must be a function"),
    ],
)
def test_bad_claims(changes, error, message):
    with pytest.raises(error, match=message):
        claim(**changes)


def quiet(table):
    """..."""


def test_a_metric_is_never_empty():
    assert claim(measure=quiet).metric == "quiet"
    assert claim(measure=lambda table: 0).metric == "<lambda>"


def test_claims_may_come_from_a_generator():
    (record,) = evaluate((one for one in [claim()]), {"e": TABLE})
    assert record["id"] == "small"


def test_bad_evaluations():
    with pytest.raises(ValueError, match="'small' twice"):
        evaluate([claim(), claim()], {"e": TABLE})
    with pytest.raises(ValueError, match=r"'f'; there are \['e'\]"):
        evaluate([claim(experiment="f")], {"e": TABLE})
    with pytest.raises(TypeError, match="must hold Claims"):
        evaluate([{"id": "x"}], {"e": TABLE})
    with pytest.raises(TypeError, match="must return an Estimate; got 3"):
        evaluate([claim(measure=lambda table: 3)], {"e": TABLE})
    with pytest.raises(ValueError, match=r"level must be 0\.95; got 0\.9"):
        evaluate([claim(measure=lambda table: mean_interval(table["y"], 0.9))], {"e": TABLE})
    with pytest.raises(KeyError) as caught:
        evaluate([claim(measure=lambda table: table["z"])], {"e": TABLE})
    assert "'small'" in caught.value.__notes__[0]


def test_check_prints_or_fails(capsys):
    check(np.bool_(True), "water is wet")
    assert capsys.readouterr().out == "claim holds: water is wet\n"
    with pytest.raises(AssertionError, match="claim does not hold: fire is cold"):
        check(False, "fire is cold")
    for holds, sentence in ((1, "x"), (None, "x"), (True, 3)):
        with pytest.raises(TypeError, match="must be"):
            check(holds, sentence)


# --- from a benchmark to its file


def throw(seed, bias, log=None):
    """Throw a coin 50 times."""
    if log is not None:
        with Path(log).open("a") as file:
            file.write(f"{seed}\n")
    return {"heads": np.random.default_rng(seed).binomial(50, bias)}


def heads_of_biased(table):
    """Heads of 50 throws of the biased coin."""
    return mean_interval(table.query("bias == 0.9")["heads"])


def heads_of_fair(table):
    """Heads of 50 throws of the fair coin."""
    return mean_interval(table.query("bias == 0.5")["heads"])


def benchmark(log=None, **changes):
    def plan(scale, device):
        cases = product(bias=[0.5, 0.9], log=[log])
        return [
            Experiment("coins", throw, cases, seeds=6 if scale == "laptop" else 12),
            Experiment("one-coin", throw, [{"bias": 0.5, "log": log}], seeds=3),
        ]

    claims = [
        claim(id="biased", experiment="coins", measure=heads_of_biased, at_least=40, at_most=None),
        claim(id="fair", experiment="coins", measure=heads_of_fair, at_least=40, at_most=None),
    ]
    parts = {"SCALES": ("laptop", "paper"), "DEVICES": ("cpu",), "plan": plan, "CLAIMS": claims}
    return SimpleNamespace(**{**parts, **changes})


@pytest.fixture
def place(tmp_path):
    source = tmp_path / "coins.py"
    source.write_text("p = 0.5\n")
    return {
        "folder": tmp_path / "results",
        "sources": [source],
        "command": "workingpapers reproduce coins",
        "jobs": 1,
        "progress": False,
    }


def test_a_benchmark_becomes_a_result_file(place):
    path = reproduce(benchmark(), "coins", **place)
    assert path == place["folder"] / "coins.json"
    assert list(place["folder"].iterdir()) == [path]
    results = read_results(path)
    assert (results.slug, results.scale, results.command) == ("coins", "laptop", place["command"])
    assert results.source == fingerprint(place["sources"])
    assert [record["holds"] for record in results.claims] == [True, False]
    assert {name: e["seeds"] for name, e in results.experiments.items()} == {
        "coins": 6,
        "one-coin": 3,
    }
    expected = [throw(seed, bias)["heads"] for bias in (0.5, 0.9) for seed in range(6)]
    assert list(results.table("coins")["heads"]) == expected


def test_a_scale_may_have_claims_of_its_own(place):
    first, second = benchmark().CLAIMS
    given = benchmark(CLAIMS={"laptop": [first], "paper": [second]})
    for scale, expected in (("laptop", "biased"), ("paper", "fair")):
        results = read_results(reproduce(given, "coins", scale=scale, **place))
        assert [record["id"] for record in results.claims] == [expected]


def test_other_scales_and_numbers_of_seeds(place):
    path = reproduce(benchmark(), "coins", scale="paper", seeds=4, **place)
    assert path.name == "coins-paper.json"
    results = read_results(path)
    assert results.scale == "paper"
    assert all(e["seeds"] == 4 for e in results.experiments.values())
    assert len(results.table("coins")) == 8


def test_a_dry_run_makes_two_runs_of_each_and_writes_nothing(place, tmp_path):
    log = tmp_path / "log"
    assert reproduce(benchmark(str(log)), "coins", dry_run=True, **place) is None
    assert log.read_text().split() == ["0", "0", "0", "1"]
    assert not place["folder"].exists()


def failing_measure(table):
    raise ArithmeticError("a mistake in the measure")


def test_an_interrupted_reproduction_goes_on(place, tmp_path):
    log = tmp_path / "log"
    broken = [claim(experiment="coins", measure=failing_measure)]
    with pytest.raises(ArithmeticError):
        reproduce(benchmark(str(log), CLAIMS=broken), "coins", **place)
    names = {path.name for path in place["folder"].iterdir()}
    assert names == {
        "coins-laptop.coins.partial.jsonl",
        "coins-laptop.one-coin.partial.jsonl",
    }
    made_before = log.read_text()
    path = reproduce(benchmark(str(log)), "coins", **place)
    assert log.read_text() == made_before
    assert list(place["folder"].iterdir()) == [path]


@pytest.mark.parametrize("first_line", [b"", b"\n", b'{"store": 1, "experiment": "co', b"[1]\n"])
def test_a_file_of_runs_without_a_whole_header_is_begun_anew(place, capsys, first_line):
    place["folder"].mkdir()
    (place["folder"] / "coins-laptop.coins.partial.jsonl").write_bytes(first_line)
    path = reproduce(benchmark(), "coins", **place)
    assert list(place["folder"].iterdir()) == [path]
    assert "coins-laptop.coins.partial.jsonl: not left by" in capsys.readouterr().out


def test_two_reproductions_at_once(place):
    def heads(table):
        """Heads, counted while another reproduction ends."""
        for store in place["folder"].glob("*.jsonl"):
            store.unlink()
        return mean_interval(table["heads"])

    path = reproduce(benchmark(CLAIMS=[claim(experiment="coins", measure=heads)]), "coins", **place)
    assert read_results(path).claims[0]["metric"].startswith("Heads")


def test_numpy_integers_and_generators_reach_the_file(place):
    given = benchmark()
    given.CLAIMS = (one for one in given.CLAIMS)
    results = read_results(reproduce(given, "coins", seeds=np.int64(2), **place))
    assert [record["id"] for record in results.claims] == ["biased", "fair"]
    assert results.experiments["coins"]["seeds"] == 2


@pytest.mark.parametrize("change", ["source", "device", "versions"])
def test_runs_left_by_something_else_are_made_again(place, tmp_path, capsys, monkeypatch, change):
    log = tmp_path / "log"
    broken = [claim(experiment="coins", measure=failing_measure)]
    devices = ("cpu", "cuda")
    with pytest.raises(ArithmeticError):
        reproduce(benchmark(str(log), CLAIMS=broken, DEVICES=devices), "coins", **place)
    once = log.read_text()
    if change == "source":
        place["sources"][0].write_text("p = 0.6\n")
    if change == "versions":
        older = {**versions(), "numpy": "1.0"}
        monkeypatch.setattr("workingpapers.lab.reproduction.versions", lambda: older)
    device = "cuda" if change == "device" else "cpu"
    reproduce(benchmark(str(log), DEVICES=devices), "coins", device=device, **place)
    assert log.read_text() == 2 * once
    notices = capsys.readouterr().out.splitlines()
    assert len(notices) == 2 and "starting anew" in notices[0]


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({}, {"scale": "huge"}, r"scale must be one of \['laptop', 'paper'\]; got 'huge'"),
        ({}, {"device": "tpu"}, r"device must be one of \['cpu'\]; got 'tpu'"),
        ({}, {"seeds": 0}, "seeds must be at least 1"),
        ({}, {"jobs": 0}, "jobs must be at least 1"),
        ({"plan": lambda scale, device: []}, {}, "different names"),
        (
            {"plan": lambda scale, device: 2 * [Experiment("a", throw, [{"bias": 0.5}], 1)]},
            {},
            "different names",
        ),
        ({"CLAIMS": [claim(experiment="dice")]}, {}, "'dice'"),
        ({"CLAIMS": {"paper": []}}, {}, r"CLAIMS must hold the scale 'laptop'; it holds \['paper"),
        ({"SCALES": "laptop"}, {"scale": "lap"}, "SCALES must be a tuple of str; got 'laptop'"),
        ({"DEVICES": "cpu"}, {}, "DEVICES must be a tuple of str; got 'cpu'"),
        ({}, {"command": ""}, r"\$\.command"),
        ({}, {"command": None}, r"\$\.command"),
    ],
)
def test_bad_reproductions_are_refused_before_any_run(place, tmp_path, changes, arguments, message):
    log = tmp_path / "log"
    with pytest.raises((TypeError, ValueError), match=message):
        reproduce(benchmark(str(log), **changes), "coins", **{**place, **arguments})
    assert not log.exists()


def test_what_a_benchmark_must_define(place):
    with pytest.raises(ValueError, match=r"must define \['CLAIMS', 'DEVICES', 'SCALES'\]"):
        reproduce(SimpleNamespace(plan=None), "coins", **place)
    for slug in ("Coins-2", None):
        with pytest.raises(ValueError, match=f"snake_case; got {slug!r}"):
            reproduce(benchmark(), slug, **place)
