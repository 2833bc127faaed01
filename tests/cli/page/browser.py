"""A headless Chromium, driven by Playwright; without either, the tests that need it are skipped.

Playwright is in the dependency group ``browser``, Chromium in the system's packages: ``make
browser`` says how to get both.
"""

import shutil
from contextlib import contextmanager

import pytest

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")
DESK = {"width": 1400, "height": 1000}
PHONE = {"width": 390, "height": 844}


@contextmanager
def chromium():
    """The browser, while a block lasts."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("there is no chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser, url, **options):
    """A page at ``url``; nothing may have gone wrong in it by the end of the block."""
    context = browser.new_context(**{"viewport": DESK, **options})
    complaints = []
    page = context.new_page()
    page.set_default_timeout(10_000)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda said: said.type in {"error", "warning"} and complaints.append(said.text),
    )
    page.goto(url)
    yield page
    assert complaints == []
    assert page.evaluate("window.hacked") is None
    context.close()
