"""The command line, and what only it uses: the checkout, the machine, a new chapter's files."""

import ast
import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import workingpapers
from workingpapers import cli, course, data, lab, project, readiness, skeleton
from workingpapers.course import exercises

BENCHMARK = '''
"""A coin that is thrown ten times."""

from workingpapers.lab import Claim, Experiment, mean_interval, spawn_generators

SCALES = ("laptop",)
DEVICES = ("cpu",)


def throw(seed, bias):
    generator, = spawn_generators(seed, 1)
    return {"heads": float(generator.binomial(10, bias))}


def heads(throws):
    return mean_interval(throws["heads"])


def plan(scale, device):
    return [Experiment("coin", throw, [{"bias": 0.9}], seeds=20)]


CLAIMS = [
    Claim("many", "the coin falls on its head", "Table 1", "coin", heads, at_least=5),
    Claim("few", "the coin falls on its tail", "Table 2", "coin", heads, at_most=5),
]
'''


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def run(*arguments):
    return CliRunner().invoke(cli.app, list(arguments))


def assert_fails(result, code, *words):
    """One line on standard error, nothing else, and the exit code that goes with it."""
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


def tree(folder):
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def checkout(monkeypatch, tmp_path):
    """A checkout of a small book with two papers; it is where the package seems to be."""
    root = tmp_path / "checkout"
    package = root / "src" / "workingpapers"
    write(package / "tossing" / "__init__.py", '"""Tossing a coin.\n\nMore about it.\n"""\n')
    write(package / "an_urn" / "__init__.py", '"""Drawing from an urn"""\n')
    write(package / "control" / "__init__.py", '"""Not a paper."""\n')
    write(root / "benchmarks" / "tossing.py", BENCHMARK)
    write(root / "book" / "tossing.ipynb", nbformat.writes(nbformat.v4.new_notebook()))
    write(root / "pyproject.toml", '[project]\nrequires-python = ">=3.11"\ndependencies = []\n')
    chapters = "chapters: [{file: tossing, sections: [{file: exercises/tossing}]}]"
    write(root / "_toc.yml", f"root: index\nparts: [{{caption: I, {chapters}}}]\n")
    monkeypatch.setattr(workingpapers, "__path__", [str(package)])
    monkeypatch.setattr(project, "__file__", str(package / "project.py"))
    return root


# --- the checkout and its papers


def test_the_root_is_where_the_package_is_and_else_above_the_current_folder(
    checkout, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    assert project.root() == checkout
    monkeypatch.setattr(project, "__file__", str(tmp_path / "lib" / "workingpapers" / "x.py"))
    monkeypatch.chdir(checkout / "book")
    assert project.root() == checkout
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="needs a checkout"):
        project.root()


@pytest.mark.parametrize("missing", ["_toc.yml", "pyproject.toml", "book"])
def test_a_folder_without_one_of_the_three_is_no_checkout(checkout, monkeypatch, missing):
    monkeypatch.chdir(checkout)
    (checkout / missing).rename(checkout / "elsewhere")
    with pytest.raises(FileNotFoundError):
        project.root()


def test_papers_come_in_reading_order_and_unlisted_ones_last(checkout):
    assert project.papers() == ["tossing", "an_urn"]
    (checkout / "_toc.yml").write_text("root: index\nchapters: [{file: an_urn}, {file: gone}]\n")
    assert project.papers() == ["an_urn", "tossing"]
    (checkout / "_toc.yml").unlink()
    assert project.papers() == ["an_urn", "tossing"]


def test_the_real_book_is_consistent():
    assert (project.root() / "src" / "workingpapers" / "cli.py").samefile(cli.__file__)
    assert "fair_bandits" in project.papers()
    assert not project.GROUND_FLOOR & set(project.papers())


def test_a_title_is_read_without_running_the_package(checkout):
    write(project.rooms("tossing")["package"] / "__init__.py", '"""Heads."""\nraise SystemExit\n')
    assert project.title("tossing") == "Heads"
    assert project.title("an_urn") == "Drawing from an urn"
    write(project.rooms("an_urn")["package"] / "__init__.py", "")
    with pytest.raises(ValueError, match="must begin with a docstring"):
        project.title("an_urn")


def test_an_unknown_chapter_lists_the_known_and_guesses(checkout):
    with pytest.raises(ValueError, match=r"did you mean 'tossing'.*tossing, an_urn"):
        project.check_slug("tosing")
    with pytest.raises(ValueError, match="'zzz'; there is: tossing, an_urn"):
        project.check_slug("zzz")
    for bad in (None, 3, ["tossing"]):
        with pytest.raises(TypeError, match="named by a string"):
            project.check_slug(bad)


@given(st.text())
def test_every_name_is_a_known_paper_or_refused(name):
    try:
        assert project.check_slug(name) in project.papers()
    except ValueError as error:
        assert repr(name) in str(error)


# --- every command


COMMANDS = [
    ["list"],
    ["open"],
    ["execute"],
    ["reproduce"],
    ["check"],
    ["new"],
    ["spoofing-test"],
    ["data", "list"],
    ["data", "fetch"],
    ["data", "path"],
    ["course", "make"],
    ["course", "check"],
    ["course", "grade"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_an_example_that_names_the_command(command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    example = result.stdout.split("Example: ")[1]
    assert f"workingpapers {' '.join(command)}" in example


def test_every_command_is_in_the_list_above():
    shown = [
        line.split()[0] for line in run("--help").stdout.split("Commands:")[1].splitlines()[1:]
    ]
    assert set(shown) == {command[0] for command in COMMANDS}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["Missing command"]),
        (["data"], ["Missing command", "data --help"]),
        (["nosuch"], ["nosuch"]),
        (["--nosuch"], ["--nosuch"]),
        (["list", "extra"], ["extra"]),
        (["open"], ["CH"]),
        (["open", "tosing"], ["did you mean 'tossing'"]),
        (["execute", ""], ["no notebook is called ''"]),
        (["execute", "an_urn"], ["no notebook is called 'an_urn'; there is: tossing"]),
        (["reproduce", "control"], ["there is: tossing, an_urn"]),
        (["reproduce", "../tossing"], ["there is"]),
        (["reproduce", "tossing", "--device", "tpu"], ["cpu", "cuda"]),
        (["reproduce", "tossing", "--seeds", "0"], ["--seeds"]),
        (["reproduce", "tossing", "--seeds", "nan"], ["--seeds"]),
        (["reproduce", "tossing", "--jobs", "-1"], ["--jobs"]),
        (["reproduce", "tossing", "--jobs", "1.5"], ["--jobs"]),
        (["data", "fetch", "etth"], ["there is: ", "etth1"]),
        (["data", "path"], ["NAME"]),
        (["course", "make"], ["CH"]),
        (["course", "make", "tossing", "urn"], ["no chapter is called 'urn'"]),
        (["course", "check", "urn"], ["no chapter is called 'urn'"]),
        (["spoofing-test"], ["TEXT"]),
        (["spoofing-test", "_toc.yml", "--reference", "_toc.yml"], ["--key"]),
        (["spoofing-test", "_toc.yml", "--key", "1"], ["--reference"]),
        (["spoofing-test", "gone.txt", "--key", "1", "--reference", "gone.txt"], ["gone.txt"]),
        (["spoofing-test", "--key", "-1"], ["--key"]),
        (["spoofing-test", "--key", "1", "--scheme", "synthid"], ["lefthash", "kth"]),
        (["new", "coin"], ["--title"]),
        (["new", "Coin", "--title", "A coin"], ["snake_case"]),
        (["new", "a-coin", "--title", "A coin"], ["snake_case"]),
        (["new", "_coin", "--title", "A coin"], ["snake_case"]),
        (["new", "coin_", "--title", "A coin"], ["snake_case"]),
        (["new", "1coin", "--title", "A coin"], ["snake_case"]),
        (["new", "münze", "--title", "A coin"], ["snake_case"]),
        (["new", "../coin", "--title", "A coin"], ["snake_case"]),
        (["new", "lambda", "--title", "A coin"], ["snake_case"]),
        (["new", "tossing", "--title", "A coin"], ["taken"]),
        (["new", "language", "--title", "A coin"], ["taken"]),
        (["new", "coin", "--title", " "], ["1 to 80"]),
        (["new", "coin", "--title", "x" * 81], ["1 to 80"]),
        (["new", "coin", "--title", "two\nlines"], ["1 to 80"]),
        (["new", "coin", "--title", 'a "coin"'], ["quote"]),
        (["new", "coin", "--title", "a \\coin"], ["backslash"]),
    ],
    ids=" ".join,
)
def test_wrong_use_is_one_line_code_2_and_writes_nothing(checkout, arguments, words):
    before = tree(checkout)
    assert_fails(run(*arguments), 2, *words)
    assert tree(checkout) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["open", "tossing"], ["make book"]),
        (["reproduce", "an_urn"], ["no claims to measure"]),
        (["reproduce", "tossing", "--scale", "paper"], ["scale must be one of ['laptop']"]),
        (["reproduce", "tossing", "--device", "cuda"], ["cpu"]),
        (["data", "path", "etth1"], ["workingpapers data fetch etth1"]),
    ],
    ids=" ".join,
)
def test_a_failure_is_one_line_code_1_and_writes_nothing(
    checkout, monkeypatch, tmp_path, arguments, words
):
    monkeypatch.setenv("WORKINGPAPERS_DATA", str(tmp_path))
    before = tree(checkout)
    assert_fails(run(*arguments), 1, *words)
    assert tree(checkout) == before


def test_commands_without_a_checkout_say_so(checkout, monkeypatch):
    (checkout / "_toc.yml").unlink()
    monkeypatch.chdir(checkout)
    for arguments in (["check"], ["open", "tossing"], ["reproduce", "tossing"]):
        assert_fails(run(*arguments), 1, "needs a checkout")
    assert "Tossing a coin" in run("list").stdout


def test_ctrl_c_is_code_130(checkout, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(lab, "reproduce", interrupted)
    assert_fails(run("reproduce", "tossing"), 130, "interrupted")


def test_an_error_in_the_code_itself_is_not_hidden(checkout):
    write(checkout / "benchmarks" / "tossing.py", "1 + 'one'\n")
    assert isinstance(run("reproduce", "tossing").exception, TypeError)


def test_the_installed_command():
    program = Path(sys.executable).with_name("workingpapers")
    fine = subprocess.run([program, "list"], capture_output=True, text=True)
    assert (fine.returncode, fine.stderr) == (0, "") and "fair_bandits" in fine.stdout
    wrong = subprocess.run([program, "open", "fair_bandit"], capture_output=True, text=True)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("error: ") and wrong.stderr.count("\n") == 1
    assert "did you mean 'fair_bandits'" in wrong.stderr


def test_list_names_the_chapters_in_reading_order(checkout):
    head, *rows = run("list").stdout.splitlines()
    assert head.split() == ["chapter", "title"]
    assert rows == ["tossing  Tossing a coin", "an_urn   Drawing from an urn"]


def test_open_shows_the_built_page(checkout, monkeypatch):
    page = write(checkout / "_build" / "html" / "tossing.html", "<p>heads</p>")
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: not opened.append(url))
    assert run("open", "tossing").exit_code == 0
    assert opened == [page.as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda url: False)
    assert_fails(run("open", "tossing"), 1, "no web browser", str(page))


def test_execute_stores_outputs_and_leaves_a_failing_notebook_alone(checkout):
    notebook = checkout / "book" / "tossing.ipynb"
    cells = [nbformat.v4.new_code_cell("print(6 * 7)")]
    write(notebook, nbformat.writes(nbformat.v4.new_notebook(cells=cells)))
    assert run("execute", "tossing").stdout == "executed: book/tossing.ipynb\n"
    assert nbformat.read(notebook, 4).cells[0].outputs[0].text == "42\n"
    cells = [nbformat.v4.new_code_cell("1 / 0")]
    write(notebook, nbformat.writes(nbformat.v4.new_notebook(cells=cells)))
    before = tree(checkout)
    assert_fails(run("execute", "tossing"), 1, "tossing.ipynb", "ZeroDivisionError")
    assert tree(checkout) == before


def test_reproduce_measures_the_claims_and_shows_each_verdict(checkout):
    result = run("reproduce", "tossing", "--seeds", "30", "--jobs", "1")
    assert result.exit_code == 0, result.stderr
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line}
    assert "  holds  " in rows["many"] and "  does not hold  " in rows["few"]
    assert rows["many"].endswith("the coin falls on its head")
    assert rows["many"].index("holds") == rows["few"].index("does not hold")
    assert "make execute CH=tossing" in rows["Next:"]
    written = json.loads((checkout / "benchmarks" / "results" / "tossing.json").read_text())
    assert written["command"] == "workingpapers reproduce tossing --scale laptop --seeds 30"
    claim = written["claims"][0]
    assert f"{claim['value']:.4g} [{claim['low']:.4g}, {claim['high']:.4g}]" in rows["many"]


def test_reproduce_dry_run_writes_nothing(checkout):
    before = tree(checkout)
    result = run("reproduce", "tossing", "--dry-run", "--jobs", "1")
    assert result.exit_code == 0 and "Nothing was written" in result.stdout
    assert {file for file in tree(checkout) if file.suffix != ".pyc"} == set(before)


def test_a_run_that_fails_is_reported_with_its_own_traceback(checkout):
    broken = BENCHMARK.replace("generator, =", "generator = 1 / 0;")
    write(checkout / "benchmarks" / "tossing.py", broken)
    result = run("reproduce", "tossing", "--jobs", "1")
    assert (result.exit_code, result.stdout) == (1, "")
    message, *trace = result.stderr.split("error: ", 1)[1].splitlines()  # after the progress bar
    assert "coin" in message and "seed 0" in message
    assert any("generator = 1 / 0" in line for line in trace)


def test_reproduce_sends_functions_to_other_processes(checkout):
    assert run("reproduce", "tossing", "--seeds", "4", "--jobs", "2").exit_code == 0


def test_data_list_and_path(monkeypatch, tmp_path):
    shown = run("data", "list").stdout
    for entry in data.list_datasets():
        assert entry.name in shown and entry.licence in shown and entry.source in shown
    for offline in (None, "a generator of ours"):
        entry = dataclasses.replace(data.get("etth1"), offline=offline)
        monkeypatch.setattr(data.registry, "DATASETS", (entry,))
        shown = run("data", "list").stdout
        assert f"without it: {offline}" in shown if offline else "without it" not in shown
    file = tmp_path / "file.csv"
    monkeypatch.setattr(data, "path", lambda name: file)
    assert run("data", "path", "etth1").stdout == f"{file}\n"
    monkeypatch.setattr(data, "fetch", lambda name: file)
    assert run("data", "fetch", "etth1").stdout.splitlines()[-1] == str(file)


def test_course_make_check_and_grade_say_what_came_of_it(checkout, monkeypatch, tmp_path):
    asked = []
    points = pd.DataFrame({"student": ["ada"], "exercise": ["ex1"], "points": [2.0]})
    report = course.Report(problems=[], table=points)
    monkeypatch.setattr(
        course, "make", lambda slugs, output: asked.append((slugs, output)) or output
    )
    monkeypatch.setattr(course, "check", lambda slugs: asked.append(slugs) or report)
    monkeypatch.setattr(course, "grade", lambda folder: asked.append(folder) or points)
    assert f"Made: {tmp_path}" in run("course", "make", "tossing", "--output", str(tmp_path)).stdout
    assert "ada" in run("course", "check", "tossing", "an_urn").stdout
    assert "grades.csv" in run("course", "grade", str(tmp_path)).stdout
    assert asked == [(["tossing"], tmp_path), ["tossing", "an_urn"], tmp_path]
    report.problems.append("exercise 3 gives points for nothing")
    result = run("course", "check", "tossing")
    assert result.exit_code == 1 and "problem: exercise 3 gives points" in result.stdout
    assert result.stderr == "error: the exercises have problems: 1, listed above\n"


def test_grading_what_is_no_course_is_a_failure(tmp_path):
    assert_fails(run("course", "grade", str(tmp_path)), 1, "is not a course")


@pytest.mark.parametrize(
    "arguments", [["make", "fair_bandits"], ["check", "fair_bandits"], ["grade", "course"]]
)
def test_course_without_nbgrader_names_the_extra(monkeypatch, arguments):
    monkeypatch.delattr(workingpapers, "course")
    for name in list(sys.modules):
        if name.split(".")[0] == "nbgrader":
            monkeypatch.setitem(sys.modules, name, None)
        if name.startswith("workingpapers.course"):
            monkeypatch.delitem(sys.modules, name)
    result = run("course", *arguments)
    assert_fails(result, 1, "nbgrader", 'pip install "workingpapers[course]"')


# --- the spoofing test


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Files: a reference, and texts that a model wrote with and without a watermark."""
    from workingpapers import language, watermark_spoofing

    folder = tmp_path_factory.mktemp("written")
    reference = "\n\n".join(language.king_james_bible().texts[:60])
    write(folder / "reference.txt", reference)
    texts = language.read_corpus(folder / "reference.txt").texts
    tokenizer = language.train_tokenizer(texts, 512)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokens = language.encode(tokenizer, texts)
    model = language.NGramLM.fit(tokens, 512)
    scheme = watermark_spoofing.KGW(7, 512, seeding="self")
    rng = np.random.default_rng(0)
    for name, marks in (
        ("marked", [watermark_spoofing.processor(scheme, 3)]),
        ("again", [watermark_spoofing.processor(scheme, 3)]),
        ("plain", []),
    ):
        (text,) = language.generate(model, [tokens[0][:3]], 600, rng, marks)
        write(folder / f"{name}.txt", tokenizer.decode(text.tolist()))
    return folder


def spoofing_test(folder, *arguments):
    files = [str(folder / word) if (folder / word).is_file() else word for word in arguments]
    return run("spoofing-test", *files, "--reference", str(folder / "reference.txt"))


def test_the_spoofing_test_reports_what_the_package_finds(written):
    from workingpapers import language, watermark_spoofing

    options = ["--key", "7", "--vocab-size", "512"]
    result = spoofing_test(written, "marked.txt", *options, "--reprompted", "again.txt")
    assert result.exit_code == 0, result.stderr
    tokenizer = language.train_tokenizer(language.read_corpus(written / "reference.txt").texts, 512)
    marked, again = (
        language.encode(tokenizer, [(written / f"{name}.txt").read_text()])
        for name in ("marked", "again")
    )
    ordinary = language.encode(tokenizer, language.read_corpus(written / "reference.txt").texts)
    counts = watermark_spoofing.NGramCounts.from_texts(ordinary, 3, 512)
    scheme = watermark_spoofing.KGW(7, 512, seeding="self")
    report = watermark_spoofing.examine(marked, scheme, counts, "reprompting", again)
    head, *rest = result.stdout.splitlines()
    assert "trained on" in head and "512" in head
    assert "\n".join(rest) == str(report) and "SelfHash" in str(report)
    saved = spoofing_test(
        written, "marked.txt", "--key", "7", "--tokenizer", "tokenizer.json",
        "--reprompted", "again.txt",
    )  # fmt: skip
    assert saved.stdout.splitlines()[1:] == rest and "tokenizer.json" in saved.stdout


def test_the_key_of_the_spoofing_test_may_come_from_the_environment(written, monkeypatch):
    expected = spoofing_test(written, "marked.txt", "--key", "7", "--vocab-size", "512")
    monkeypatch.setenv("WORKINGPAPERS_KEY", "7")
    found = spoofing_test(written, "marked.txt", "--vocab-size", "512")
    assert found.exit_code == 0 and found.stdout == expected.stdout


def test_the_spoofing_test_stops_where_there_is_no_watermark(written):
    for text, key in (("plain.txt", "7"), ("marked.txt", "8")):
        result = spoofing_test(written, text, "--key", key, "--vocab-size", "512")
        assert result.exit_code == 0 and "verdict: not watermarked" in result.stdout


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (["--scheme", "lefthash", "--gamma", "0.5"], "LeftHash h=1"),
        (["--scheme", "sumhash"], "SumHash h=2"),
        (["--scheme", "selfhash", "--width", "2"], "SelfHash h=2"),
        (["--scheme", "aaronson", "--width", "4"], "AAR h=4"),
        (["--scheme", "kth", "--length", "64"], "KTH n=64"),
    ],
)
def test_each_watermark_can_be_asked_for(written, options, name):
    result = spoofing_test(
        written, "plain.txt", "--key", "3", "--tokenizer", "tokenizer.json", *options
    )
    assert result.exit_code == 0, result.stderr
    assert name in result.stdout


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--length", "9"], 2, ["--length means nothing for selfhash"]),
        (["--scheme", "kth", "--gamma", "0.5"], 2, ["--gamma means nothing for kth"]),
        (["--scheme", "lefthash", "--width", "2"], 2, ["--width means nothing for lefthash"]),
        (["--gamma", "1.5"], 1, ["gamma"]),
        (["--gamma", "nan"], 1, ["gamma"]),
        (["--alpha", "0"], 1, ["alpha"]),
        (["--tokenizer", "plain.txt"], 1, ["plain.txt is not a tokenizer.json"]),
        (["--reprompted", "marked.txt"], 1, ["reprompted must not hold copies"]),
        (["--vocab-size", "512"], 2, ["--vocab-size means nothing with --tokenizer"]),
    ],
)
def test_wrong_options_of_the_spoofing_test_are_one_line(written, options, code, words):
    used = [] if "--tokenizer" in options else ["--tokenizer", "tokenizer.json"]
    assert_fails(spoofing_test(written, "marked.txt", "--key", "7", *used, *options), code, *words)


def test_a_text_that_is_no_text_is_named(written):
    (written / "bytes.bin").write_bytes(b"\xff\xfe\xff")
    result = spoofing_test(written, "bytes.bin", "--key", "7", "--tokenizer", "tokenizer.json")
    assert_fails(result, 1, "bytes.bin must be UTF-8 text")
    write(written / "empty.txt", "\n")
    result = spoofing_test(written, "empty.txt", "--key", "7", "--tokenizer", "tokenizer.json")
    assert_fails(result, 1, "empty.txt must hold text")


# --- this machine


def machine(root, **fields):
    lines = [f"{name.replace('_', '-')} = {json.dumps(value)}" for name, value in fields.items()]
    write(root / "pyproject.toml", "[project]\n" + "\n".join(lines) + "\n")
    return {finding.name: finding for finding in readiness.examine(root)}


@pytest.mark.parametrize(
    ("requirement", "verdict", "found"),
    [
        (f"psutil>={psutil.__version__}", "ok", psutil.__version__),
        ("psutil>=999", "too old", psutil.__version__),
        ("psutil<1", "too new", psutil.__version__),
        ("psutil>=1,<2", "too new", psutil.__version__),
        ("psutil", "ok", psutil.__version__),
        ("no-such-library-at-all>=1", "missing", "-"),
    ],
)
def test_libraries_are_held_against_their_ranges(tmp_path, requirement, verdict, found):
    name = requirement.split(">")[0].split("<")[0]
    findings = machine(tmp_path, requires_python=">=3.11", dependencies=[requirement])
    assert findings[name] == readiness.Finding(name, found, verdict, "everything", True)


@pytest.mark.parametrize(
    ("wanted", "verdict"), [(">=3.11", "ok"), (">=4", "too old"), ("<3", "too new")]
)
def test_python_is_held_against_its_range(tmp_path, wanted, verdict):
    finding = machine(tmp_path, requires_python=wanted, dependencies=[])["Python"]
    assert (finding.verdict, finding.required) == (verdict, True)


def test_only_what_is_required_makes_check_fail(checkout):
    text = '[project]\nrequires-python = ">=3.11"\ndependencies = {}\n'
    extra = '[project.optional-dependencies]\nbook = ["no-such-library-at-all"]\n'
    write(checkout / "pyproject.toml", text.format("[]") + extra)
    result = run("check")
    assert result.exit_code == 0 and "missing  building the book" in result.stdout
    write(checkout / "pyproject.toml", text.format('["no-such-library-at-all"]'))
    result = run("check")
    assert result.exit_code == 1 and "no-such-library-at-all" in result.stderr


def program(folder, name, prints, code=0):
    file = write(folder / name, f"#!/bin/sh\necho '{prints}'\nexit {code}\n")
    file.chmod(0o755)


def test_gpu_and_browser_are_what_their_programs_say(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(readiness.importlib.util, "find_spec", lambda name: None)
    bare = machine(tmp_path, requires_python=">=3", dependencies=[])
    assert {bare[name].verdict for name in ("GPU", "chromium", "chromedriver")} == {"missing"}
    program(tmp_path / "bin", "nvidia-smi", "Tesla T4")
    program(tmp_path / "bin", "google-chrome", "Google Chrome 126.0.1")
    program(tmp_path / "bin", "chromedriver", "ChromeDriver 126.0.2 (abc)")
    found = machine(tmp_path, requires_python=">=3", dependencies=[])
    assert (found["GPU"].found, found["GPU"].verdict) == ("Tesla T4", "ok")
    assert found["google-chrome"].found == "126.0.1"
    assert found["chromedriver"].found == "126.0.2"
    program(tmp_path / "bin", "nvidia-smi", "driver not loaded", code=9)
    assert machine(tmp_path, requires_python=">=3", dependencies=[])["GPU"].verdict == "missing"


@pytest.mark.parametrize(("available", "shown"), [("True", "Board 1"), ("False", "-")])
def test_pytorch_is_asked_for_the_gpu_where_it_is_installed(
    tmp_path, monkeypatch, available, shown
):
    cuda = f"class cuda:\n    is_available = lambda: {available}\n"
    write(tmp_path / "torch.py", cuda + "    get_device_name = lambda: 'Board 1'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert machine(tmp_path, requires_python=">=3", dependencies=[])["GPU"].found == shown
    sys.modules.pop("torch")


# --- a new chapter


@pytest.fixture
def fresh(checkout):
    result = run("new", "fair_coin", "--title", "A coin that is fair")
    assert result.exit_code == 0, result.stderr
    assert "_toc.yml" in result.stdout and "pyproject.toml" in result.stdout
    yield project.rooms("fair_coin")
    sys.modules.pop("workingpapers.fair_coin", None)


def test_a_new_chapter_has_its_five_rooms_and_is_listed(fresh):
    assert all(place.exists() for place in fresh.values())
    assert project.title("fair_coin") == "A coin that is fair"
    assert project.papers() == ["tossing", "an_urn", "fair_coin"]


def test_a_new_chapter_is_well_formed(fresh):
    files = [fresh["package"] / "__init__.py", fresh["tests"], fresh["benchmark"]]
    for file in files:
        ast.parse(file.read_text())
    ruff = Path(sys.executable).with_name("ruff")
    shutil.copy(Path(cli.__file__).parents[2] / "pyproject.toml", fresh["tests"].parents[1])
    notebooks = [fresh["chapter"], fresh["exercises"]]
    done = subprocess.run([ruff, "check", *files, *notebooks], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_notebooks_of_a_new_chapter_have_the_form_of_the_book(fresh):
    chapter = nbformat.read(fresh["chapter"], 4)
    nbformat.validate(chapter)
    text = "\n".join(cell.source for cell in chapter.cells if cell.cell_type == "markdown")
    assert text.count("\n## ") == 11 and text.startswith("# A coin that is fair")
    source = nbformat.read(fresh["exercises"], 4)
    nbformat.validate(source)
    parts = exercises.split(source)
    assert tuple(part.level for part in parts) == exercises.LEVELS
    for part in parts:
        assert sum(exercises.setting(cell, "points") for cell in part.tests) == part.points
        assert len(part.solutions) == len(part.explanations) == 1


def test_a_new_chapter_does_not_pass_for_a_finished_one(fresh, monkeypatch):
    code = fresh["tests"].read_text()
    space = {}
    exec(code, space)
    with pytest.raises(AssertionError, match="list the public names"):
        space["test_the_public_api_is_listed_and_documented"]()
    assert_fails(run("reproduce", "fair_coin"), 1, "have not been written")
    solution = nbformat.read(fresh["exercises"], 4).cells[2].source
    exec(solution, space)
    with pytest.raises(NotImplementedError):
        space["exercise_1"]()


@pytest.mark.parametrize("room", ["tests", "benchmark", "chapter", "exercises"])
def test_nothing_is_overwritten_and_then_nothing_is_written(checkout, room):
    write(project.rooms("fair_coin")[room], "mine")
    before = tree(checkout)
    assert_fails(run("new", "fair_coin", "--title", "A coin"), 1, "there is already")
    assert tree(checkout) == before


def test_a_chapter_that_cannot_be_written_whole_is_not_written(checkout):
    (checkout / "book" / "exercises").write_text("a file where a folder should be")
    before = tree(checkout)
    assert_fails(run("new", "fair_coin", "--title", "A coin"), 1)
    assert tree(checkout) == before


@given(st.text(min_size=1, max_size=90))
def test_a_title_is_refused_or_comes_back_from_the_docstring(title):
    try:
        skeleton.check_title(title)
    except ValueError:
        return
    text = skeleton.PACKAGE.format(title=title)
    assert ast.get_docstring(ast.parse(text), clean=False).splitlines()[0] == f"{title}."
    assert max(map(len, text.splitlines())) <= 100
