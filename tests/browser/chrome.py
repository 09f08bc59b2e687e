"""A headless Chromium that opens the built book from disk with the network closed."""

import json
import os
import shutil
from pathlib import Path

from selenium import webdriver

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--allow-file-access-from-files",
    "--hide-scrollbars",
    # No name resolves and every proxy is closed: the page has only what lies beside it.
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=127.0.0.1:9",
)


def browsers() -> tuple[str | None, str | None]:
    """Return the paths of a Chromium and of its driver, or None for what is missing."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    return browser, shutil.which("chromedriver")


def start(width: int = 1280, height: int = 900) -> webdriver.Chrome:
    """Start a browser; the caller quits it."""
    browser, driver = browsers()
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--window-size={width},{height}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    os.environ.setdefault("SE_OFFLINE", "true")  # selenium's own manager stays off the network
    chrome = webdriver.Chrome(options, webdriver.ChromeService(driver))
    # Headless windows do not go below 500 pixels; the device metrics do.
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    return chrome


def requests(chrome: webdriver.Chrome) -> list[str]:
    """Return what the page asked for since the last call, but for files and inline data."""
    messages = (json.loads(entry["message"])["message"] for entry in chrome.get_log("performance"))
    addresses = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    return [url for url in addresses if not url.startswith(("file:", "data:", "blob:", "chrome"))]


def errors(chrome: webdriver.Chrome) -> list[str]:
    """Return the console's errors since the last call."""
    return [e["message"] for e in chrome.get_log("browser") if e["level"] == "SEVERE"]


def page_height(chrome: webdriver.Chrome) -> int:
    """Return the height of the whole page in pixels."""
    return chrome.execute_script("return document.documentElement.scrollHeight")


def screenshot(chrome: webdriver.Chrome, path: Path, width: int) -> None:
    """Store a picture of the whole page, down to its end."""
    height = page_height(chrome)
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    chrome.save_screenshot(str(path))
