"""The format of an exercise notebook, and whether a notebook keeps to it.

The format itself is described in :mod:`workingpapers.course`.  What students see is never worked
out here: it is read from the student version that nbgrader made, and whatever is in the source and
not there is solution or hidden test.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from nbformat import NotebookNode

LEVELS = ("warm-up", "warm-up", "core", "core", "stretch", "research")
"""The level of each exercise of a chapter, in order."""

HEADING = re.compile(
    r"## Exercise (?P<number>\d+) \((?P<level>[a-z-]+), (?P<points>\d+) points?\): \S.*"
)
DROPDOWN = re.compile(
    r"^(?P<fence>`{3,})\{dropdown\} *(?P<title>.*)\n(?P<options>(?::\w.*\n)*)(?P<body>(?s:.*?))"
    r"^(?P=fence) *$",
    re.MULTILINE,
)
BOOK_ONLY = re.compile(r"^(?:`{3,}|:{3,})\{(?!dropdown\})[\w:.-]+\}|\{(?!doc\})[\w:.-]+\}`", re.M)
STUB = ("# YOUR CODE HERE", "raise NotImplementedError()")  # what nbgrader puts for a solution


@dataclass(frozen=True)
class Exercise:
    """One exercise of a notebook: the cells from its heading to the next one.

    Attributes
    ----------
    number : int
        Its number in the heading.
    level : str
        Its level in the heading, see `LEVELS`.
    points : int
        Its points in the heading.
    cells : tuple of NotebookNode
        All its cells, the heading's first.
    """

    number: int
    level: str
    points: int
    cells: tuple[NotebookNode, ...]

    @property
    def name(self) -> str:
        """What its grade ids start with: ``ex1`` for exercise 1."""
        return f"ex{self.number}"

    @property
    def task(self) -> str:
        """The text above the solution cell."""
        first = next((i for i, cell in enumerate(self.cells) if cell.cell_type == "code"), None)
        return "\n".join(cell.source for cell in self.cells[:first])

    @property
    def solutions(self) -> list[NotebookNode]:
        """The cells for the student's answer."""
        return [cell for cell in self.cells if setting(cell, "solution")]

    @property
    def tests(self) -> list[NotebookNode]:
        """The cells that give points."""
        return [cell for cell in self.cells if setting(cell, "grade")]

    @property
    def explanations(self) -> list[NotebookNode]:
        """The cells that explain the solution."""
        tagged = [cell for cell in self.cells if "solution" in cell.metadata.get("tags", [])]
        return [cell for cell in tagged if cell.cell_type == "markdown"]


def setting(cell: NotebookNode, name: str) -> object:
    """Return nbgrader's setting `name` of a cell; None where nbgrader does not know the cell.

    Parameters
    ----------
    cell : NotebookNode
        Any cell.
    name : str
        ``grade_id``, ``grade``, ``solution``, ``locked`` or ``points``.

    Returns
    -------
    object
        The value in the cell's metadata.
    """
    return cell.metadata.get("nbgrader", {}).get(name)


def exercise_of(grade_id: str) -> str:
    """Return the name of the exercise that a cell belongs to: ``ex1`` for ``ex1-tests-2``.

    Parameters
    ----------
    grade_id : str
        The cell's grade id.

    Returns
    -------
    str
        What stands before the first hyphen.
    """
    return grade_id.partition("-")[0]


def split(notebook: NotebookNode) -> list[Exercise]:
    """Split a notebook at the exercises' headings.

    Parameters
    ----------
    notebook : NotebookNode
        An exercise notebook; cells above the first heading belong to no exercise.

    Returns
    -------
    list of Exercise
        In the order of the page.
    """
    headings = [HEADING.match(cell.source) for cell in notebook.cells]
    starts = [i for i, found in enumerate(headings) if found]
    ends = [*starts[1:], len(notebook.cells)]
    return [
        Exercise(
            number=int(headings[start]["number"]),
            level=headings[start]["level"],
            points=int(headings[start]["points"]),
            cells=tuple(notebook.cells[start:end]),
        )
        for start, end in zip(starts, ends, strict=False)
    ]


def problems(source: NotebookNode, release: NotebookNode) -> list[str]:
    """Say what an exercise notebook lacks, and what its student version gives away.

    Parameters
    ----------
    source : NotebookNode
        The notebook with the solutions.
    release : NotebookNode
        The student version that nbgrader made of it.

    Returns
    -------
    list of str
        One sentence a problem; empty if there is none.
    """
    shown = {setting(cell, "grade_id"): cell.source for cell in release.cells}
    exercises = split(source)
    found = [*_order(exercises), *_notebook_wide(source, exercises)]
    for exercise in exercises:
        parts = [_text(exercise), _answer(exercise, shown), _tests(exercise, shown)]
        parts.append(_leaks(exercise, release, shown))
        found += [f"exercise {exercise.number}: {problem}" for part in parts for problem in part]
    return found


def _order(exercises: list[Exercise]) -> Iterator[str]:
    if [exercise.number for exercise in exercises] != list(range(1, len(exercises) + 1)):
        yield "the exercises are not numbered 1, 2, 3, ..."
    levels = tuple(exercise.level for exercise in exercises)
    if levels != LEVELS:
        yield f"the levels are {', '.join(levels) or 'missing'}; they must be {', '.join(LEVELS)}"


def _notebook_wide(source: NotebookNode, exercises: list[Exercise]) -> Iterator[str]:
    above = len(source.cells) - sum(len(exercise.cells) for exercise in exercises)
    if any(setting(cell, "grade") for cell in source.cells[:above]):
        yield "a test cell stands above the first exercise"
    for cell in source.cells:
        if cell.cell_type == "markdown" and (found := BOOK_ONLY.search(cell.source)):
            yield f"{found[0]!r} is MyST that JupyterLab does not show: only dropdown and doc are"


def _text(exercise: Exercise) -> Iterator[str]:
    if len(DROPDOWN.sub("", exercise.task).strip().splitlines()) < 2:
        yield "the heading is not followed by a task"
    if not DROPDOWN.search(exercise.task):
        yield "there is no hint in a dropdown above the solution cell"
    if not any(DROPDOWN.search(cell.source) for cell in exercise.explanations):
        yield "there is no explained solution: a markdown cell tagged 'solution' with a dropdown"


def _answer(exercise: Exercise, shown: dict[str, str]) -> Iterator[str]:
    ids = [setting(cell, "grade_id") for cell in exercise.solutions]
    if ids != [f"{exercise.name}-solution"]:
        yield f"the solution cells are {ids}; there must be one, {exercise.name}-solution"
        return
    [cell] = exercise.solutions
    if setting(cell, "grade"):
        yield "the solution cell must not be graded itself"
    if "hide-input" not in cell.metadata.get("tags", []):
        yield "the solution cell is not tagged 'hide-input'"
    if not _solution_lines(cell, shown):
        yield "there is no solution between BEGIN SOLUTION and END SOLUTION"
    starter = [node.name for node in _nodes(shown.get(ids[0], ""), ast.FunctionDef)]
    if not starter:
        yield "the starter defines no function (or is not Python)"
    for name in starter:
        if f"{name}(" not in exercise.task:
            yield f"the task does not give the signature of {name}"


def _tests(exercise: Exercise, shown: dict[str, str]) -> Iterator[str]:
    total = sum(setting(cell, "points") for cell in exercise.tests)
    if total != exercise.points:
        yield f"the test cells give {total:g} points, the heading says {exercise.points}"
    visible = all_asserts = 0
    for cell in exercise.tests:
        grade_id = setting(cell, "grade_id")
        if not grade_id.startswith(f"{exercise.name}-tests") or not setting(cell, "locked"):
            yield f"the test cell {grade_id!r} must be locked and be called {exercise.name}-tests"
        student_view = shown.get(grade_id, "")
        faults = dict.fromkeys([*_test_faults(cell.source), *_test_faults(student_view)])
        yield from (f"the test cell {grade_id!r} {fault}" for fault in faults)
        visible += len(_nodes(student_view, ast.Assert))
        all_asserts += len(_nodes(cell.source, ast.Assert))
    if all_asserts <= visible:
        yield "there is no hidden assert"
    if not visible:
        yield "no assert is visible to the student"


def _test_faults(code: str) -> Iterator[str]:
    tree = _parsed(code)
    if tree is None:
        yield "is not Python (as the teacher or as the student sees it)"
    elif tree.body and isinstance(tree.body[-1], ast.Expr):
        yield "ends in an expression: nbgrader would take its value for the points"
    if any(node.msg is None for node in _nodes(code, ast.Assert)):
        yield "has an assert without a message"


def _leaks(exercise: Exercise, release: NotebookNode, shown: dict[str, str]) -> Iterator[str]:
    public = "\n".join(
        _squeezed(line) for cell in release.cells for line in cell.source.split("\n")
    )
    for cell in exercise.solutions:
        lines = _solution_lines(cell, shown)
        given_away = [line for line in lines if line in public]
        # A single line, such as the one that makes the generator, may well recur in a test.
        if lines and 2 * len(given_away) >= len(lines):
            yield f"the student version shows the solution's {given_away[0]!r}"


def _solution_lines(cell: NotebookNode, shown: dict[str, str]) -> list[str]:
    """Return the lines of code that nbgrader took out of a solution cell."""
    kept = {
        _squeezed(line) for line in shown.get(setting(cell, "grade_id"), "").splitlines()
    } - set(STUB)
    lines = [_squeezed(line) for line in cell.source.splitlines()]
    return [line for line in lines if line and not line.startswith("#") and line not in kept]


def _squeezed(line: str) -> str:
    return " ".join(line.split())


def _parsed(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except SyntaxError:
        return None


def _nodes(code: str, kind: type[ast.AST]) -> list:
    tree = _parsed(code)
    return [node for node in ast.walk(tree) if isinstance(node, kind)] if tree else []
