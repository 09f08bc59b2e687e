"""Grading submissions with nbgrader, so that no submission can stop the grading of the others."""

import logging
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pandas as pd
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbgrader.apps import NbGraderAPI
from nbgrader.preprocessors import Execute
from sqlalchemy.exc import SAWarning
from tqdm import tqdm
from traitlets.config import PyFileConfigLoader

from workingpapers.course.exercises import exercise_of, setting

MARKER = ".workingpapers-course"  # the file that tells a course's folder from any other
COLUMNS = ("student", "chapter", "exercise", "points", "max", "note")

_LOG = logging.getLogger(__name__)
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False  # what matters of nbgrader's log is in its results


class ExecuteToTheEnd(Execute):
    """The step of nbgrader that runs a submission, made to survive a kernel that does not.

    nbgrader drops a submission altogether when its kernel dies or cannot be interrupted. Here the
    cells that were not reached get an error instead: without one, a test would get full points.
    """

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """Run a notebook.

        Parameters
        ----------
        nb : NotebookNode
            The notebook; it is changed in place.
        resources : dict
            nbconvert's record of the conversion.

        Returns
        -------
        tuple of (NotebookNode, dict)
            The notebook with outputs, and the record.
        """
        self.loss = ""
        return super().preprocess(nb, resources)

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict, index: int
    ) -> tuple[NotebookNode, dict]:
        """Run a cell, or say why it was not reached.

        Parameters
        ----------
        cell : NotebookNode
            The cell; it is changed in place.
        resources : dict
            nbconvert's record of the conversion.
        index : int
            The number of the cell in the notebook, from 0.

        Returns
        -------
        tuple of (NotebookNode, dict)
            The cell with outputs, and the record.
        """
        if cell.cell_type != "code":
            return cell, resources
        if self.loss:
            cell.outputs.append(_error("NotReached", self.loss))
            return cell, resources
        try:
            super().preprocess_cell(cell, resources, index)
        except DeadKernelError:
            self.loss = "the kernel died in an earlier cell"
            cell.outputs.append(_error("DeadKernelError", "the kernel died in this cell"))
        except CellTimeoutError:  # even after the interrupt, the cell did not come to an end
            cell.outputs.append(_error("CellTimeoutError", self.error_on_timeout["evalue"]))
            if self.wait_for_reply(self.kc.kernel_info()) is None:
                self.loss = "an earlier cell hung and could not be interrupted"
        return cell, resources


def _error(name: str, value: str) -> NotebookNode:
    return nbformat.v4.new_output("error", ename=name, evalue=value, traceback=[f"{name}: {value}"])


def grade(course: Path) -> pd.DataFrame:
    """Grade all that is in ``instructor/submitted`` of a course, and write ``grades.csv`` there.

    Parameters
    ----------
    course : Path
        A folder that `make` made, with submissions put at
        ``instructor/submitted/<student>/<chapter>/<chapter>.ipynb``. What was graded before is
        graded again; points entered by hand stay.

    Returns
    -------
    pandas.DataFrame
        One row for each exercise of each submission: ``student``, ``chapter``, ``exercise``
        (``ex1``, ...), ``points``, ``max``, and ``note``: why points are missing, or empty. What is
        in the folder and is not a chapter's submission gets a row with an empty exercise.

    Raises
    ------
    ValueError
        If `course` was not made by `make`, or nothing was submitted.
    """
    course = Path(course)
    if not (course / MARKER).is_file():
        raise ValueError(f"{course} is not a course made by workingpapers")
    submitted = course / "instructor" / "submitted"
    entries = list(_entries(submitted))
    if not entries:
        raise ValueError(f"there is nothing to grade in {submitted}")
    nbgrader = connect(course / "instructor")
    progress = tqdm(entries, desc="grading", unit="submission", disable=None)
    rows = [row for entry in progress for row in _grade_entry(nbgrader, submitted, entry)]
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    table.to_csv(course / "instructor" / "grades.csv", index=False)
    return table


def _entries(submitted: Path) -> Iterator[Path]:
    """Yield what lies two levels deep, and what lies less deep and has nothing in it."""
    for student in _visible(submitted):
        yield from _visible(student) or [student]


def _visible(folder: Path) -> list[Path]:
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in inside if not path.name.startswith(".")]


def _grade_entry(nbgrader: NbGraderAPI, submitted: Path, entry: Path) -> list[tuple]:
    student, chapter = (*entry.relative_to(submitted).parts, "")[:2]
    if chapter not in nbgrader.get_source_assignments() or not entry.is_dir():
        return [(student, chapter, "", 0.0, 0.0, "not the folder of a chapter of this course")]
    graded = submitted.parent / "autograded" / student / chapter
    shutil.rmtree(graded, ignore_errors=True)
    _reset(nbgrader, student, chapter)
    result = nbgrader.autograde(chapter, student)
    if result.get("error", "").rstrip().endswith("KeyboardInterrupt"):
        raise KeyboardInterrupt  # nbgrader takes it for a failure of this submission
    tests = _tests(nbgrader, student, chapter)
    if result["success"]:
        notes = _notes(nbformat.read(graded / f"{chapter}.ipynb", as_version=4), tests)
    else:
        there = (entry / f"{chapter}.ipynb").is_file()
        fault = f"not gradable: {reason(result)}" if there else f"there is no {chapter}.ipynb"
        notes = dict.fromkeys(tests["exercise"], fault)
    totals = tests.groupby("exercise", sort=False)[["points", "max"]].sum()
    return [
        (student, chapter, exercise, points, most, notes.get(exercise, ""))
        for exercise, points, most in totals.itertuples()
    ]


def _reset(nbgrader: NbGraderAPI, student: str, chapter: str) -> None:
    """Set the automatic points to zero: nbgrader keeps old ones for cells that it does not find."""
    with nbgrader.gradebook as gradebook, warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)  # about the way nbgrader adds a submission
        gradebook.update_or_create_student(student)
        submission = gradebook.update_or_create_submission(chapter, student)
        for score in submission.notebooks[0].grades:
            score.auto_score = 0.0
        gradebook.db.commit()


def _tests(nbgrader: NbGraderAPI, student: str, chapter: str) -> pd.DataFrame:
    """Return one row for each test cell, in the order of the notebook."""
    with nbgrader.gradebook as gradebook:
        grades = gradebook.find_submission_notebook(chapter, chapter, student).grades
        rows = [
            (exercise_of(score.name), score.name, score.score, score.max_score) for score in grades
        ]
    table = pd.DataFrame(rows, columns=["exercise", "cell", "points", "max"])
    return table.sort_values("cell", key=lambda names: names.map(_natural))


def _natural(name: str) -> tuple:
    """Return a key that sorts ex2 before ex10."""
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name))


def _notes(notebook: NotebookNode, tests: pd.DataFrame) -> dict[str, str]:
    """Return what went wrong first in each exercise."""
    cells = {setting(cell, "grade_id"): cell for cell in notebook.cells}
    notes = {
        exercise_of(name): f"the cell {name} is missing"
        for name in tests["cell"]
        if name not in cells
    }
    for grade_id, cell in cells.items():
        errors = [out for out in cell.get("outputs", []) if out.output_type == "error"]
        if grade_id and errors:
            first_line = f"{errors[-1].ename}: {errors[-1].evalue}".strip(": ").splitlines()[0]
            notes.setdefault(exercise_of(grade_id), first_line)
    return notes


def connect(instructor: Path) -> NbGraderAPI:
    """Return nbgrader's interface to a course.

    Parameters
    ----------
    instructor : Path
        The folder with the course's ``nbgrader_config.py``, which configures it.

    Returns
    -------
    NbGraderAPI
        The interface; it logs nothing to the screen.
    """
    config = PyFileConfigLoader("nbgrader_config.py", path=str(instructor)).load_config()
    config.CourseDirectory.root = str(instructor.resolve())
    return NbGraderAPI(config=config, log=_LOG)


def reason(result: dict[str, str]) -> str:
    """Say why nbgrader failed.

    Parameters
    ----------
    result : dict
        What a method of `NbGraderAPI` returned, without success.

    Returns
    -------
    str
        The last line of each traceback in its log.
    """
    text = result.get("log") or result["error"]
    errors = re.findall(r"^ *([\w.]*(?:Error|Exception)(?::.*)?)$", text, re.MULTILINE)
    return "; ".join(dict.fromkeys(errors)) or text.strip().splitlines()[-1]
