"""A Sphinx extension: what the built page needs so that its figures live without a kernel.

Named in ``_config.yml``. It copies plotly.js out of the installed plotly package, writes the
house templates beside it, loads both only on pages that hold a figure, and points the launch
buttons at the repository that the checkout came from.
"""

import json
import shutil
import subprocess
from pathlib import Path

import nbformat
import plotly

from workingpapers.notebooks import hosted_copy
from workingpapers.page.style import plotly_template

HOSTED_BRANCH = "gh-pages"  # where the published book, and its hosted notebooks, stand


def setup(app) -> dict:
    """Connect the extension to Sphinx."""
    app.connect("config-inited", _point_at_repository)
    app.connect("html-page-context", _load_scripts, priority=900)
    app.connect("html-page-context", _launch_hosted, priority=950)
    app.connect("build-finished", _write_assets)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def repository_url(folder: Path) -> str | None:
    """Return the https address of the GitHub repository that ``folder`` was cloned from.

    None without git, without a remote called origin, or if that is not on GitHub.
    """
    try:
        command = ["git", "-C", str(folder), "remote", "get-url", "origin"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    remote = done.stdout.strip().removesuffix(".git")
    remote = remote.replace("git@github.com:", "https://github.com/")
    remote = remote.replace("ssh://git@github.com/", "https://github.com/")
    return remote if remote.startswith("https://github.com/") else None


def _point_at_repository(app, config) -> None:
    """Give the theme its launch buttons, or none where there is nothing to launch from."""
    address = repository_url(Path(app.srcdir))
    options = config.html_theme_options
    options["use_repository_button"] = address is not None
    options["use_issues_button"] = address is not None
    if address is None:
        options.pop("launch_buttons", None)
        return
    options["repository_url"] = address


def _load_scripts(app, page, template, context, doctree) -> None:
    """Load what figures need where there are some; the book's own script is on every page."""
    # sphinx-thebe, which Jupyter Book always adds, names an address outside the page.
    scripts = context["script_files"]
    scripts[:] = [script for script in scripts if not _is_thebe(script)]
    if "wp-data" in context.get("body", ""):
        for name in ("plotly.min.js", "templates.js"):
            app.add_js_file(name, loading_method="defer", priority=200)  # before MathJax


def _is_thebe(script) -> bool:
    named = f"{getattr(script, 'filename', script)} {getattr(script, 'attributes', '')}"
    return "thebe" in named.lower()


def _launch_hosted(app, page, template, context, doctree) -> None:
    """Send the Colab button to the copy whose first cell installs the package."""
    for group in context.get("header_buttons") or []:
        for button in group.get("buttons", []):
            if "colab" in str(button.get("url", "")):
                address = app.config.html_theme_options["repository_url"]
                place = address.removeprefix("https://github.com/")
                button["url"] = (
                    "https://colab.research.google.com/github/"
                    f"{place}/blob/{HOSTED_BRANCH}/notebooks/{page}.ipynb"
                )


def _write_assets(app, error) -> None:
    if error or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    shutil.copyfile(
        Path(plotly.__file__).parent / "package_data" / "plotly.min.js", static / "plotly.min.js"
    )
    templates = {theme: plotly_template(theme).to_plotly_json() for theme in ("light", "dark")}
    ready = 'window.dispatchEvent(new Event("workingpapers"))'
    (static / "templates.js").write_text(f"window.workingPapers={json.dumps(templates)};{ready};\n")
    if address := repository_url(Path(app.srcdir)):
        _write_hosted(Path(app.srcdir), Path(app.outdir) / "notebooks", address)


def _write_hosted(source: Path, target: Path, address: str) -> None:
    for path in sorted([*source.glob("*.ipynb"), *source.glob("exercises/*.ipynb")]):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(hosted_copy(nbformat.read(path, as_version=4), address), copy)
