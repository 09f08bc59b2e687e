"""The course kit: what students get, what teachers get, and grading that nothing can stop."""

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import nbformat
import nbgrader.api
import pandas as pd
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from workingpapers import course
from workingpapers.course import exercises, kit
from workingpapers.course.grading import connect

ROOT = Path(__file__).resolve().parents[1]
REAL = sorted(path.stem for path in (ROOT / "book" / "exercises").glob("*.ipynb"))
POINTS = (1, 2, 3, 4, 5, 6)
PYPROJECT = """
[project]
readme = "README.md"
license-files = ["LICENSE"]
[tool.hatch.build.targets.wheel]
packages = ["src/workingpapers"]
[tool.hatch.build.targets.wheel.force-include]
"results.json" = "workingpapers/results.json"
"""
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


@pytest.fixture(autouse=True, scope="session")
def one_look_up_of_the_schema():
    """nbgrader starts a process, of 3 s, for each new gradebook: let all share its answer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nbgrader.api, "get_alembic_version", cache(nbgrader.api.get_alembic_version))
        yield


# --- a small checkout ---------------------------------------------------------------------------


def code_cell(source, grade_id, points=None, tags=()):
    graded = points is not None
    nbgrader = {
        "schema_version": 3,
        "grade_id": grade_id,
        "grade": graded,
        "locked": graded,
        "solution": not graded,
        "task": False,
    } | ({"points": points} if graded else {})
    return new_code_cell(source, metadata={"nbgrader": nbgrader, "tags": list(tags)})


def exercise_cells(number):
    name, level, points = f"times{number}", exercises.LEVELS[number - 1], POINTS[number - 1]
    heading = f"## Exercise {number} ({level}, {points} point{'s' if points > 1 else ''}): times"
    task = f"Write `{name}(x)`, {number} times `x`; see [the chapter](../alpha.ipynb#why)."
    hint = "```{dropdown} Hint\n:open:\nMultiply: $x \\cdot n$.\n```"
    answer = (
        f'def {name}(x):\n    """Multiply."""\n    ### BEGIN SOLUTION\n'
        f"    factor = {number}\n    return factor * x\n    ### END SOLUTION"
    )
    tests = (
        f'assert {name}(1) == {number}, "one should give {number}"\n### BEGIN HIDDEN TESTS\n'
        f'assert {name}(-2) == {-2 * number}, "mind the sign"\n### END HIDDEN TESTS'
    )
    explained = "```{dropdown} Solution\nIt is a product, the secret said.\n```"
    return [
        new_markdown_cell(f"{heading}\n\n{task}\n\n{hint}"),
        code_cell(answer, f"ex{number}-solution", tags=["hide-input"]),
        code_cell(tests, f"ex{number}-tests", points=points),
        new_markdown_cell(explained, metadata={"tags": ["solution"]}),
    ]


def source_notebook():
    top = (
        "# Exercises\n\nRead {doc}`../alpha`, {doc}`its notation </book/notation>`, "
        "[](../beta.ipynb), [other exercises](beta.ipynb) and [the web](https://example.org)."
    )
    cells = [new_markdown_cell(top), new_code_cell("import numpy as np")]
    for number in range(1, 7):
        cells += exercise_cells(number)
    return notebook_of(cells)


def notebook_of(cells):
    for number, cell in enumerate(cells):
        cell["id"] = f"cell{number}"  # nbformat's own are random
    return new_notebook(cells=cells, metadata=KERNEL)


def write_markdown(path, text):
    nbformat.write(notebook_of([new_markdown_cell(text)]), path)


def write_wrong_answers(folder):
    folder.mkdir(parents=True)
    for number in range(1, 7):
        define = f"def times{number}(x):\n    return "
        start = f"ex{number}-solution--"
        (folder / f"{start}off_by_one.py").write_text(f"{define}{number} * x + 1\n")
        (folder / f"{start}loses_sign.py").write_text(f"{define}{number} * abs(x)\n")


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "checkout"
    (root / "book" / "exercises").mkdir(parents=True)
    (root / "src" / "workingpapers").mkdir(parents=True)
    for name in ("README.md", "LICENSE", "src/workingpapers/__init__.py", "results.json"):
        (root / name).write_text("# here\n")
    (root / "pyproject.toml").write_text(PYPROJECT)
    book = root / "book"
    chapter = "# The alpha\n\n![picture](figure.png) and [gamma](gamma.md), [work](exercises/alpha)"
    write_markdown(book / "alpha.ipynb", chapter)
    write_markdown(book / "beta.ipynb", "# The beta")
    (book / "notation.md").write_text("# Notation\n\n[back](alpha.ipynb)\n")
    (book / "gamma.md").write_text("# Gamma\n")
    (book / "figure.png").write_bytes(b"png")
    nbformat.write(source_notebook(), book / "exercises" / "alpha.ipynb")
    nbformat.write(source_notebook(), book / "exercises" / "beta.ipynb")
    write_wrong_answers(root / "tests" / "wrong_answers" / "alpha")
    return root


def edit(path, change):
    notebook = nbformat.read(path, as_version=4)
    change({cell.metadata.get("nbgrader", {}).get("grade_id"): cell for cell in notebook.cells})
    nbformat.write(notebook, path)


def everything(folder):
    return "\n".join(path.read_text() for path in folder.rglob("*") if path.suffix in TEXTS)


TEXTS = {".ipynb", ".md", ".py", ".toml"}


# --- making -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def first_made(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("made")
    return course.make(["alpha"], tmp_path / "made", root=checkout.__wrapped__(tmp_path))


@pytest.fixture
def made(first_made, checkout, tmp_path):
    return Path(shutil.copytree(first_made, tmp_path / "made"))


def test_students_get_no_solution_and_no_hidden_test(made):
    text = everything(made / "student")
    for secret in ("factor =", "mind the sign", "the secret said", "SOLUTION", "HIDDEN"):
        assert secret not in text
    notebook = nbformat.read(made / "student" / "exercises" / "alpha.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert sum("raise NotImplementedError()" in source for source in code) == 6
    assert sum("one should give" in source for source in code) == 6
    # The same is true of what nbgrader itself would release.
    assert "the secret said" not in everything(made / "instructor" / "release")


def test_students_find_chapters_package_and_instructions(made):
    student = made / "student"
    found = {path.relative_to(student).as_posix() for path in student.rglob("*") if path.is_file()}
    assert found == {
        "README.md",
        "alpha.ipynb",
        "beta.ipynb",
        "exercises/alpha.ipynb",
        "figure.png",
        "notation.md",
        "package/LICENSE",
        "package/README.md",
        "package/pyproject.toml",
        "package/results.json",
        "package/src/workingpapers/__init__.py",
    }


def test_links_work_in_the_student_folder(made):
    student = made / "student"
    top, task = (
        cell.source
        for cell in nbformat.read(student / "exercises" / "alpha.ipynb", as_version=4).cells[0:3:2]
    )
    assert "[The alpha](../alpha.ipynb)" in top
    assert "[its notation](../notation.md)" in top
    assert "[The beta](../beta.ipynb)" in top
    assert "other exercises and [the web](https://example.org)" in top  # beta's hold the solutions
    assert "[the chapter](../alpha.ipynb#why)" in task
    [chapter] = nbformat.read(student / "alpha.ipynb", as_version=4).cells
    assert "![picture](figure.png) and gamma, [work](exercises/alpha.ipynb)" in chapter.source


def test_hints_fold_in_jupyterlab(made):
    cells = nbformat.read(made / "student" / "exercises" / "alpha.ipynb", as_version=4).cells
    folded = "<details><summary>Hint</summary>\n\nMultiply: $x \\cdot n$.\n\n</details>"
    assert folded in cells[2].source
    assert "{dropdown}" not in everything(made / "student")


def test_the_source_is_untouched_and_two_courses_are_alike(checkout, made, tmp_path):
    source = checkout / "book" / "exercises" / "alpha.ipynb"
    assert nbformat.read(source, as_version=4).cells == source_notebook().cells
    again = course.make(["alpha"], tmp_path / "again", root=checkout)
    assert everything(again) == everything(made)


@pytest.mark.parametrize(
    ("slugs", "error", "message"),
    [
        ([], ValueError, "at least one chapter"),
        (["alpha", "alpha"], ValueError, "each once"),
        (["omega"], ValueError, r"'omega' does not exist.*alpha"),
        (["alpha", "../alpha"], ValueError, "does not exist"),
        (["bare"], ValueError, "'bare' has no exercises"),
        ("alpha", TypeError, "list of chapters"),
        ([1], TypeError, "list of chapters"),
        ([None], TypeError, "list of chapters"),
    ],
)
def test_make_and_check_refuse_bad_slugs(checkout, tmp_path, slugs, error, message):
    write_markdown(checkout / "book" / "bare.ipynb", "# Bare")
    with pytest.raises(error, match=message):
        course.make(slugs, tmp_path / "out", root=checkout)
    with pytest.raises(error, match=message):
        course.check(slugs, root=checkout)
    assert not (tmp_path / "out").exists()


def test_an_output_that_is_not_ours_is_left_alone(checkout, tmp_path):
    output = tmp_path / "thesis"
    output.mkdir()
    (output / "chapter1.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="not a course"):
        course.make(["alpha"], output, root=checkout)
    assert [path.name for path in output.iterdir()] == ["chapter1.txt"]
    with pytest.raises(FileExistsError, match="not a course"):
        course.make(["alpha"], output / "chapter1.txt", root=checkout)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        course.make(["alpha"], tmp_path / "no" / "where", root=checkout)


def test_our_own_output_is_replaced_unless_it_holds_submissions(checkout, made):
    (made / "stale").write_text("")
    assert course.make(["beta"], made, root=checkout) == made
    assert not (made / "stale").exists()
    assert (made / "student" / "exercises" / "beta.ipynb").exists()
    (made / "instructor" / "submitted" / "ada").mkdir()
    with pytest.raises(FileExistsError, match="submissions"):
        course.make(["alpha"], made, root=checkout)
    assert (made / "instructor" / "submitted" / "ada").exists()


def break_link(checkout):
    write_markdown(checkout / "book" / "alpha.ipynb", "[nowhere](nowhere.md)")


def break_role(checkout):
    write_markdown(checkout / "book" / "alpha.ipynb", "{doc}`nowhere`")


def break_metadata(checkout):
    def twice(cells):
        cells["ex2-tests"].metadata.nbgrader["grade_id"] = "ex1-tests"

    edit(checkout / "book" / "exercises" / "alpha.ipynb", twice)


def break_solution(checkout):
    def endless(cells):
        cells["ex1-solution"].source += "\n### BEGIN SOLUTION"

    edit(checkout / "book" / "exercises" / "alpha.ipynb", endless)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (break_link, r"alpha.ipynb links to nowhere.md"),
        (break_role, r"alpha.ipynb links to nowhere"),
        (break_metadata, r"nbgrader refuses the exercises of alpha: .*ex1-tests"),
        (break_solution, r"nbgrader refuses the exercises of alpha: .*end solution"),
    ],
)
def test_a_failure_leaves_nothing_behind(checkout, made, damage, message):
    before = sorted(path.name for path in made.parent.iterdir())
    text = everything(made)
    damage(checkout)
    with pytest.raises(ValueError, match=message):
        course.make(["alpha"], made, root=checkout)
    assert sorted(path.name for path in made.parent.iterdir()) == before
    assert everything(made) == text


# --- grading ------------------------------------------------------------------------------------


def solve(cells, *but):
    for number in range(1, 7):
        if number not in but:
            cells[f"ex{number}-solution"].source = f"def times{number}(x):\n    return {number} * x"


def answer(number, body):
    def change(cells):
        solve(cells)
        cells[f"ex{number}-solution"].source = f"def times{number}(x):\n{body}"

    return change


def cheat(cells):
    for name, cell in cells.items():
        if name and name.endswith("tests"):
            cell.metadata["tags"] = ["skip-execution"]
            cell.source = "pass"


def mix(cells):
    solve(cells)
    cells["ex2-tests"].metadata.pop("nbgrader")
    cells["ex5-solution"].source = "def times5(x):\n    raise SystemExit"
    cells[
        "ex6-solution"
    ].source = "import warnings\ndef times6(x):\n    warnings.warn('careful')\n    return 6 * x"


SUBMISSIONS = {
    "cheat": cheat,
    "crash": answer(3, "    import os\n    os._exit(1)"),
    "flood": answer(4, "    while True:\n        print('x' * 100)"),
    "hang": answer(1, "    while True:\n        pass"),
    "mix": mix,
    "perfect": solve,
    "stubborn": answer(
        2,
        "    while True:\n        try:\n            while True:\n                pass\n"
        "        except BaseException:\n            pass",
    ),
}


def submit(made, student, change):
    folder = made / "instructor" / "submitted" / student / "alpha"
    folder.mkdir(parents=True)
    shutil.copy(made / "student" / "exercises" / "alpha.ipynb", folder)
    edit(folder / "alpha.ipynb", change)
    return folder / "alpha.ipynb"


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """All submissions above and broken ones, graded at once with a time limit of 4 s a cell."""
    tmp_path = tmp_path_factory.mktemp("graded")
    made = course.make(["alpha"], tmp_path / "made", root=checkout.__wrapped__(tmp_path))
    config = made / "instructor" / "nbgrader_config.py"
    config.write_text(config.read_text().replace("TIMEOUT = 60", "TIMEOUT = 4"))
    for student, change in SUBMISSIONS.items():
        submit(made, student, change)
    submit(made, "corrupt", solve).write_text("this is { not JSON")
    submit(made, "empty", lambda cells: None)
    submit(made, "misnamed", solve).rename(made / "instructor/submitted/misnamed/alpha/mine.ipynb")
    (made / "instructor/submitted/wanderer/omega").mkdir(parents=True)
    (made / "instructor/submitted/stray.ipynb").write_text("{}")
    (made / "instructor/submitted/.DS_Store").write_text("")
    return made, course.grade(made)


def marks(table, student):
    rows = table[table["student"] == student]
    return dict(zip(rows["exercise"], rows["points"], strict=True))


def note(table, student, exercise):
    [text] = table.loc[(table["student"] == student) & (table["exercise"] == exercise), "note"]
    return text


FULL = {f"ex{number}": float(points) for number, points in enumerate(POINTS, start=1)}
NOTHING = dict.fromkeys(FULL, 0.0)


@pytest.mark.parametrize(
    ("student", "lost"),
    [
        ("perfect", []),
        ("hang", ["ex1"]),
        ("mix", ["ex2", "ex5"]),
        ("cheat", list(FULL)),
        ("flood", ["ex4"]),
        ("stubborn", ["ex2", "ex3", "ex4", "ex5", "ex6"]),
        ("crash", ["ex3", "ex4", "ex5", "ex6"]),
        ("empty", list(FULL)),
        ("corrupt", list(FULL)),
        ("misnamed", list(FULL)),
    ],
)
def test_each_submission_gets_the_points_it_deserves(graded, student, lost):
    _, table = graded
    assert marks(table, student) == FULL | dict.fromkeys(lost, 0.0)
    rows = table[table["student"] == student]
    assert rows["max"].tolist() == list(POINTS)
    assert (rows["chapter"] == "alpha").all()
    assert ((rows["note"] == "") == (rows["points"] == rows["max"])).all()


@pytest.mark.parametrize(
    ("student", "exercise", "text"),
    [
        ("hang", "ex1", "ran for more than 4 s"),
        ("mix", "ex5", "SystemExit"),
        ("mix", "ex2", "the cell ex2-tests is missing"),
        ("stubborn", "ex2", "ran for more than 4 s"),
        ("stubborn", "ex3", "could not be interrupted"),
        ("crash", "ex3", "DeadKernelError"),
        ("crash", "ex4", "the kernel died in an earlier cell"),
        ("empty", "ex1", "NotImplementedError"),
        ("corrupt", "ex1", "NotJSONError"),
        ("misnamed", "ex6", "there is no alpha.ipynb"),
        ("wanderer", "", "not the folder of a chapter"),
        ("stray.ipynb", "", "not the folder of a chapter"),
    ],
)
def test_notes_say_why_points_are_missing(graded, student, exercise, text):
    assert text in note(graded[1], student, exercise)


def test_every_entry_is_graded_and_written(graded):
    made, table = graded
    there = {"corrupt", "empty", "misnamed", "wanderer", "stray.ipynb", *SUBMISSIONS}
    assert set(table["student"]) == there
    written = pd.read_csv(made / "instructor" / "grades.csv", keep_default_na=False)
    assert written.values.tolist() == table.values.tolist()
    assert list(written) == ["student", "chapter", "exercise", "points", "max", "note"]


def test_grading_again_forgets_old_points_but_not_corrections_by_hand(checkout, made):
    notebook = submit(made, "ada", solve)
    assert marks(course.grade(made), "ada") == FULL
    edit(notebook, lambda cells: cells["ex2-tests"].metadata.pop("nbgrader"))
    with connect(made / "instructor").gradebook as gradebook:
        gradebook.find_grade("ex3-tests", "alpha", "alpha", "ada").manual_score = 1.5
        gradebook.db.commit()
    assert marks(course.grade(made), "ada") == FULL | {"ex2": 0.0, "ex3": 1.5}
    notebook.write_text("")
    table = course.grade(made)
    assert marks(table, "ada") == NOTHING | {"ex3": 1.5}
    assert not (made / "instructor" / "autograded" / "ada" / "alpha").exists()


def test_an_interrupt_from_the_keyboard_stops_the_grading(made, monkeypatch):
    submit(made, "ada", solve)

    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("nbgrader.converters.base.BaseConverter.convert_notebooks", interrupt)
    with pytest.raises(KeyboardInterrupt):
        course.grade(made)


def test_grade_refuses_what_is_no_course_or_has_no_submissions(made, tmp_path):
    with pytest.raises(ValueError, match="not a course"):
        course.grade(tmp_path)
    with pytest.raises(ValueError, match="nothing to grade"):
        course.grade(made)


def test_the_nbgrader_commands_of_the_readme_work(made):
    """From a terminal, nbgrader reads the same configuration and gives the same points."""
    submit(made, "grace", answer(2, "    return 0"))
    for command in ("autograde", "generate_feedback"):
        subprocess.run(
            [sys.executable, "-m", "nbgrader", command, "alpha"],
            cwd=made / "instructor",
            check=True,
            capture_output=True,
        )
    page = made / "instructor" / "feedback" / "grace" / "alpha" / "alpha.html"
    assert "one should give 2" in page.read_text()
    with connect(made / "instructor").gradebook as gradebook:
        assert gradebook.find_submission("alpha", "grace").score == sum(POINTS) - 2


# --- checking -----------------------------------------------------------------------------------


def test_good_exercises_pass_the_round_trip(checkout):
    report = course.check(["alpha"], root=checkout)
    assert report.problems == []
    students = ["perfect", "empty", "wrong1", "wrong2"]
    assert report.table["student"].unique().tolist() == students
    totals = report.table.groupby("student")["points"].sum()
    assert totals.to_dict() == {"perfect": 21, "empty": 0, "wrong1": 0, "wrong2": 0}
    assert report.table["mistake"].iloc[-1] == "ex6-solution--off_by_one"


def test_tests_that_a_wrong_answer_passes_are_reported(checkout, monkeypatch):
    monkeypatch.setattr(kit, "PROCESSES", 1)
    wrong = checkout / "tests" / "wrong_answers" / "alpha"
    (wrong / "ex1-solution--loses_sign.py").write_text("def times1(x):\n    return x\n")
    (wrong / "ex2-solution--loses_sign.py").write_text("def times(x):\n    return x\n")
    (wrong / "ex3-solution--loses_sign.py").unlink()
    (wrong / "ex3-solution--off_by_one.py").unlink()
    (wrong / "ex9-solution--late.py").write_text("pass\n")

    def spoil(cells):
        cells["ex5-tests"].source += '\nassert times4(1) == 4, "other"'
        cells["ex6-tests"].source = cells["ex6-tests"].source.replace("-12", "-13")
        cells["ex3-tests"].source = 'assert callable(times3), "this gives points for nothing"'

    edit(checkout / "book" / "exercises" / "alpha.ipynb", spoil)
    (wrong / "ex5-solution--off_by_one.py").unlink()
    problems = course.check(["alpha"], root=checkout).problems
    for expected in (
        "ex1-solution--loses_sign gets 1 of 1 points",
        "ex2-solution--loses_sign does not even run: NameError",
        "ex3-solution has 0 wrong answers",
        "ex5-solution has 1 wrong answers",
        "ex9-solution--late.py answers no solution cell",
        "the wrong2 submission gets 0 of 5 points for ex5 (AssertionError: other)",
        "the perfect submission gets 0 of 6 points for ex6 (AssertionError: mind the sign)",
        "the empty submission gets 3 of 3 points for ex3 (no error)",
        "exercise 3: there is no hidden assert",
        "nbgrader validate: ",
    ):
        assert any(expected in problem for problem in problems), (expected, problems)


def test_a_notebook_that_nbgrader_refuses_is_a_problem_and_not_a_crash(checkout):
    break_metadata(checkout)
    report = course.check(["alpha"], root=checkout)
    [problem] = report.problems
    assert "nbgrader refuses" in problem
    assert report.table.empty


# --- the format ---------------------------------------------------------------------------------


def replaced(cell, old, new):
    assert old in cell.source
    cell.source = cell.source.replace(old, new)


def drop(cell, key):
    del cell.metadata[key]


HEAD, ANSWER, TEST, EXPLAINED = 2, 3, 4, 5  # the cells of exercise 1
FAULTS = [
    (lambda c: replaced(c[HEAD], "(warm-up", "(core"), "the levels are core"),
    (lambda c: replaced(c[HEAD], "Exercise 1", "Exercise 3"), "not numbered 1, 2, 3"),
    (lambda c: replaced(c[HEAD], "Write `times1(x)`", "Write it"), "signature of times1"),
    (lambda c: replaced(c[HEAD], "{dropdown}", "text"), "no hint in a dropdown"),
    (lambda c: replaced(c[HEAD], "Multiply", "{cite}`key`"), "MyST that JupyterLab"),
    (lambda c: replaced(c[HEAD], "1 point", "2 points"), "give 1 points, the heading says 2"),
    (
        lambda c: replaced(c[HEAD], c[HEAD].source.splitlines()[2], ""),
        "not followed by a task",
    ),
    (lambda c: replaced(c[HEAD], "Write", "`return factor * x` Write"), "shows the solution's"),
    (lambda c: c[ANSWER].metadata.nbgrader.update(grade_id="ex1-answer"), "must be one, ex1-solu"),
    (lambda c: drop(c[ANSWER], "tags"), "not tagged 'hide-input'"),
    (lambda c: c[ANSWER].metadata.nbgrader.update(grade=True, points=1), "must not be graded"),
    (lambda c: replaced(c[ANSWER], "### END", "# x\n    ### END"), None),
    (
        lambda c: c[ANSWER].update(source="x = 1\n### BEGIN SOLUTION\n### END SOLUTION"),
        "no solution between",
    ),
    (lambda c: replaced(c[ANSWER], "def times1(x):", "times1 = 1"), "defines no function"),
    (lambda c: replaced(c[TEST], ', "one should give 1"', ""), "an assert without a message"),
    (lambda c: replaced(c[TEST], "### BEGIN HIDDEN TESTS\n", ""), "no hidden assert"),
    (
        lambda c: c[TEST].update(
            source='### BEGIN HIDDEN TESTS\nassert times1(1) == 1, "x"\n### END HIDDEN TESTS'
        ),
        "no assert is visible",
    ),
    (lambda c: replaced(c[TEST], "### END", "times1(1)\n### END"), "ends in an expression"),
    (lambda c: replaced(c[TEST], "assert times1(1)", "%time\nassert times1(1)"), "is not Python"),
    (lambda c: c[TEST].metadata.nbgrader.update(locked=False), "must be locked"),
    (lambda c: c[TEST].metadata.nbgrader.update(grade_id="ex7-x"), "be called ex1-tests"),
    (lambda c: drop(c[EXPLAINED], "tags"), "no explained solution"),
    (lambda c: c.insert(0, code_cell("pass", "early", points=1)), "above the first exercise"),
]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """A course with a chapter for each fault."""
    tmp_path = tmp_path_factory.mktemp("damaged")
    root = checkout.__wrapped__(tmp_path)
    for number, (damage, _) in enumerate(FAULTS):
        shutil.copy(root / "book" / "alpha.ipynb", root / "book" / f"fault{number}.ipynb")
        source = source_notebook()
        damage(source.cells)
        nbformat.write(source, root / "book" / "exercises" / f"fault{number}.ipynb")
    slugs = [f"fault{number}" for number in range(len(FAULTS))]
    return course.make(slugs, tmp_path / "made", root=root)


@pytest.mark.parametrize(("number", "expected"), [(n, fault[1]) for n, fault in enumerate(FAULTS)])
def test_faults_of_format_are_found(damaged, number, expected):
    source, release = (
        nbformat.read(
            damaged / "instructor" / step / f"fault{number}" / f"fault{number}.ipynb", as_version=4
        )
        for step in ("source", "release")
    )
    found = exercises.problems(source, release)
    assert any(expected in problem for problem in found) if expected else found == []


# --- the book's own exercises ---------------------------------------------------------------------


@pytest.mark.parametrize("slug", REAL)
def test_the_exercises_of_the_book(slug):
    report = course.check([slug])
    assert not report.problems, "\n".join(report.problems)
