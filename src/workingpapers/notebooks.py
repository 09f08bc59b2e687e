"""Notebooks as the book stores them: executed, with outputs, and always in the same form."""

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

LARGEST = 3_000_000  # bytes of a stored notebook
KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"  # means nothing without its kernel
_QUIET = {
    "TQDM_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def execute(path: Path, timeout: int = 600) -> float:
    """Run a notebook from top to bottom and store it with its outputs, normalised.

    Parameters
    ----------
    path : Path
        The notebook; it is left as it was if a cell fails.
    timeout : int
        Seconds that a single cell may take.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        If a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    with _environment(_QUIET):
        NotebookClient(notebook, timeout=timeout, resources=resources).execute()
    nbformat.write(normalised(notebook), path)


def normalised(notebook: NotebookNode) -> NotebookNode:
    """Return a copy of a notebook in the one form in which notebooks are stored.

    No widget state, no time stamps, numbered cells, one kernelspec.
    """
    notebook = copy.deepcopy(notebook)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    kept = {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}}
    notebook.metadata = nbformat.from_dict(kept)
    count = 0
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number:03d}"
        cell.metadata.pop("execution", None)
        cell.metadata.pop("trusted", None)
        if cell.cell_type != "code":
            continue
        if cell.execution_count is not None:
            count += 1
            cell.execution_count = count
        cell.outputs = [_normalised_output(output, count) for output in cell.outputs]
    return notebook


def _normalised_output(output: NotebookNode, count: int) -> NotebookNode:
    if "data" in output:
        output.data.pop(WIDGET_VIEW, None)
    if output.output_type == "execute_result":
        output.execution_count = count
    return output


def problems(path: Path) -> Iterator[str]:
    """Yield what is wrong with a stored notebook, a sentence each."""
    size = path.stat().st_size
    if size > LARGEST:
        yield f"{path.name} has {size:,} bytes, at most {LARGEST:,} are allowed"
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    if any(cell.execution_count is None for cell in cells):
        yield f"{path.name} has cells without outputs: run 'make execute CH={path.stem}'"
    if any(output.output_type == "error" for cell in cells for output in cell.outputs):
        yield f"{path.name} stores an error: mend the cell and run 'make execute CH={path.stem}'"
    if normalised(notebook) != notebook:
        yield f"{path.name} is not in the stored form: run 'make execute CH={path.stem}'"


def hosted_copy(notebook: NotebookNode, address: str) -> NotebookNode:
    """Return a copy whose first cell installs the package, for a hosted notebook service.

    Parameters
    ----------
    notebook : NotebookNode
        A notebook of the book.
    address : str
        The https address of the repository.
    """
    notebook = copy.deepcopy(notebook)
    source = (
        "# A hosted machine has no copy of the package yet: take it from the book's repository.\n"
        "import importlib.util\n\n"
        'if importlib.util.find_spec("workingpapers") is None:\n'
        f'    %pip install --quiet "workingpapers @ git+{address}"'
    )
    notebook.cells.insert(0, nbformat.v4.new_code_cell(source, id="install"))
    return notebook


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
