import os
from pathlib import Path

import chrome
import pytest

ROOT = Path(__file__).parents[2]
HTML = ROOT / "_build" / "html"


def pytest_collection_modifyitems(items):
    """Without a browser the tests are skipped by name; where one is demanded they fail."""
    if all(chrome.browsers()) or os.environ.get("WORKINGPAPERS_BROWSER") == "required":
        return
    missing = pytest.mark.skip(reason="no chromium and chromedriver on this machine")
    for item in items:
        if "browser" in item.fixturenames:
            item.add_marker(missing)


@pytest.fixture(scope="session")
def browser():
    """A window of 1280 pixels that every test shares."""
    assert all(chrome.browsers()), "chromium and chromedriver are required here, and missing"
    window = chrome.start()
    yield window
    window.quit()


def pages() -> list[Path]:
    """Every page of the built book."""
    return sorted(p for p in HTML.rglob("*.html") if "_static" not in p.parts)


def pytest_generate_tests(metafunc):
    if "page" in metafunc.fixturenames:
        found = pages()
        assert found, f"there is no built book in {HTML}: run 'make book'"
        metafunc.parametrize("page", found, ids=lambda p: str(p.relative_to(HTML)))
