"""How fast the built pages are: size, time to the first widget, time from input to redraw.

The first opening in a new browser, which has compiled no script yet, is told apart as "cold".

Run after ``make book``, with Chromium and chromedriver installed::

    python benchmarks/pages.py

Every page with a widget is opened from disk in a headless browser, with the network closed.
Writes ``benchmarks/results/pages.json``.
"""

import json
import statistics
import sys
from pathlib import Path

from workingpapers.lab.provenance import machine

ROOT = Path(__file__).parents[1]
HTML = ROOT / "_build" / "html"
sys.path.insert(0, str(ROOT / "tests" / "browser"))

import chrome  # noqa: E402

LOADS = 8
# Runs before the page does: leads the reader to the first widget as soon as it is there, and notes
# when it is drawn and has its inputs (the script then writes the state's number).
WATCH = """
document.addEventListener('readystatechange', () => {
  const figure = document.querySelector('.wp-figure');
  if (figure && document.readyState === 'interactive') figure.scrollIntoView({block: 'center'});
});
const look = () => {
  const figure = document.querySelector('.wp-figure[data-drawn]:has(.wp-control)');
  if (figure) window.firstWidget = performance.now();
  else requestAnimationFrame(look);
};
look();
"""
FIRST = """
const done = arguments[arguments.length - 1];
const wait = () => window.firstWidget ? done(window.firstWidget) : setTimeout(wait, 20);
wait();
"""
REDRAW = """
const done = arguments[arguments.length - 1];
const times = [];
async function drawn(figure, before) {
  const start = performance.now();
  while (figure.dataset.drawn === before) await new Promise(requestAnimationFrame);
  return performance.now() - start;
}
(async () => {
  for (const figure of document.querySelectorAll('.wp-figure:has(.wp-control)')) {
    figure.scrollIntoView({block: 'center'});
    while (!figure.dataset.drawn) await new Promise(requestAnimationFrame);
    for (const input of figure.querySelectorAll('.wp-control input')) {
      for (let place = 0; place <= Number(input.max); place++) {
        if (Number(input.value) === place) continue;
        const before = figure.dataset.drawn;
        input.value = place;
        input.dispatchEvent(new Event('input'));
        times.push(await drawn(figure, before));
      }
    }
  }
  done(times);
})();
"""


def measure(page: Path) -> dict:
    """Open a page several times, then move every slider of it through its range."""
    browser = chrome.start()
    browser.set_script_timeout(120)
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    first = []
    for _ in range(LOADS):
        browser.get(page.as_uri())
        first.append(browser.execute_async_script(FIRST))
    redraws = browser.execute_async_script(REDRAW)
    browser.quit()
    return {
        "megabytes": round(page.stat().st_size / 1e6, 3),
        "first_widget_ms": {"cold": round(first[0], 1), **_summary(first[1:])},
        "redraw_ms": _summary(redraws),
        "redraws": len(redraws),
    }


def _summary(times: list[float]) -> dict[str, float]:
    cuts = {"min": min(times), "median": statistics.median(times), "max": max(times)}
    return {name: round(value, 1) for name, value in cuts.items()}


def main() -> None:
    """Measure all pages with widgets and store the figures."""
    pages = [page for page in sorted(HTML.rglob("*.html")) if '"controls":[{' in page.read_text()]
    if not pages:
        sys.exit(f"error: no page with a widget in {HTML}: run 'make book' first")
    found = {str(page.relative_to(HTML)): measure(page) for page in pages}
    for name, figures in found.items():
        print(name, json.dumps(figures))
    target = ROOT / "benchmarks" / "results" / "pages.json"
    target.write_text(json.dumps({"machine": machine(), "pages": found}, indent=1) + "\n")
    print(f"Written: {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
