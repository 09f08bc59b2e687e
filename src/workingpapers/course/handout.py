"""What students get: exercises without solutions, the chapters, the package, and how to begin.

The folder has the layout of the book, so that links between its pages work as they stand. A link
to a page of the book that students do not get loses its link and keeps its words.
"""

import os
import re
import shutil
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import nbformat

from workingpapers.course.exercises import DROPDOWN

PAGES = (".ipynb", ".md")
LINK = re.compile(r"(?P<image>!?)\[(?P<label>[^\]\n]*)\]\((?P<target>[^)\s]+)\)")
DOC = re.compile(r"\{doc\}`(?:(?P<label>[^`<]+?)\s*<)?(?P<target>[^`<>]+)>?`")
README = """\
# Exercises: {chapters}

You need Python 3.11 or later. In this folder:

    python -m venv .venv
    source .venv/bin/activate        (Windows: .venv\\Scripts\\activate)
    pip install ./package jupyterlab
    jupyter lab

The folder `exercises/` has one notebook a chapter; the chapters themselves lie beside this file.

## How to work
- Write your answer where a cell says `# YOUR CODE HERE`, and delete the line
  `raise NotImplementedError()`.
- Run the test cell below it. Silence means that it passes; an error says what is wrong. The
  grading runs these tests and some more that you do not see.
- Test cells can be run but not changed: what you change in them is undone before grading. You may
  add cells of your own. Do not delete, copy or split the cells that are there.
- Before you hand in: *Kernel > Restart Kernel and Run All Cells*. A cell that runs for more than
  60 seconds is stopped and gets no points.

## How to hand in
Save the notebook and hand in the file, under the name it has ({files}), in the
way that your teacher has told you.
"""


def make_handout(folder: Path, released: dict[str, Path], root: Path) -> None:
    """Fill the folder that students get.

    Parameters
    ----------
    folder : Path
        The folder to make.
    released : dict of str to Path
        For each chapter of the course, the student version that nbgrader made of its exercises.
    root : Path
        The checkout of the book.

    Raises
    ------
    ValueError
        If a page links to a page that does not exist.
    """
    root = root.resolve()
    book = root / "book"
    exercises = {book / "exercises" / f"{slug}.ipynb": path for slug, path in released.items()}
    kept = _files_for_students(exercises, root)
    for file in kept:
        target = folder / file.relative_to(book)
        target.parent.mkdir(parents=True, exist_ok=True)
        relink = partial(_relinked, page=file, kept=kept, root=root)
        if file in exercises:
            _copy_page(exercises[file], target, lambda text, relink=relink: _unfenced(relink(text)))
        elif file.suffix in PAGES:
            _copy_page(file, target, relink)
        else:
            shutil.copy(file, target)
    _copy_package(folder / "package", root)
    files = ", ".join(f"`{slug}.ipynb`" for slug in released)
    text = README.format(chapters=", ".join(released), files=files)
    (folder / "README.md").write_text(text, encoding="utf-8")


def _files_for_students(exercises: dict[Path, Path], root: Path) -> set[Path]:
    """Return the exercises, their chapters, the pages they link to, and all images of these."""
    chapters = {root / "book" / page.name for page in exercises}
    linked = {file for page in exercises for file in _linked(page, root)}
    pages = {file for file in linked if file.suffix in PAGES} | chapters
    images = {file for page in [*pages, *exercises] for file in _linked(page, root)}
    files = pages | {file for file in images if file.suffix not in PAGES}
    # The sources of exercises hold the solutions.
    safe = {file for file in files if root / "book" / "exercises" not in file.parents}
    return {file for file in safe if root / "book" in file.parents} | set(exercises)


def _linked(page: Path, root: Path) -> set[Path]:
    texts = [_without_roles(text, page, root) for text in _texts(page)]
    targets = {link["target"] for text in texts for link in LINK.finditer(text)}
    return {file for target in targets if (file := _file(target, page, root))}


def _texts(page: Path) -> list[str]:
    """Return the Markdown of a page: a text, or one for each cell of a notebook."""
    if page.suffix == ".md":
        return [page.read_text(encoding="utf-8")]
    notebook = nbformat.read(page, as_version=4)
    return [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]


def _file(target: str, page: Path, root: Path) -> Path | None:
    """Return the file that a link means; None for an address on the web or a place on the page."""
    path = target.partition("#")[0]
    if not path or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path):
        return None
    base = root if path.startswith("/") else page.parent
    plain = (base / path.lstrip("/")).resolve()
    for file in (plain, *(plain.with_name(plain.name + suffix) for suffix in PAGES)):
        if file.is_file():
            return file
    if plain.suffix in PAGES:
        raise ValueError(f"{page.name} links to {target}, which does not exist")
    return None


def _without_roles(text: str, page: Path, root: Path) -> str:
    """Replace the ``doc`` role of MyST by a Markdown link."""

    def link(role: re.Match) -> str:
        if _file(role["target"], page, root) is None:
            raise ValueError(f"{page.name} links to {role['target']}, which does not exist")
        return f"[{role['label'] or ''}]({role['target']})"

    return DOC.sub(link, text)


def _relinked(text: str, page: Path, kept: set[Path], root: Path) -> str:
    def relink(link: re.Match) -> str:
        file = _file(link["target"], page, root)
        if file is None:
            return link[0]
        label = link["label"] or _title(file)
        if file not in kept:
            return label
        path = Path(os.path.relpath(file, page.parent)).as_posix()
        _, mark, anchor = link["target"].partition("#")
        return f"{link['image']}[{label}]({path}{mark}{anchor})"

    return LINK.sub(relink, _without_roles(text, page, root))


def _title(page: Path) -> str:
    lines = [line for text in _texts(page) for line in text.splitlines()]
    return next((line[2:].strip() for line in lines if line.startswith("# ")), page.stem)


def _unfenced(text: str) -> str:
    """Replace dropdowns, which JupyterLab does not know, by HTML that it folds."""
    folded = r"<details><summary>\g<title></summary>\n\n\g<body>\n</details>"
    return DROPDOWN.sub(folded, text)


def _copy_page(source: Path, target: Path, rewrite: Callable[[str], str]) -> None:
    if source.suffix == ".md":
        target.write_text(rewrite(source.read_text(encoding="utf-8")), encoding="utf-8")
        return
    notebook = nbformat.read(source, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = rewrite(cell.source)
    nbformat.write(notebook, target)


def _copy_package(folder: Path, root: Path) -> None:
    """Copy what pip needs to install the package: pyproject.toml, and the files that it names."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    project, wheel = settings["project"], settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    code = [*wheel["packages"], *wheel.get("force-include", ())]
    for name in ("pyproject.toml", project["readme"], *project["license-files"], *code):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (root / name).is_dir():
            shutil.copytree(root / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(root / name, target)
