"""Courses: student notebooks, autograding with nbgrader, and the proof that the grading works.

The exercises of a chapter are one nbgrader source notebook, ``book/exercises/<slug>.ipynb``, which
is also a page of the book.  It has six exercises (two warm-up, two core, one stretch, one
research), each of these cells, in this order:

1. Markdown: ``## Exercise 1 (warm-up, 2 points): title``, the task, the signature of the function
   to write, and a hint in a dropdown: a fence of three backticks with ``{dropdown} Hint``.
2. One solution cell: nbgrader ``solution: true, grade: false, locked: false``, grade id
   ``ex1-solution``, tag ``hide-input``.  The ``def`` line and docstring stand outside, the solution
   between ``### BEGIN SOLUTION`` and ``### END SOLUTION``, where the student version has
   ``raise NotImplementedError()``.
3. One or more test cells: nbgrader ``grade: true, solution: false, locked: true, points: n``, grade
   ids ``ex1-tests``, ``ex1-tests-2``, ...; their points add up to those of the heading.  They hold
   plain ``assert condition, "what is wrong"`` statements, those between ``### BEGIN HIDDEN TESTS``
   and ``### END HIDDEN TESTS`` not shown to students.  They must not end in an expression
   (nbgrader would read its value as partial credit) and must not depend on another exercise.
4. Markdown, tagged ``solution``: the solution explained and what it taught, in a dropdown of its
   own.  Students do not get cells with this tag.

All nbgrader metadata carry ``schema_version: 3`` and ``task: false``.  Cells that belong to no
exercise (imports) stand at the top and carry none.  Notebooks import numpy, ``workingpapers`` and
what these install.  Text is plain Markdown with links and dollar math; of MyST, only dropdowns and
the ``doc`` role, because students read it in JupyterLab.

Each exercise has at least two wrong answers that students really give, in
``tests/wrong_answers/<slug>/<grade id of the solution cell>--<mistake>.py``: the whole solution
cell as such a student would fill it in.  `check` hands them in and sees that they lose points.
"""

import copy
import os
import shutil
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pandas as pd
from joblib import Parallel, delayed
from nbconvert.filters import strip_ansi
from nbformat import NotebookNode
from nbgrader.validator import Validator

from workingpapers import project
from workingpapers.course.exercises import exercise_of, problems, setting
from workingpapers.course.grading import MARKER, connect, grade, reason
from workingpapers.course.handout import make_handout

PROCESSES = 2
BROKEN = ("NameError", "SyntaxError", "IndentationError", "ImportError", "ModuleNotFoundError")

NBGRADER_CONFIG = """\
# nbgrader's settings for this course; both `workingpapers` and the nbgrader commands read them.
from nbconvert.preprocessors import TagRemovePreprocessor
from nbgrader.converters import Autograde
from nbgrader.preprocessors import Execute
from workingpapers.course.grading import ExecuteToTheEnd

TIMEOUT = 60  # seconds that a cell may run

c = get_config()
c.CourseDirectory.course_id = "working-papers"

# The cells tagged "solution" explain the solutions: students do not get them.
c.TagRemovePreprocessor.enabled = True
c.TagRemovePreprocessor.remove_cell_tags = {"solution"}
c.GenerateAssignment.preprocessors.prepend([TagRemovePreprocessor])

# A cell that fails, hangs or kills its kernel does not stop the grading.
c.Autograde.autograde_preprocessors = [
    ExecuteToTheEnd if step is Execute else step for step in Autograde().autograde_preprocessors
]
c.Execute.extra_arguments = ["--log-level=ERROR"]
c.Execute.timeout = TIMEOUT
c.Execute.interrupt_on_timeout = True
c.Execute.error_on_timeout = {
    "ename": "CellTimeoutError",
    "evalue": f"the cell ran for more than {TIMEOUT} s and was interrupted",
    "traceback": [f"CellTimeoutError: the cell ran for more than {TIMEOUT} s"],
}
# nbgrader gives full points to a test that did not run: a student's tag must not skip one.
c.Execute.skip_cells_with_tag = ""
# It gives none to a test that writes to stderr, where warnings and progress bars go.
c.IgnorePattern.enabled = True
c.IgnorePattern.pattern = ".*"
"""

INSTRUCTOR_README = """\
# For the teacher

Keep this folder to yourself: `source/` holds the solutions and the hidden tests. Give students the
folder `student/` beside it (zipped, say).

1. **Collect.** Put each notebook that was handed in at
   `submitted/<student>/<chapter>/<chapter>.ipynb`, for example
   `submitted/ada/{chapter}/{chapter}.ipynb`. If a learning platform gives you one zip file,
   `nbgrader zip_collect` can be told how to sort it.
2. **Grade.** One command grades everything that is there, and again whenever it is called:

       workingpapers course grade ..

   It writes `grades.csv`: student, chapter, exercise, points, maximum, and a note that says why
   points are missing. A notebook that cannot be read, a cell that runs for more than 60 seconds and
   a kernel that dies cost the points of what was not reached, and stop nothing else.
   (`nbgrader autograde <chapter>` does the same for one chapter, without the table.)
3. **Correct by hand**, if you want to, in JupyterLab: *Nbgrader > Formgrader*. What you enter
   there replaces the points of the tests, also in the table when you grade again.
4. **Give feedback.** `nbgrader generate_feedback <chapter>` writes
   `feedback/<student>/<chapter>/<chapter>.html`. Beware: these pages show the hidden tests.
5. **Export.** `grades.csv` has a line an exercise. For a line a submission:
   `nbgrader export --to=totals.csv`.

Run the nbgrader commands in this folder: they read `nbgrader_config.py`. Grading runs the students'
code with your rights and in reach of your files: do it in a container or on an account made for it.
"""


def make(slugs: Sequence[str], output: Path, root: Path | None = None) -> Path:
    """Make the folder of a course: what students get, and what their teacher needs.

    Parameters
    ----------
    slugs : sequence of str
        The chapters, each once.
    output : Path
        The folder to make, in a folder that exists. A course that stands there is replaced, but
        neither one that holds submissions nor anything else that is not empty.
    root : Path, optional
        The checkout of the book; by default `workingpapers.project.root()`.

    Returns
    -------
    Path
        `output`. Its ``student`` folder holds the exercises without solutions, the chapters, the
        package and instructions; its ``instructor`` folder is an nbgrader course.

    Raises
    ------
    TypeError
        If `slugs` is a string or holds something else than strings.
    ValueError
        If no chapter is named, one is named twice, does not exist or has no exercises, if nbgrader
        refuses an exercise notebook, or if a link in a notebook leads nowhere.
    FileNotFoundError
        If the folder around `output` does not exist.
    FileExistsError
        If `output` exists and must not be replaced.
    """
    root = project.root() if root is None else Path(root)
    slugs, output = _checked(slugs, root), Path(output)
    _refuse_to_overwrite(output)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".course-") as scratch:
        draft = Path(scratch, "new")
        _make_instructor(draft / "instructor", slugs, root)
        release = draft / "instructor" / "release"
        released = {slug: release / slug / f"{slug}.ipynb" for slug in slugs}
        make_handout(draft / "student", released, root)
        (draft / MARKER).write_text("\n".join(slugs) + "\n", encoding="utf-8")
        if output.exists():
            output.rename(Path(scratch, "old"))
        draft.rename(output)
    return output


def _checked(slugs: Sequence[str], root: Path) -> list[str]:
    if isinstance(slugs, str) or not all(isinstance(slug, str) for slug in slugs):
        raise TypeError(f"slugs must be a list of chapters' names, got {slugs!r}")
    if not slugs or len(set(slugs)) < len(slugs):
        raise ValueError(f"slugs must name at least one chapter, and each once, got {slugs!r}")
    chapters = {path.stem for path in root.glob("book/*.ipynb")}
    with_exercises = {path.stem for path in root.glob("book/exercises/*.ipynb")}
    for slug in slugs:
        if slug not in chapters & with_exercises:
            lack = "has no exercises" if slug in chapters else "does not exist"
            known = ", ".join(sorted(chapters & with_exercises)) or "none"
            raise ValueError(f"the chapter {slug!r} {lack}; chapters with exercises: {known}")
    return list(slugs)


def _refuse_to_overwrite(output: Path) -> None:
    if not output.parent.is_dir():
        raise FileNotFoundError(f"the folder around the output does not exist: {output.parent}")
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    if not (output / MARKER).is_file():
        raise FileExistsError(f"{output} exists and is not a course made by workingpapers")
    if any((output / "instructor" / "submitted").glob("*")):
        raise FileExistsError(f"{output} holds students' submissions; choose another folder")


def _make_instructor(folder: Path, slugs: list[str], root: Path) -> None:
    (folder / "submitted").mkdir(parents=True)
    (folder / "nbgrader_config.py").write_text(NBGRADER_CONFIG, encoding="utf-8")
    (folder / "README.md").write_text(INSTRUCTOR_README.format(chapter=slugs[0]), encoding="utf-8")
    with _scripts_on_path():
        connect(folder).gradebook.close()
    for slug in slugs:
        (folder / "source" / slug).mkdir(parents=True)
        shutil.copy(root / "book" / "exercises" / f"{slug}.ipynb", folder / "source" / slug)
        result = connect(folder).generate_assignment(slug)
        if not result["success"]:
            raise ValueError(f"nbgrader refuses the exercises of {slug}: {reason(result)}")


@contextmanager
def _scripts_on_path() -> Iterator[None]:
    """Let nbgrader find the command `alembic`, which it calls when it makes a gradebook.

    Without this, the virtual environment would have to be activated.
    """
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = sysconfig.get_path("scripts") + os.pathsep + before
    try:
        yield
    finally:
        os.environ["PATH"] = before


@dataclass(frozen=True)
class Report:
    """What `check` found.

    Attributes
    ----------
    problems : list of str
        One sentence a problem; empty if the exercises are as they should be.
    table : pandas.DataFrame
        The columns of `grade`, and ``mistake``: the wrong answer that the submission gave to the
        exercise, or empty. The submissions (``student``) of a chapter are ``perfect``, ``empty``,
        ``wrong1``, ``wrong2``, ...
    """

    problems: list[str]
    table: pd.DataFrame


@dataclass(frozen=True)
class _Trial:
    """A submission that is handed in to see what points it gets."""

    course: Path
    chapter: str
    name: str
    notebook: NotebookNode
    mistakes: dict[str, str]  # exercise -> name of its wrong answer


def check(slugs: Sequence[str], root: Path | None = None) -> Report:
    """Hand in perfect, empty and wrong answers, and see whether they get the points they deserve.

    For each chapter a course is made, the format of its exercises is checked, and these are
    graded: the source notebook (all points), the student version (none), and for each k the source
    with the k-th wrong answer of every exercise (all points but these exercises').

    Parameters
    ----------
    slugs : sequence of str
        The chapters, each once.
    root : Path, optional
        The checkout of the book; by default `workingpapers.project.root()`.

    Returns
    -------
    Report
        The problems, and the points of every submission.

    Raises
    ------
    TypeError, ValueError
        If `slugs` is not a list of chapters with exercises, as in `make`.
    """
    root = project.root() if root is None else Path(root)
    found, trials = [], []
    with tempfile.TemporaryDirectory() as scratch, Parallel(n_jobs=PROCESSES) as run:
        for slug in _checked(slugs, root):
            faults, planned = _plan(slug, Path(scratch, slug), root)
            found += [f"{slug}: {fault}" for fault in faults]
            trials += planned
        # One gradebook a submission: sqlite does not let two processes write to one.
        tables = run(delayed(_handed_in)(trial) for trial in trials)
        courses = {trial.course: trial.chapter for trial in trials}
        invalid = run(delayed(_invalid)(course, slug) for course, slug in courses.items())
    pairs = zip(trials, tables, strict=True)
    found += [f"{t.chapter}: {fault}" for t, table in pairs for fault in _surprises(t, table)]
    found += [fault for faults in invalid for fault in faults]
    return Report(found, pd.concat(tables, ignore_index=True) if tables else pd.DataFrame())


def _plan(slug: str, folder: Path, root: Path) -> tuple[list[str], list[_Trial]]:
    """Check all that can be checked without running anything, and list what is to be run."""
    try:
        instructor = make([slug], folder, root) / "instructor"
    except ValueError as error:
        return [str(error)], []
    source, release = (
        nbformat.read(instructor / step / slug / f"{slug}.ipynb", as_version=4)
        for step in ("source", "release")
    )
    answers, faults = _wrong_answers(root / "tests" / "wrong_answers" / slug, source)
    trials = [
        _Trial(folder, slug, "perfect", source, {}),
        _Trial(folder, slug, "empty", release, {}),
    ]
    for k in range(max(map(len, answers.values()), default=0)):
        chosen = {name: given[k] for name, given in answers.items() if k < len(given)}
        mistakes = {exercise_of(path.stem): path.stem for path in chosen.values()}
        trials.append(_Trial(folder, slug, f"wrong{k + 1}", _with(source, chosen), mistakes))
    return problems(source, release) + faults, trials


def _wrong_answers(folder: Path, source: NotebookNode) -> tuple[dict[str, list[Path]], list[str]]:
    """Return the files with wrong answers to each solution cell, and what is wrong with them."""
    ids = [setting(cell, "grade_id") for cell in source.cells if setting(cell, "solution")]
    files = sorted(folder.glob("*"))
    answers = {name: [file for file in files if file.stem.startswith(f"{name}--")] for name in ids}
    known = [file for given in answers.values() for file in given]
    faults = [f"{file.name} answers no solution cell" for file in files if file not in known]
    for name, given in answers.items():
        if len(given) < 2:
            faults.append(f"{name} has {len(given)} wrong answers in tests; it needs two")
    return answers, faults


def _with(source: NotebookNode, chosen: dict[str, Path]) -> NotebookNode:
    """Return a copy of a notebook with the given answers in its solution cells."""
    notebook = copy.deepcopy(source)
    for cell in notebook.cells:
        if answer := chosen.get(setting(cell, "grade_id")):
            cell.source = answer.read_text(encoding="utf-8")
    return notebook


def _handed_in(trial: _Trial) -> pd.DataFrame:
    """Grade a submission in a copy of its course."""
    with tempfile.TemporaryDirectory() as scratch:
        course = Path(scratch, "course")
        shutil.copytree(trial.course, course, ignore=shutil.ignore_patterns("student"))
        folder = course / "instructor" / "submitted" / trial.name / trial.chapter
        folder.mkdir(parents=True)
        nbformat.write(trial.notebook, folder / f"{trial.chapter}.ipynb")
        table = grade(course)
    return table.assign(mistake=[trial.mistakes.get(name, "") for name in table["exercise"]])


def _invalid(course: Path, slug: str) -> list[str]:
    """Run nbgrader's own validation of a source notebook."""
    config = connect(course / "instructor").config
    notebook = course / "instructor" / "source" / slug / f"{slug}.ipynb"
    results = Validator(config=config).validate(str(notebook))
    reports = [cell.get("raw_error", cell["source"]) for kind in results.values() for cell in kind]
    last_lines = [strip_ansi(report).strip().splitlines()[-1] for report in reports]
    return [f"{slug}: nbgrader validate: {line}" for line in last_lines]


def _surprises(trial: _Trial, table: pd.DataFrame) -> Iterator[str]:
    for row in table.itertuples():
        got = f"{row.points:g} of {row.max:g} points for {row.exercise} ({row.note or 'no error'})"
        if row.mistake and row.points == row.max:
            yield f"the wrong answer {row.mistake} gets {got}"
        elif row.mistake and row.note.startswith(BROKEN):
            yield f"the wrong answer {row.mistake} does not even run: {row.note}"
        elif trial.name == "empty" and row.points != 0:
            yield f"the empty submission gets {got}"
        elif trial.name != "empty" and not row.mistake and row.points != row.max:
            yield f"the {trial.name} submission gets {got} though its answer is right"
