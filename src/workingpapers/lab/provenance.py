"""What a result was made with: the source's fingerprint, the versions, the machine."""

import ast
import hashlib
import io
import os
import platform
import tokenize
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

import joblib
import psutil

_PACKAGES = (
    "workingpapers",
    "numpy",
    "scipy",
    "pandas",
    "joblib",
    "networkx",
    "scikit-learn",
    "statsmodels",
    "torch",
    "transformers",
    "gymnasium",
)


def fingerprint(paths: Sequence[Path | str]) -> str:
    """Return a checksum of source files that changes when what they do may have changed.

    Blank lines, lines of comment alone and docstrings do not count, nor does the order of
    ``paths`` or where the tree lies. The files' names relative to their common folder count.

    Parameters
    ----------
    paths : sequence of paths
        Files, and folders that stand for all ``*.py`` under them; at least one. Files that are
        not ``*.py`` count byte by byte.

    Returns
    -------
    str
        SHA-256, 64 hexadecimal digits.

    Raises
    ------
    TypeError
        If ``paths`` is a single path.
    FileNotFoundError
        If a path does not exist.
    ValueError
        If there is no file, or one is not Python.
    """
    if isinstance(paths, str | Path):
        raise TypeError(f"paths must be a sequence of paths; got the single path {paths}")
    files = sorted({file.resolve() for path in paths for file in _files(Path(path))})
    if not files:
        raise ValueError("paths must name at least one file; got none")
    root = os.path.commonpath([file.parent for file in files])
    total = hashlib.sha256()
    for file in files:
        content = hashlib.sha256(_what_counts(file)).hexdigest()
        total.update(f"{file.relative_to(root).as_posix()}\0{content}\n".encode())
    return total.hexdigest()


def versions() -> dict[str, str]:
    """Return the versions of Python and of those installed packages that results depend on."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, str | int | float]:
    """Return what kind of machine this is, without anything that names it or its user."""
    return {
        "processor": _processor(),
        "cores": joblib.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    # Linux leaves platform.processor() empty, or gives the architecture only.
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return list(path.rglob("*.py"))
    if not path.exists():
        raise FileNotFoundError(f"source {path} does not exist")
    return [path]


def _what_counts(file: Path) -> bytes:
    """Return the content of a file without the lines that cannot change what it does."""
    if file.suffix != ".py":
        return file.read_bytes()
    try:
        with tokenize.open(file) as stream:  # hears the file's own declaration of its encoding
            text = stream.read()
        lines = text.split("\n")
        ignored = set(_idle_lines(text, lines)) | set(_docstring_lines(text, lines))
    except (SyntaxError, ValueError, tokenize.TokenError) as error:
        raise ValueError(f"source {file} is not Python: {error}") from None
    counted = [line for number, line in enumerate(lines, start=1) if number not in ignored]
    return "\n".join(counted).rstrip().encode()


def _idle_lines(text: str, lines: Sequence[str]) -> Iterable[int]:
    """Yield the numbers of the lines that are blank or comment alone.

    Tokens tell them from such lines inside a string, which do count.
    """
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row, column = token.start
        if token.type in (tokenize.COMMENT, tokenize.NL) and not lines[row - 1][:column].strip():
            yield row


def _docstring_lines(text: str, lines: Sequence[str]) -> Iterable[int]:
    """Yield the numbers of the lines that hold a docstring and nothing else."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            doc = node.body[0]
            before = lines[doc.lineno - 1].encode()[: doc.col_offset].strip()
            after = lines[doc.end_lineno - 1].encode()[doc.end_col_offset :].strip()
            if not before and (not after or after.startswith(b"#")):
                yield from range(doc.lineno, doc.end_lineno + 1)
