"""A headless Chromium for tests of pages, driven by Playwright.

It is the system's (``apt-get install chromium``), not one of Playwright's downloads; without it the
tests that need it are skipped.
"""

import shutil
import time
from contextlib import contextmanager

import pytest

PATH = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")
DESK = {"width": 1400, "height": 1000}
PHONE = {"width": 390, "height": 844}
TIMEOUT_MS = 30_000


@contextmanager
def chromium():
    """The browser, while a block lasts."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if PATH is None:
        pytest.skip("there is no chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PATH, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser, url, *, fetches=True, **options):
    """A page at ``url``; nothing may have gone wrong in it by the end of the block, nor have been
    fetched if it ``fetches`` nothing. ``options`` are of the context."""
    context = browser.new_context(**{"viewport": DESK, **options})
    complaints, requests = [], []
    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda said: said.type in {"error", "warning"} and complaints.append(said.text),
    )
    page.on("dialog", lambda dialog: [complaints.append(dialog.message), dialog.dismiss()])
    page.on("request", lambda request: requests.append(request.url))
    page.goto(url)
    yield page
    assert complaints == []
    assert page.evaluate("window.hacked") is None
    assert fetches or requests == [url]
    context.close()


def settled(page):
    """Wait until what has changed is drawn: two frames."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def until(page, expression, argument=None, timeout_s=30.0):
    """Wait until a JavaScript expression, or a function of ``argument``, is true.

    Playwright's own ``wait_for_function`` evaluates it in a later frame, where a page's security
    policy forbids that.
    """
    deadline = time.monotonic() + timeout_s
    while not page.evaluate(expression, argument):
        assert time.monotonic() < deadline, f"in {timeout_s:.0f} s never true: {expression}"
        settled(page)


def point(page, selector, x=0.5, y=0.5, *, clicks=0):
    """Move the mouse to a place in an element, in shares of its size; and click so often."""
    at = place(page, selector, x, y)
    page.mouse.move(*at)
    if clicks:
        page.mouse.click(*at, click_count=clicks)
    settled(page)


def drag(page, selector, start, end):
    """Draw the mouse across the middle of an element, with its button down."""
    page.mouse.move(*place(page, selector, start))
    page.mouse.down()
    page.mouse.move(*place(page, selector, end))
    page.mouse.up()
    settled(page)


def tap(page, selector):
    """Touch the middle of an element with a finger."""
    page.touchscreen.tap(*place(page, selector))
    settled(page)


def place(page, selector, x=0.5, y=0.5):
    """A place in an element, which is brought into view, in the window."""
    found = page.locator(selector).first
    found.evaluate("(it) => it.scrollIntoView({block: 'center', behavior: 'instant'})")
    box = found.bounding_box()
    return box["x"] + x * box["width"], box["y"] + y * box["height"]
