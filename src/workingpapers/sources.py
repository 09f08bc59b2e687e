"""Which files a paper's results depend on: its own, and what they reach by imports."""

import ast
from collections.abc import Iterator
from pathlib import Path

from workingpapers import project


def sources(slug: str) -> list[Path]:
    """List the files of this project that decide what a paper's results are.

    They are the paper's package and benchmark, and all that these import, and so on. A name that
    is imported from a package that only hands it on stands for the file where it is defined, so
    that what is added to the ground floor for one paper does not make the results of others stale.

    Parameters
    ----------
    slug : str
        Name of the paper, not checked.

    Returns
    -------
    list of pathlib.Path
        Sorted. Libraries are not among them: results carry their versions.

    Raises
    ------
    FileNotFoundError
        If there is no checkout, or no benchmark.
    SyntaxError
        If a file is not Python.
    """
    rooms = project.rooms(slug)
    root = rooms["package"].parent
    found: set[Path] = set()
    waiting = [rooms["benchmark"], *rooms["package"].rglob("*.py")]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting.extend(_imported(file, root))
    return sorted(found)


def _imported(file: Path, root: Path) -> Iterator[Path]:
    """Yield the files of the package at ``root`` that a file imports, at its top or later."""
    for node in ast.walk(_parsed(file)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _whole(root.parent.joinpath(*alias.name.split(".")), root)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield from _defined(root.parent.joinpath(*node.module.split(".")), alias.name, root)


def _whole(place: Path, root: Path) -> list[Path]:
    """Return the files of a module, or of a package: which of its names are used is not known."""
    if not place.is_relative_to(root) or place == root:
        return []
    module = place.with_suffix(".py")
    return [module] if module.is_file() else list(place.rglob("*.py"))


def _defined(place: Path, name: str, root: Path) -> list[Path]:
    """Return the files that a name of a module or package comes from."""
    inner = _whole(place / name, root)
    package = place / "__init__.py"
    if inner or not place.is_relative_to(root):
        return inner
    if not package.is_file():
        return _whole(place, root)
    for node in _parsed(package).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    module = root.parent.joinpath(*node.module.split("."))
                    return _defined(module, alias.name, root)
    return [package]


def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
