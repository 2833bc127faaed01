"""How long frames take while a large trace is zoomed and panned: ``python -m
tests.cli.page.frames``.

A frame is from one callback of requestAnimationFrame to the next; a screen has 60 a second, that is
16.7 ms each. ``page`` is what the page's own callbacks take of a frame; the rest is the browser's,
and on a busy machine other programs'.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles

from tests.browser import chromium, opened
from tests.cli.page.made import LARGE, large, store_with
from tests.cli.page.test_open import running

NUM_SPANS = 10_000
NUM_STEPS = 90

_RECORD = """() => {
  const ask = window.requestAnimationFrame.bind(window);
  const found = window.found = {frames: [], page: []};
  let own = 0;
  window.requestAnimationFrame = (draw) => ask((now) => {
    const began = performance.now();
    draw(now);
    own += performance.now() - began;
  });
  let last = performance.now();
  const next = (now) => {
    found.frames.push(now - last);
    found.page.push(own);
    [last, own] = [now, 0];
    ask(next);
  };
  ask(next);
}"""
_RECORDED = """() => {
  const {frames, page} = window.found;
  Object.assign(window.found, {frames: [], page: []});
  return [frames.slice(2), page.slice(2)];
}"""


def timed(page, name: str, act: Callable[[], object]) -> None:
    """Print how long the frames took while ``act`` lasted, and the page's part of them."""
    page.evaluate(_RECORDED)
    act()
    took, own = page.evaluate(_RECORDED)
    say(f"{name:<9} {len(took):>4} frames  {shown(took)}   page {shown(own)}")


def shown(ms: list[float]) -> str:
    cuts = quantiles(ms, n=100, method="inclusive")
    return f"p50 {cuts[49]:>5.1f}  p95 {cuts[94]:>5.1f}  max {max(ms):>6.1f} ms"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        store = store_with(Path(folder) / "t.sqlite", large(NUM_SPANS))
        with running("--no-browser", "--store", store) as (_, url):
            began = time.monotonic()
            with opened(browser, f"{url}#/trace/{LARGE}") as page:
                page.wait_for_selector(".lanes canvas")
                say(page.locator(".heading p").first.inner_text())
                say(f"shown {time.monotonic() - began:.1f} s after it was asked for")
                measure(page)


def measure(page) -> None:
    box = page.locator(".lanes").bounding_box()
    x, y = box["x"] + box["width"] * 0.4, box["y"] + 150

    def wheel(by: int) -> Callable[[], object]:
        return lambda: [page.mouse.wheel(0, by) for _ in range(NUM_STEPS)]

    def drag() -> None:
        page.mouse.down()
        page.mouse.move(x - 400, y, steps=NUM_STEPS)
        page.mouse.up()

    page.evaluate(_RECORD)
    timed(page, "hover", lambda: page.mouse.move(x, y, steps=NUM_STEPS))
    timed(page, "zoom in", wheel(-30))
    timed(page, "pan", drag)
    page.mouse.move(x, y)
    timed(page, "zoom out", wheel(30))


if __name__ == "__main__":
    sys.exit(main())
