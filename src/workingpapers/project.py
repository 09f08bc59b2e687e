"""Where things of the book are: the checkout, its papers, and the five rooms of each."""

import ast
import difflib
import importlib.util
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

import yaml

import workingpapers

# Sub-packages that are no papers: the ground floor, and the tools of the book.
GROUND_FLOOR = frozenset({"control", "course", "data", "lab", "language", "page"})


def root() -> Path:
    """Find the checkout of the book.

    Returns
    -------
    pathlib.Path
        The folder that this package is installed from, if it is a checkout; else the nearest
        checkout at or above the current folder.

    Raises
    ------
    FileNotFoundError
        If there is none: the package was installed without the book.
    """
    here = Path.cwd()
    for folder in (Path(__file__).resolve().parents[2], here, *here.parents):
        if _is_checkout(folder):
            return folder
    raise FileNotFoundError(
        "this needs a checkout of the book (a folder with _toc.yml, book/ and pyproject.toml), "
        f"and there is none at or above {here}"
    )


def _is_checkout(folder: Path) -> bool:
    files = all((folder / name).is_file() for name in ("_toc.yml", "pyproject.toml"))
    return files and (folder / "book").is_dir()


def rooms(slug: str) -> dict[str, Path]:
    """Where the five parts of a chapter are, whether they exist yet or not.

    Parameters
    ----------
    slug : str
        Name of the chapter, not checked.

    Returns
    -------
    dict of str to pathlib.Path
        The places of its ``package``, ``tests``, ``benchmark``, ``chapter`` and ``exercises``.

    Raises
    ------
    FileNotFoundError
        If there is no checkout.
    """
    checkout = root()
    return {
        "package": checkout / "src" / "workingpapers" / slug,
        "tests": checkout / "tests" / f"test_{slug}.py",
        "benchmark": checkout / "benchmarks" / f"{slug}.py",
        "chapter": checkout / "book" / f"{slug}.ipynb",
        "exercises": checkout / "book" / "exercises" / f"{slug}.ipynb",
    }


def notebooks(name: str) -> list[Path]:
    """Where the notebooks of a chapter, or of another page of the book, are.

    Parameters
    ----------
    name : str
        Name of a page that is a notebook: a paper's, or such as ``index``.

    Returns
    -------
    list of pathlib.Path
        The page, and the exercises if there are any.

    Raises
    ------
    ValueError
        If no notebook has this name; the message lists those there are.
    FileNotFoundError
        If there is no checkout.
    """
    book = root() / "book"
    found = [*book.glob("*.ipynb"), *book.glob("exercises/*.ipynb")]
    known = sorted({path.stem for path in found})
    if name not in known:
        raise ValueError(f"no notebook is called {name!r}; there is: {', '.join(known)}")
    return [path for path in found if path.stem == name]


def results(slug: str, scale: str = "laptop") -> Path:
    """Where the measured claims of a paper are stored.

    Parameters
    ----------
    slug : str
        Name of the paper.
    scale : str, default "laptop"
        The scale that they were measured at.

    Returns
    -------
    pathlib.Path
        The result file: of the checkout, or the copy that an installed package carries.

    Raises
    ------
    TypeError, ValueError
        If no paper has this name.
    """
    check_slug(slug)
    from workingpapers.lab.results import file_name  # brings in pandas: too slow for `--help`

    name = file_name(slug, scale)
    carried = Path(__file__).parent / "results" / name
    return carried if carried.exists() else root() / "benchmarks" / "results" / name


def papers() -> list[str]:
    """List the papers that this package holds.

    Returns
    -------
    list of str
        Their slugs, in reading order; those that the table of contents does not name come last,
        by name. Without a checkout there is no table of contents, and all are sorted by name.
    """
    found = {
        module.name
        for module in pkgutil.iter_modules(workingpapers.__path__)
        if module.ispkg and module.name not in GROUND_FLOOR
    }
    chapters = [name for name in _table_of_contents() if name in found]
    return list(dict.fromkeys(chapters)) + sorted(found.difference(chapters))


def _table_of_contents() -> list[str]:
    """Names of the book's pages in reading order, without folder or ending."""
    try:
        text = (root() / "_toc.yml").read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [Path(file).stem for file in _files(yaml.safe_load(text))]


def _files(node: object) -> list[str]:
    if isinstance(node, list):
        return [file for item in node for file in _files(item)]
    if not isinstance(node, dict):
        return []
    here = [node["file"]] if "file" in node else []
    return here + [file for value in node.values() for file in _files(value)]


def title(slug: str) -> str:
    """Title of a paper's chapter, read without importing the paper's package.

    Parameters
    ----------
    slug : str
        Name of the paper.

    Returns
    -------
    str
        The first line of the docstring of its package, without the full stop.

    Raises
    ------
    ValueError
        If there is no such paper, or its package has no docstring.
    """
    spec = importlib.util.find_spec(f"workingpapers.{check_slug(slug)}")
    source = Path(spec.origin)
    docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))
    if not docstring:
        raise ValueError(f"{source} must begin with a docstring: its first line is the title")
    return docstring.splitlines()[0].removesuffix(".")


def benchmark(slug: str) -> ModuleType:
    """Load the file that measures a paper's claims.

    Parameters
    ----------
    slug : str
        Name of the paper.

    Returns
    -------
    module
        ``benchmarks/<slug>.py`` of the checkout, freshly loaded.

    Raises
    ------
    FileNotFoundError
        If there is no checkout, or it has no such file.
    """
    file = rooms(slug)["benchmark"]
    if not file.is_file():
        raise FileNotFoundError(f"{slug} has no claims to measure: there is no {file}")
    spec = importlib.util.spec_from_file_location(f"benchmarks.{slug}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look a module up by its name
    spec.loader.exec_module(module)
    return module


def check_slug(slug: str) -> str:
    """Refuse a name that is not a paper's.

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
    TypeError
        If it is not a string.
    ValueError
        If no paper has this name; the message lists those there are, and the closest first.
    """
    if not isinstance(slug, str):
        raise TypeError(f"a chapter is named by a string, got {slug!r}")
    known = papers()
    if slug not in known:
        close = difflib.get_close_matches(slug, known, n=1)
        guess = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"no chapter is called {slug!r}; {guess}there is: {', '.join(known)}")
    return slug
