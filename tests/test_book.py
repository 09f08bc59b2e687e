"""The book as a whole: its notebooks are in the stored form, its lists agree with one another."""

import ast
import itertools
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from workingpapers import lab, notebooks, project
from workingpapers.page.sphinx import repository_url
from workingpapers.sources import sources

ROOT = Path(__file__).parents[1]
BOOK = ROOT / "book"
NOTEBOOKS = sorted([*BOOK.glob("*.ipynb"), *BOOK.glob("exercises/*.ipynb")])
PAPERS = project.papers()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def tracked() -> list[Path]:
    """Every file of the project, whether committed yet or not."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()]


def code_cells(path: Path):
    return [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]


def name(path: Path) -> str:
    return str(path.relative_to(BOOK))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_notebook_is_in_the_stored_form(path):
    assert list(notebooks.problems(path)) == []


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if "exercises" not in p.parts], ids=name)
def test_cells_and_functions_are_short_and_there_is_no_class(path):
    for cell in code_cells(path):
        assert cell.source.count("\n") < 25, f"a cell of over 25 lines: {cell.source[:60]}"
        for node in ast.walk(ast.parse(cell.source)):
            assert not isinstance(node, ast.ClassDef), f"class {node.name} belongs in the package"
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 15, f"{node.name} is over 15 lines"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_most_cells_are_compared_and_drawing_cells_are_not(path):
    for cell in code_cells(path):
        drawn = any(
            "image/png" in output.get("data", {}) or "wp-data" in str(output.get("data", {}))
            for output in cell.outputs
        )
        ignored = "nbval-ignore-output" in cell.metadata.get("tags", [])
        assert ignored or not drawn, f"a drawing is compared: {cell.source[:60]}"
        assert not (ignored and any(o.output_type == "stream" for o in cell.outputs)), (
            f"a printed number is not compared: {cell.source[:60]}"
        )
        assert "nbval-skip" not in cell.metadata.get("tags", [])


def test_every_paper_has_its_five_rooms_and_its_results():
    for slug in PAPERS:
        missing = [str(room) for room in project.rooms(slug).values() if not room.exists()]
        assert missing == []
        assert project.results(slug).exists()


@pytest.mark.parametrize("slug", PAPERS)
def test_results_were_made_by_the_code_at_hand(slug):
    laptop = project.results(slug)
    for path in (laptop, *laptop.parent.glob(f"{slug}-*.json")):
        stored = lab.read_results(path)
        assert stored.source == lab.fingerprint(sources(slug)), f"stale: run {stored.command!r}"
        listed = [claim.id for claim in lab.claims_of(project.benchmark(slug), stored.scale)]
        assert [claim["id"] for claim in stored.claims] == listed


@pytest.mark.parametrize("slug", PAPERS)
def test_chapter_has_the_contract_s_parts(slug):
    cells = nbformat.read(project.rooms(slug)["chapter"], as_version=4).cells
    text = "\n".join(c.source for c in cells if c.cell_type == "markdown")
    code = "\n".join(c.source for c in cells if c.cell_type == "code")
    assert text.splitlines()[0] == f"# {project.title(slug)}"
    assert len(re.findall(r"^## ", text, re.M)) >= 10
    assert 2500 <= len(text.split()) <= 4800
    assert code.count("page.Explorer(") >= 3
    assert text.count("{dropdown}") >= 4
    assert "prf:algorithm" in text
    assert "prf:theorem" in text
    assert "page.claims_table(" in code
    assert f"(exercises/{slug})" in text


def test_import_contracts_name_every_paper():
    for contract in PYPROJECT["tool"]["importlinter"]["contracts"]:
        named = set(contract.get("modules", [])) | set(contract["source_modules"])
        named |= set(contract["forbidden_modules"])
        assert {f"workingpapers.{slug}" for slug in PAPERS} <= named, contract["name"]


def test_table_of_contents_is_the_book():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    listed = {toc["root"], *re.findall(r"file: (\S+)", (ROOT / "_toc.yml").read_text())}
    pages = [*NOTEBOOKS, *BOOK.glob("*.md")]
    assert listed == {str(p.relative_to(BOOK).with_suffix("")) for p in pages}


def test_cover_and_readme_list_the_chapters_that_exist():
    cover = nbformat.read(BOOK / "index.ipynb", as_version=4)
    text = "\n".join(c.source for c in cover.cells if c.cell_type == "markdown")
    table = text[text.index("## The chapters that exist") : text.index("## Where to start")]
    assert re.findall(r"^\|[^|]*\| \[[^]]*\]\((\w+)\)", table, re.M) == PAPERS
    readme = (ROOT / "README.md").read_text()
    rows = readme[readme.index("## Chapters") : readme.index("## Two commands")]
    assert re.findall(r"^\|[^|]*\| `(\w+)`", rows, re.M) == PAPERS


def test_relative_links_of_the_readme_lead_somewhere():
    for file in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", (ROOT / file).read_text()):
            assert (ROOT / target).exists(), f"{file} points to {target}"


def constraints() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in found}


def test_constraints_pin_one_version_inside_every_range():
    pins = constraints()
    extras = PYPROJECT["project"]["optional-dependencies"]
    for text in itertools.chain(PYPROJECT["project"]["dependencies"], *extras.values()):
        wanted = Requirement(text)
        pin = pins[canonicalize_name(wanted.name)]
        (exact,) = pin.specifier
        assert exact.operator == "=="
        assert exact.version in wanted.specifier, f"{pin} is outside {wanted}"


def test_environment_file_installs_this_project_at_these_pins():
    file = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = (item["pip"] for item in file["dependencies"] if isinstance(item, dict))
    assert pip == ["--constraint constraints.txt", "--editable .[book]"]
    torch = next(d for d in file["dependencies"] if str(d).startswith("pytorch-cpu="))
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert torch.replace("pytorch-cpu=", "torch==") in pins
    python = next(d for d in file["dependencies"] if str(d).startswith("python="))
    version = python.removeprefix("python=")
    assert f"Programming Language :: Python :: {version}" in PYPROJECT["project"]["classifiers"]


def test_no_file_names_a_path_of_somebody_s_machine():
    pattern = re.compile(r"(?<![\w.])/(?:home|root|Users|work|farm)/\w")
    found = []
    for path in tracked():
        if path.suffix in {".py", ".md", ".ipynb", ".yml", ".toml", ".json", ".cff", ".txt", ""}:
            found += [f"{path.name}: {m[0]}" for m in pattern.finditer(path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/some/book.git", "https://github.com/some/book"),
        ("git@github.com:some/book.git", "https://github.com/some/book"),
        ("ssh://git@github.com/some/book", "https://github.com/some/book"),
        ("https://example.org/some/book.git", None),
        (None, None),
    ],
)
def test_launch_buttons_follow_the_remote(tmp_path, remote, address):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    if remote:
        command = ["git", "-C", tmp_path, "remote", "add", "origin", remote]
        subprocess.run(command, check=True)
    assert repository_url(tmp_path) == address


def test_built_pages_launch_the_repository_that_they_came_from(tmp_path):
    shutil.copytree(BOOK / "_static", tmp_path / "book" / "_static")
    shutil.copy(BOOK / "index.ipynb", tmp_path / "book" / "index.ipynb")
    shutil.copy(BOOK / "references.bib", tmp_path / "book" / "references.bib")
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: index\n")
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    remote = "git@github.com:some/book.git"
    subprocess.run([*git, "remote", "add", "origin", remote], check=True)
    command = [str(Path(sys.executable).with_name("jupyter-book")), "build", "--quiet", "book"]
    places = ["--config", str(ROOT / "_config.yml"), "--toc", str(tmp_path / "_toc.yml")]
    subprocess.run(
        [*command, *places, "--path-output", "."], cwd=tmp_path, check=True, capture_output=True
    )
    page = (tmp_path / "_build" / "html" / "index.html").read_text()
    assert "mybinder.org/v2/gh/some/book/main?urlpath=lab/tree/book/index.ipynb" in page
    hosted = "colab.research.google.com/github/some/book/blob/gh-pages/notebooks/index.ipynb"
    assert hosted in page
    assert (tmp_path / "_build" / "html" / "notebooks" / "index.ipynb").exists()


def test_hosted_copy_installs_the_package_first_and_is_valid():
    notebook = nbformat.read(BOOK / "index.ipynb", as_version=4)
    hosted = notebooks.hosted_copy(notebook, "https://github.com/some/book")
    nbformat.validate(hosted)
    assert "git+https://github.com/some/book" in hosted.cells[0].source
    assert hosted.cells[1:] == notebook.cells


def stored(tmp_path, *cells, **metadata):
    notebook = nbformat.v4.new_notebook(cells=list(cells), metadata=metadata)
    path = tmp_path / "paper.ipynb"
    nbformat.write(notebook, path)
    return path


def test_notebook_without_outputs_is_told(tmp_path):
    path = stored(tmp_path, nbformat.v4.new_code_cell("1 + 1"))
    assert any("cells without outputs" in problem for problem in notebooks.problems(path))


def test_stored_error_widget_state_and_size_are_told(tmp_path):
    error = nbformat.v4.new_output("error", ename="E", evalue="", traceback=[])
    path = stored(
        tmp_path,
        nbformat.v4.new_code_cell("x", outputs=[error], execution_count=7),
        widgets={"state": {}},
    )
    told = " ".join(notebooks.problems(path))
    assert "stores an error" in told
    assert "not in the stored form" in told
    large = nbformat.v4.new_output("stream", text="x" * 3_000_000)
    path = stored(tmp_path, nbformat.v4.new_code_cell("x", outputs=[large], execution_count=1))
    assert any("at most 3,000,000" in problem for problem in notebooks.problems(path))


def test_execute_stores_the_normal_form_and_leaves_a_failing_notebook_alone(tmp_path):
    widget = "import ipywidgets\nipywidgets.IntSlider(3)"
    path = stored(tmp_path, nbformat.v4.new_code_cell(widget), nbformat.v4.new_code_cell("6 * 7"))
    notebooks.execute(path)
    assert list(notebooks.problems(path)) == []
    assert "42" in path.read_text()
    assert "widget-view" not in path.read_text()
    failing = stored(tmp_path, nbformat.v4.new_code_cell("1 / 0"))
    before = failing.read_bytes()
    with pytest.raises(Exception, match="ZeroDivisionError"):
        notebooks.execute(failing)
    assert failing.read_bytes() == before


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_notebook_opens_no_connection_at_import(path):
    """No notebook names an address that it would fetch."""
    for cell in code_cells(path):
        assert not re.search(r"https?://|urlopen|requests\.|fetch\(", cell.source)


def test_make_help_lists_every_target():
    told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    targets = re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.M)
    assert len(targets) >= 8
    for target in targets:
        assert f"make {target}" in told.stdout


@pytest.mark.parametrize("target", ["execute", "course", "reproduce"])
def test_make_targets_ask_for_what_is_missing(target):
    command = ["make", target, f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "say which chapter" in done.stderr + done.stdout
