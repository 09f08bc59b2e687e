"""Which files a paper's results depend on."""

import pytest

from workingpapers import lab, project
from workingpapers.sources import sources

FILES = {
    "src/workingpapers/__init__.py": "",
    "src/workingpapers/urns/__init__.py": "from workingpapers.urns.draw import draw\n",
    "src/workingpapers/urns/draw.py": "import numpy\nfrom workingpapers.checks import whole\n",
    "src/workingpapers/checks.py": "",
    "src/workingpapers/other_paper/__init__.py": "",
    "src/workingpapers/tools/__init__.py": (
        "from workingpapers.tools.means import average as mean\n"
        "from workingpapers.tools.deeper import median, mode\n"
        "VERSION = 1\n"
    ),
    "src/workingpapers/tools/means.py": "def average(): from workingpapers.tools import late\n",
    "src/workingpapers/tools/late.py": "",
    "src/workingpapers/tools/unused.py": "",
    "src/workingpapers/tools/deeper/__init__.py": (
        "from workingpapers.tools.deeper.order import median\n"
        "from workingpapers.tools.deeper.often import mode\n"
    ),
    "src/workingpapers/tools/deeper/order.py": "",
    "src/workingpapers/tools/deeper/often.py": "",
}
OWN = {"benchmarks/urns.py", "src/workingpapers/urns/__init__.py", "src/workingpapers/urns/draw.py"}
OTHERS = "page", "course"
OWN.add("src/workingpapers/checks.py")


@pytest.fixture
def found(monkeypatch, tmp_path):
    """Write a checkout whose benchmark has some imports; return the sources' names."""
    files = {"_toc.yml": "", "pyproject.toml": "", "book/a.txt": ""} | FILES
    monkeypatch.setattr(project, "__file__", str(tmp_path / "src/workingpapers/project.py"))

    def run(benchmark, **changed):
        for name, text in (files | {"benchmarks/urns.py": benchmark} | changed).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return {path.relative_to(tmp_path).as_posix() for path in sources("urns")}

    return run


@pytest.mark.parametrize(
    ("benchmark", "reached"),
    [
        ("from workingpapers import urns", []),
        ("import numpy, workingpapers", []),
        ("from workingpapers.tools import mean", ["means.py", "late.py"]),
        ("from workingpapers.tools import median", ["deeper/order.py"]),
        ("from workingpapers.tools.deeper import mode as m", ["deeper/often.py"]),
        ("from workingpapers.tools.means import average", ["means.py", "late.py"]),
        (
            "from workingpapers.tools import VERSION",
            ["__init__.py", "means.py", "late.py", "deeper/order.py", "deeper/often.py"],
        ),
        ("from workingpapers.tools import unused", ["unused.py"]),
        ("import workingpapers.tools.unused", ["unused.py"]),
        ("def f():\n    import workingpapers.tools.unused", ["unused.py"]),
        (
            "from workingpapers.tools import deeper",
            ["deeper/__init__.py", "deeper/order.py", "deeper/often.py"],
        ),
        (
            "from workingpapers import tools",
            [name.partition("tools/")[2] for name in FILES if "/tools/" in name],
        ),
    ],
)
def test_sources_are_what_is_reached_by_imports(found, benchmark, reached):
    assert found(benchmark) == OWN | {f"src/workingpapers/tools/{name}" for name in reached}


def test_imports_in_a_circle_end(found):
    circle = {"src/workingpapers/checks.py": "from workingpapers.urns import draw"}
    assert found("from workingpapers import urns", **circle) == OWN


def test_a_missing_benchmark_is_an_error(found, tmp_path):
    found("")
    (tmp_path / "benchmarks/urns.py").unlink()
    with pytest.raises(FileNotFoundError, match=r"urns\.py"):
        sources("urns")


@pytest.mark.parametrize("slug", project.papers())
def test_a_change_of_the_ground_floor_makes_results_stale(slug):
    files = sources(slug)
    names = {file.relative_to(project.root()).as_posix() for file in files}
    assert {"src/workingpapers/lab/statistics.py", f"benchmarks/{slug}.py"} <= names
    assert not any(name.startswith(f"src/workingpapers/{one}/") for name in names for one in OTHERS)
    fewer = [file for file in files if file.parts[-2:] != ("lab", "statistics.py")]
    assert lab.fingerprint(fewer) != lab.fingerprint(files)
