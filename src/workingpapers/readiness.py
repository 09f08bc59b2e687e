"""Whether this machine has what the book needs."""

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

PURPOSES = {
    "book": "building the book",
    "course": "making and grading a course",
    "distributed": "runs on a Dask cluster",
    "lora": "training a large model by adapters",
    "test": "running the tests",
}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for on this machine.

    Attributes
    ----------
    name : str
        What was looked for.
    found : str
        What is there: a version, an amount, a device; a dash for nothing.
    verdict : str
        ``"ok"``, ``"missing"``, ``"too old"`` or ``"too new"``.
    purpose : str
        What it is needed for.
    required : bool
        Whether nothing works without it.
    """

    name: str
    found: str
    verdict: str
    purpose: str
    required: bool = False


def examine(checkout: Path) -> list[Finding]:
    """Look this machine over.

    Parameters
    ----------
    checkout : pathlib.Path
        Folder whose ``pyproject.toml`` says which versions are needed.

    Returns
    -------
    list of Finding
        Python, the libraries, processor, memory, GPU and browser, in this order.
    """
    text = (checkout / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    return [*_python(project), *_libraries(project), *_hardware(), *_browser()]


def _python(project: dict) -> Iterator[Finding]:
    version = platform.python_version()
    verdict = _compare(version, SpecifierSet(project["requires-python"]))
    yield Finding("Python", version, verdict, "everything", required=True)


def _libraries(project: dict) -> Iterator[Finding]:
    for requirement in project["dependencies"]:
        yield _library(requirement, "everything", required=True)
    for extra, requirements in project.get("optional-dependencies", {}).items():
        for requirement in requirements:
            yield _library(requirement, PURPOSES.get(extra, f"the extra {extra!r}"), False)


def _library(text: str, purpose: str, required: bool) -> Finding:
    requirement = Requirement(text)
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return Finding(requirement.name, "-", "missing", purpose, required)
    verdict = _compare(version, requirement.specifier)
    return Finding(requirement.name, version, verdict, purpose, required)


def _compare(version: str, allowed: SpecifierSet) -> str:
    if allowed.contains(version, prereleases=True):
        return "ok"
    lower = [bound for bound in allowed if bound.operator in (">=", ">", "~=", "==")]
    old = any(not bound.contains(version, prereleases=True) for bound in lower)
    return "too old" if old else "too new"


def _hardware() -> Iterator[Finding]:
    memory = psutil.virtual_memory().total / 2**30
    yield Finding("processor cores", str(os.cpu_count()), "ok", "runs in parallel over seeds")
    yield Finding("memory", f"{memory:.1f} GiB", "ok", "everything")
    gpu = _gpu()
    yield Finding("GPU", gpu or "-", "ok" if gpu else "missing", "reproduce --device cuda")


def _gpu() -> str:
    """Name of the GPU that PyTorch can use or, without PyTorch, that the driver reports."""
    if importlib.util.find_spec("torch"):
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return _first_line("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")


def _browser() -> Iterator[Finding]:
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((name for name in names if shutil.which(name)), "chromium")
    for program in (browser, "chromedriver"):
        version = re.search(r"\d+(\.\d+)+", _first_line(program, "--version"))
        found, verdict = (version[0], "ok") if version else ("-", "missing")
        yield Finding(program, found, verdict, "testing pages in a browser")


def _first_line(program: str, *arguments: str) -> str:
    """First line that a program prints; empty if it is not there or fails."""
    if not shutil.which(program):
        return ""
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return next(iter(done.stdout.splitlines()), "").strip()
