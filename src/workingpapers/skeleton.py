"""The five rooms of a new chapter, each saying what belongs there.

What is written here fails its own checks until the chapter is real: the test asks for a public
API, the benchmark for experiments, the exercises for tests.
"""

import keyword
import re
from importlib.util import find_spec
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from workingpapers import project
from workingpapers.course.exercises import LEVELS
from workingpapers.notebooks import normalised

LONGEST_TITLE = 80  # characters: the title is the first line of a docstring

PACKAGE = '''"""{title}.

Say here which paper this is (authors, venue, year) and what its idea is, in two sentences.
The method and its baselines go into files beside this one that are named after the paper's own
ideas; this file imports the public names from them and lists them.
"""

__all__: list[str] = []
'''

TESTS = '''"""What proves `workingpapers.{slug}` right.

Closed forms, brute force, limits, invariants, other libraries; properties; a table of bad input.
"""

import workingpapers.{slug} as paper


def test_the_public_api_is_listed_and_documented():
    assert paper.__all__, "list the public names in __all__"
    for name in paper.__all__:
        assert getattr(paper, name).__doc__, f"{{name}} has no docstring"
'''

BENCHMARK = '''"""The claims of "{title}", measured.

`CLAIMS` holds what the paper says, a `Claim` each; `plan` lists the experiments that decide them.
"""

from workingpapers.lab import Claim, Experiment

SCALES = ("laptop", "paper")
DEVICES = ("cpu",)
CLAIMS: list[Claim] = []


def plan(scale: str, device: str) -> list[Experiment]:
    """List the experiments of a scale: what is run, over which cases, with how many seeds."""
    raise NotImplementedError("the experiments of {slug} have not been written")
'''

SECTIONS = (
    ("What goes wrong without it", "One scene with numbers and a picture. No symbols."),
    ("The idea", "The one idea of the paper, in a widget, before any algebra."),
    ("Symbols", "Each symbol once, in a table, beside its name in the code."),
    (
        "The method, step by step",
        "For each step the formula, why it has this form, a few lines of code, and an assertion "
        "that the package agrees. Then the whole algorithm, and the package run on real input.",
    ),
    (
        "Why it works",
        "The theorem, its assumptions, a proof or sketch, and a numerical test of it.",
    ),
    ("Beside the alternatives", "Method and baselines on the same seeds, with intervals."),
    ("Claims and measurements", "The table of measured claims; where they differ, and why."),
    ("Where it breaks", "The method losing, shown. Departures from the paper, with reasons."),
    ("At full size", "The command for the paper's configuration, its cost, and your own data."),
    ("Check yourself", "Four questions with folded answers, each aimed at a misunderstanding."),
    ("Further reading", "A sentence a reference: why read it."),
)

CARD = """# {title}

This cell is the card of the chapter. It names the paper, its authors and venue, links to it, and
gives the citation key; then the idea in one sentence, what to know first, and how long a run takes.
Three lines close it that begin with "After this chapter you can"."""

EXERCISE = """## Exercise {number} ({level}, {points} points): name it

The task: what `exercise_{number}()` takes and returns, and why it is worth writing.

```{{dropdown}} Hint
What to try first.
```"""

SOLUTION = '''def exercise_{number}():
    """Say what it takes and what it returns."""
    ### BEGIN SOLUTION
    raise NotImplementedError("the solution of exercise {number} has not been written")
    ### END SOLUTION'''

EXERCISE_TESTS = """assert exercise_{number}() is not None, "say what is wrong, and where to look"
### BEGIN HIDDEN TESTS
raise NotImplementedError("the hidden tests of exercise {number} have not been written")
### END HIDDEN TESTS"""

EXPLANATION = """```{{dropdown}} Solution of exercise {number}
The solution in words, and what it taught.
```"""

POINTS = {"warm-up": 2, "core": 3, "stretch": 4, "research": 6}


def check_new_slug(slug: str) -> str:
    """Refuse a name that a new chapter cannot have.

    Parameters
    ----------
    slug : str
        Name to check.

    Returns
    -------
    str
        The same name.

    Raises
    ------
    ValueError
        If it is not snake_case, is a word of Python, or is taken in the package.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", slug) or keyword.iskeyword(slug):
        raise ValueError(f"a chapter is named in snake_case, such as 'fair_bandits'; got {slug!r}")
    if slug in project.GROUND_FLOOR or find_spec(f"workingpapers.{slug}"):
        raise ValueError(f"the name {slug!r} is taken: workingpapers.{slug}")
    return slug


def check_title(title: str) -> str:
    """Refuse a title that cannot be the first line of a docstring.

    Parameters
    ----------
    title : str
        Title to check.

    Returns
    -------
    str
        The same title.

    Raises
    ------
    ValueError
        If it is empty, longer than 80 characters, or holds a line break, a double quote or a
        backslash.
    """
    if not title.strip() or len(title) > LONGEST_TITLE or not title.isprintable():
        raise ValueError(f"a title is one line of 1 to {LONGEST_TITLE} characters; got {title!r}")
    if '"' in title or "\\" in title:
        raise ValueError(f"a title has no double quote and no backslash; got {title!r}")
    return title


def create(slug: str, title: str) -> list[Path]:
    """Write the five rooms of a new chapter into the checkout: all of them, or none.

    Parameters
    ----------
    slug : str
        Name of the chapter in code and file names, in snake_case.
    title : str
        Title of the chapter, in plain words.

    Returns
    -------
    list of pathlib.Path
        The files written.

    Raises
    ------
    FileExistsError
        If one of them exists.
    ValueError
        If the slug or the title cannot be used.
    """
    files = _files(check_new_slug(slug), check_title(title))
    taken = [str(file) for file in files if file.exists()]
    if taken:
        raise FileExistsError(f"nothing is overwritten, and there is already: {', '.join(taken)}")
    written: list[Path] = []
    try:
        for file, text in files.items():
            _write_new(file, text)
            written.append(file)
    except OSError:
        for file in written:
            file.unlink()
        raise
    return written


def _write_new(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("x", encoding="utf-8") as stream:
        stream.write(text)


def _files(slug: str, title: str) -> dict[Path, str]:
    rooms = project.rooms(slug)
    words = {"slug": slug, "title": title}
    return {
        rooms["package"] / "__init__.py": PACKAGE.format(**words),
        rooms["tests"]: TESTS.format(**words),
        rooms["benchmark"]: BENCHMARK.format(**words),
        rooms["chapter"]: _text(_chapter(slug, title)),
        rooms["exercises"]: _text(_exercises(title)),
    }


def _text(cells: list[NotebookNode]) -> str:
    return nbformat.writes(normalised(new_notebook(cells=cells))) + "\n"


def _chapter(slug: str, title: str) -> list[NotebookNode]:
    imports = new_code_cell(f"import workingpapers.{slug} as paper\n\npaper.__all__")
    sections = [new_markdown_cell(f"## {heading}\n\n{text}") for heading, text in SECTIONS]
    return [new_markdown_cell(CARD.format(title=title)), imports, *sections]


def _exercises(title: str) -> list[NotebookNode]:
    cells = [new_markdown_cell(f"# Exercises: {title}")]
    for number, level in enumerate(LEVELS, 1):
        cells += _exercise(number, level, POINTS[level])
    return cells


def _exercise(number: int, level: str, points: int) -> list[NotebookNode]:
    task = EXERCISE.format(number=number, level=level, points=points)
    solution = {"nbgrader": _nbgrader(f"ex{number}-solution", solution=True)}
    tests = {"nbgrader": _nbgrader(f"ex{number}-tests", grade=True, locked=True, points=points)}
    return [
        new_markdown_cell(task),
        new_code_cell(SOLUTION.format(number=number), metadata=solution | {"tags": ["hide-input"]}),
        new_code_cell(EXERCISE_TESTS.format(number=number), metadata=tests),
        new_markdown_cell(EXPLANATION.format(number=number), metadata={"tags": ["solution"]}),
    ]


def _nbgrader(grade_id: str, **what: bool | int) -> dict[str, object]:
    kind = {"grade": False, "locked": False, "solution": False, "task": False}
    return {"schema_version": 3, "grade_id": grade_id, **kind, **what}
