"""The built book, opened from disk in a real browser with the network closed."""

import json
import os
import re
import shutil
import subprocess
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import chrome
import pytest
from conftest import HTML, ROOT
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

LOADS = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src")}


class Addresses(HTMLParser):
    """What a page loads, where it leads, and the names that can be led to."""

    def __init__(self):
        super().__init__()
        self.loads, self.links, self.names = [], [], set()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if name := attributes.get("id") or attributes.get("name"):
            self.names.add(name)
        for key, value in attributes.items():
            if (tag, key) in LOADS:
                self.loads.append(value)
        if "href" in attributes:
            leads = tag == "a" or attributes.get("rel") in ("index", "search", "next", "prev")
            (self.links if leads else self.loads).append(attributes["href"])


def addresses(page: Path) -> Addresses:
    found = Addresses()
    found.feed(page.read_text())
    return found


def outside(address: str) -> bool:
    return bool(urlsplit(address).netloc) or address.startswith("//")


def test_page_with_its_data_is_at_most_three_megabytes(page):
    assert page.stat().st_size <= 3_000_000


def test_nothing_is_loaded_from_outside(page):
    assert [address for address in addresses(page).loads if outside(address)] == []


def test_no_style_sheet_loads_from_outside():
    found = []
    for sheet in HTML.rglob("*.css"):
        text = sheet.read_text(errors="replace")
        urls = re.findall(r"(?:url\(|@import\s+)['\"]?([^'\")\s;]+)", text)
        found += [(sheet.name, url) for url in urls if outside(url) and not url.startswith("data:")]
    assert found == []


def test_links_inside_the_book_lead_somewhere(page):
    broken = []
    for link in addresses(page).links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if not target.exists() or (
            parts.fragment and unquote(parts.fragment) not in addresses(target).names
        ):
            broken.append(link)
    assert broken == []


def open_page(browser, page: Path, width: int = 1280, theme: str = "light"):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page.as_uri())
    browser.execute_script(
        "document.head.insertAdjacentHTML('beforeend',"
        " '<style>* { transition: none !important; }</style>');"
        "document.documentElement.dataset.theme = arguments[0]",
        theme,
    )
    WebDriverWait(browser, 20).until(
        lambda b: b.execute_script(
            "return document.readyState === 'complete' && (!window.MathJax || !MathJax.startup"
            " || !MathJax.startup.promise || !document.querySelector('.math')"
            " || !!document.querySelector('mjx-container'))"
        )
    )


def draw_all(browser):
    """Bring every figure of the page near the window, so that it is drawn."""
    for figure in browser.find_elements(By.CSS_SELECTOR, ".wp-figure"):
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", figure)
        WebDriverWait(browser, 10).until(lambda _, f=figure: f.get_attribute("data-drawn"))


def test_page_opens_without_errors_and_requests(browser, page):
    chrome.errors(browser), chrome.requests(browser)
    open_page(browser, page)
    draw_all(browser)
    time.sleep(0.3)
    assert chrome.errors(browser) == []
    assert chrome.requests(browser) == []
    raw = browser.execute_script(
        "return [...document.querySelectorAll('.math')]"
        ".filter(m => !m.querySelector('mjx-container')).map(m => m.textContent)"
    )
    assert raw == [], "formulas that were not typeset"
    assert browser.find_elements(By.CSS_SELECTOR, "mjx-merror") == []


def picture(figure) -> str:
    """The figure's drawing as text: its lines, bars, images and labels."""
    plot = figure.find_element(By.CSS_SELECTOR, ".wp-plot")
    return plot.parent.execute_script(
        "return [...arguments[0].querySelectorAll('svg.main-svg')].map(s => s.innerHTML).join('')",
        plot,
    )


def marks(figure) -> int:
    return len(figure.find_elements(By.CSS_SELECTOR, ".wp-plot svg path, .wp-plot svg image"))


def settled(browser, figure, state: int):
    WebDriverWait(browser, 5, poll_frequency=0.02).until(
        lambda _: figure.get_attribute("data-drawn") == str(state)
    )


def state_of(browser, figure) -> int:
    return browser.execute_script(
        "const place = (s, c) => s * (c.max !== undefined && c.type === 'range'"
        " ? Number(c.max) + 1 : c.options.length) + (c.type === 'range' ? Number(c.value)"
        " : c.selectedIndex);"
        "return [...arguments[0].querySelectorAll('.wp-control input, .wp-control select')]"
        ".reduce(place, 0)",
        figure,
    )


def seen(browser, figure) -> tuple[str, str]:
    """The picture and the reading once the page has caught up with its inputs."""
    settled(browser, figure, state_of(browser, figure))
    assert marks(figure) > 3, "a blank figure"
    return picture(figure), figure.find_element(By.CSS_SELECTOR, ".wp-reading").text


def count(control) -> int:
    if control.tag_name == "select":
        return len(Select(control).options)
    return int(control.get_attribute("max")) + 1


def by_keyboard(control):
    """Move a control through its whole range by keys, from the first value to the last."""
    choice = control.tag_name == "select"
    control.send_keys(Keys.HOME)
    yield
    for _ in range(count(control) - 1):
        control.send_keys(Keys.ARROW_DOWN if choice else Keys.ARROW_RIGHT)
        yield


def by_mouse(browser, control):
    """Move a control by the mouse: drag a slider's thumb, click the choices of a list."""
    if control.tag_name == "select":
        for option in Select(control).options:
            option.click()
            yield
        return
    width, steps = control.size["width"], min(count(control) - 1, 12)
    track = width - 18  # the thumb's centre stays half its width away from the ends
    for step in range(steps + 1):
        where = -width / 2 + 9 + track * step / steps
        mouse = ActionChains(browser, 0)
        mouse.move_to_element_with_offset(control, round(where), 0).click().perform()
        yield


def test_every_control_moves_picture_and_reading(browser, page):
    open_page(browser, page)
    draw_all(browser)
    chrome.errors(browser)
    for figure in browser.find_elements(By.CSS_SELECTOR, ".wp-figure:has(.wp-control)"):
        browser.execute_script("arguments[0].scrollIntoView({block: 'start'})", figure)
        controls = figure.find_elements(By.CSS_SELECTOR, ".wp-control input, .wp-control select")
        start = seen(browser, figure)
        for control in controls:
            name = f"{figure.get_attribute('id')}: {control.get_attribute('id')}"
            keyed = [seen(browser, figure) for _ in by_keyboard(control)]
            assert len(keyed) == count(control)
            moused = [seen(browser, figure) for _ in by_mouse(browser, control)]
            for way, states in (("keyboard", keyed), ("mouse", moused)):
                pictures, readings = (len(set(part)) for part in zip(*states, strict=True))
                assert pictures > 1, f"{name}: the picture does not change by {way}"
                assert readings > 1, f"{name}: the reading does not change by {way}"
            figure.find_element(By.CSS_SELECTOR, ".wp-controls button").click()
            assert seen(browser, figure) == start, f"{name}: reset does not lead back"
    assert chrome.errors(browser) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_sticks_out(browser, page, width):
    open_page(browser, page, width)
    draw_all(browser)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    if width == 1280:
        long = browser.execute_script(
            "return [...document.querySelectorAll('.cell_input pre')]"
            ".filter(p => p.scrollWidth > p.clientWidth + 1).map(p => p.textContent.slice(0, 80))"
        )
        assert long == [], "code that does not fit"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_serious_violation(browser, page, theme, axe):
    open_page(browser, page, theme=theme)
    draw_all(browser)
    browser.execute_script(axe)
    found = browser.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "axe.run(document, {resultTypes: ['violations']}).then(r => done(r.violations))"
    )
    bad = [
        (violation["id"], [node["target"] for node in violation["nodes"]][:3])
        for violation in found
        if violation["impact"] in ("serious", "critical")
    ]
    assert bad == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, from npm, at the version that package-lock.json pins."""
    folder = Path(__file__).parent
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        if not shutil.which("npm"):
            assert os.environ.get("WORKINGPAPERS_BROWSER") != "required", "npm is required here"
            pytest.skip("no npm on this machine to fetch axe-core")
        subprocess.run(["npm", "ci", "--silent"], cwd=folder, check=True)
    return script.read_text()


def test_figures_follow_the_theme(browser, page):
    open_page(browser, page)
    figures = browser.find_elements(By.CSS_SELECTOR, ".wp-figure")
    if not figures:
        pytest.skip("no figure on this page")
    draw_all(browser)
    ink = "return getComputedStyle(arguments[0].querySelector('.wp-plot text')).fill"
    light = browser.execute_script(ink, figures[0])
    browser.execute_script("document.documentElement.dataset.theme = 'dark'")
    WebDriverWait(browser, 5).until(lambda b: b.execute_script(ink, figures[0]) != light)


def first_widget(browser):
    return browser.find_element(By.CSS_SELECTOR, ".wp-figure:has(.wp-control)")


def test_coming_back_to_a_page_leaves_figure_and_reading_in_step(browser):
    page = HTML / "index.html"
    open_page(browser, page)
    draw_all(browser)
    _picture, fresh = seen(browser, first_widget(browser))
    first_widget(browser).find_element(By.CSS_SELECTOR, "input").send_keys(Keys.END)
    seen(browser, first_widget(browser))
    open_page(browser, HTML / "notation.html")
    browser.back()
    draw_all(browser)
    control = first_widget(browser).find_element(By.CSS_SELECTOR, "input")
    shown = first_widget(browser).find_element(By.CSS_SELECTOR, "output").text
    assert shown == control.get_attribute("aria-valuetext")
    _picture, now = seen(browser, first_widget(browser))
    assert (now == fresh) == (control.get_attribute("value") == "0")


def test_figures_are_dark_on_white_on_paper_whatever_the_theme(browser):
    open_page(browser, HTML / "fair_bandits.html", theme="dark")
    draw_all(browser)
    inks = "return [...document.querySelectorAll('.wp-plot .xtick text')].map(t => t.style.fill)"
    on_screen = set(browser.execute_script(inks))
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    time.sleep(1)
    on_paper = set(browser.execute_script(inks))
    widths = browser.execute_script(
        "return [...document.querySelectorAll('.wp-plot')].map(p => p.scrollWidth - p.clientWidth)"
    )
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert on_screen == {"rgb(230, 230, 230)"}
    assert on_paper == {"rgb(31, 35, 40)"}
    assert max(widths) <= 1


def test_one_broken_figure_leaves_the_others_alive(browser):
    source = HTML / "fair_bandits.html"
    broken = source.with_name("one-broken-figure.html")
    broken.write_text(source.read_text().replace('class="wp-data">{', 'class="wp-data">?{', 1))
    try:
        browser.get(broken.as_uri())
        figures = browser.find_elements(By.CSS_SELECTOR, ".wp-figure")
        for figure in figures[1:]:
            browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", figure)
            WebDriverWait(browser, 10).until(lambda _, f=figure: f.get_attribute("data-drawn"))
        assert "cannot be drawn" in figures[0].find_element(By.CSS_SELECTOR, ".wp-plot").text
    finally:
        broken.unlink()
        chrome.errors(browser)


def test_script_says_so_when_plotly_is_missing(browser):
    """A page without plotly.js beside it says what is missing, instead of a blank box."""
    source = next((p for p in sorted(HTML.glob("*.html")) if "wp-data" in p.read_text()), None)
    assert source, "the book has a page with a figure"
    broken = source.with_name("without-plotly.html")
    broken.write_text(source.read_text().replace("_static/plotly.min.js", "_static/gone.js"))
    try:
        browser.get(broken.as_uri())
        plot = browser.find_element(By.CSS_SELECTOR, ".wp-plot")
        browser.execute_script("arguments[0].scrollIntoView()", plot)
        WebDriverWait(browser, 10).until(lambda _: "plotly.js was not found" in plot.text)
    finally:
        broken.unlink()
        chrome.errors(browser)


def test_package_lock_pins_axe():
    lock = json.loads((ROOT / "tests" / "browser" / "package-lock.json").read_text())
    assert lock["packages"]["node_modules/axe-core"]["integrity"].startswith("sha512-")
