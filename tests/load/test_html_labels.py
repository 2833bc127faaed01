"""No two labels of a chart are written over each other, and none is cut off, however wide."""

import copy

import pytest
from tests import browser as driver
from tests.browser import chromium, settled
from tests.load.reports import point, run_report, sweep_report

from specmesh.load.html.contents import comparison, page
from specmesh.load.html.document import write_page

WIDTHS = (1200, 700, 390)
PAPER_WIDTH = 718
PHONE_WIDTH = 600
LONG = "2026_11_25_eight_verifiers_two_drafters_lookahead_16_temperature_0_8"
INTERVALS = {
    "large": [(-0.016, 0.253), (1.34, 2.55), (2.08, 8.51), (-0.5, 9.99)],
    "huge": [(-0.9, 0.253), (12.0, 130.0), (-0.1255, 0.1255), (2.08, 8.51)],
    "small": [(-0.0042, 0.0051), (0.0011, 0.0049), (-0.003, -0.0002), (-0.0012, 0.0044)],
    "of nothing": [(0.0, 0.0)] * 4,
    "faster": [(-0.995, -0.7), (-0.55, -0.31), (-0.123, 0.004), (-0.25, -0.1)],
}
# What canvases have written is not in the document: each is drawn anew, and says where.
LABELS = """() => {
  const found = new Map();
  const note = (figure, text, box) => found.get(figure).push({text, ...box});
  const figures = [...document.querySelectorAll('figure')];
  for (const figure of figures) found.set(figure, []);
  const write = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    const size = this.measureText(text), own = this.canvas.getBoundingClientRect();
    const across = [x - size.actualBoundingBoxLeft, x + size.actualBoundingBoxRight];
    const down = [y - size.actualBoundingBoxAscent, y + size.actualBoundingBoxDescent];
    const to = this.getTransform();
    const corners = across.flatMap((u) => down.map((v) => to.transformPoint({x: u, y: v})));
    const [xs, ys] = ['x', 'y'].map((n) => corners.map((each) => each[n] / devicePixelRatio));
    note(this.canvas.closest('figure'), text, {
      left: own.left + Math.min(...xs), right: own.left + Math.max(...xs),
      top: own.top + Math.min(...ys), bottom: own.top + Math.max(...ys),
      within: [own.left, own.right],
    });
    write.call(this, text, x, y);
  };
  redrawAll();
  return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
    CanvasRenderingContext2D.prototype.fillText = write;
    for (const figure of figures) {
      const place = figure.getBoundingClientRect();
      const texts = document.createTreeWalker(figure, NodeFilter.SHOW_TEXT);
      while (texts.nextNode()) {
        const node = texts.currentNode, range = document.createRange();
        if (!node.parentElement.checkVisibility({visibilityProperty: true})) continue;
        range.selectNodeContents(node);
        for (const {left, right, top, bottom} of range.getClientRects())
          if (right > left)
            note(figure, node.textContent,
              {left, right, top, bottom, within: [place.left, place.right]});
      }
    }
    done(figures.map((each) => found.get(each)));
  })));
}"""


@pytest.fixture(scope="module")
def browser():
    with chromium() as it:
        yield it


@pytest.fixture
def labels_of(browser, tmp_path):
    """The labels of each chart of a page, for each width."""

    def collected(made, widths=WIDTHS):
        file = tmp_path / "page.html"
        write_page(file, made)
        with driver.opened(browser, file.as_uri(), viewport={"width": 1200, "height": 900}) as tab:
            for width in widths:
                tab.set_viewport_size({"width": width, "height": 900})
                settled(tab)
                assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
                yield width, tab.evaluate(LABELS)

    return collected


def faults(charts):
    """Pairs of labels that lie on each other, and labels that reach out of their chart."""
    found = []
    for labels in charts:
        for n, label in enumerate(labels):
            left, right = label["within"]
            if label["left"] < left - 0.5 or label["right"] > right + 0.5:
                found.append(f"{label['text']} is cut off")
            found += [
                f"{label['text']} on {other['text']}"
                for other in labels[n + 1 :]
                if min(label["right"], other["right"]) - max(label["left"], other["left"]) > 0.5
                and min(label["bottom"], other["bottom"]) - max(label["top"], other["top"]) > 0.5
            ]
    return found


def differences(intervals):
    """One for each statistic of each metric, with these intervals in turns."""
    return [
        {"metric": metric, "statistic": name, "before": 100.0, "after": 100 + 50 * (low + high)}
        | {"low": low, "high": high, "in_words": f"no difference shown ({low:+.1%} to {high:+.1%})"}
        for metric in ("ttft_ms", "tpot_ms", "e2e_ms")
        for name, (low, high) in zip(("mean", "p50", "p95", "p99"), intervals, strict=True)
    ]


def compared(intervals):
    """A page of two runs with long names and objectives of their own."""
    after = run_report()
    after["result"]["goodput"]["objectives_ms"] = {"ttft": 152.0, "e2e": 990.0}
    runs = (f"before-{LONG}", run_report()), (LONG, after)
    return comparison(*runs, differences(intervals), [])


@pytest.mark.parametrize("intervals", INTERVALS)
def test_of_a_comparison_every_label_is_readable(labels_of, intervals):
    for width, charts in labels_of(compared(INTERVALS[intervals])):
        assert (width, faults(charts)) == (width, [])
        words = [each for each in charts[0] if each["text"].startswith("no difference")]
        assert bool(words) == (width > PHONE_WIDTH)


def test_on_paper_every_label_is_readable(browser, tmp_path):
    """Paper is laid out without a word to the page but that it will be."""
    file = tmp_path / "page.html"
    write_page(file, compared(INTERVALS["huge"]))
    with driver.opened(browser, file.as_uri(), viewport={"width": 1200, "height": 900}) as tab:
        tab.set_viewport_size({"width": PAPER_WIDTH, "height": 1000})
        tab.emulate_media(media="print")
        settled(tab)
        tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        settled(tab)
        assert faults(tab.evaluate(LABELS)) == []


def test_of_a_sweep_every_label_is_readable(labels_of):
    """Latencies from a hundredth of a millisecond to a minute, two objectives side by side."""
    sweeps = []
    for number in range(2):
        points = [
            point(rate, strategy=name)
            for name in ("speculative", "autoregressive")
            for rate in (0.5, 1.0, 8.0, 1000.0, 12_500.0)
        ]
        sweep = copy.deepcopy(sweep_report(points))
        for n, each in enumerate(sweep["points"]):
            objectives = {"ttft": 150.0 + 4 * number, "tpot": 20.0, "e2e": 1000.0 + 50 * number}
            each["result"]["goodput"]["objectives_ms"] = objectives
            for times in each["result"]["latency"].values():
                times.update(p50=0.01 * 20 ** (n % 5), p95=60_000.0, p99=61_000.0)
        sweeps.append((f"{number}-{LONG}", sweep))
    for width, charts in labels_of(page(sweeps)):
        assert (width, faults(charts)) == (width, [])


def test_of_a_long_run_every_label_is_readable(labels_of):
    report = run_report()
    seconds = report["result"]["timeline"]
    report["result"]["timeline"] = [
        {**seconds[n % len(seconds)], "t_s": n, "output_tokens": 1_234_567} for n in range(400_000)
    ]
    report["result"]["measured_until_s"] = 400_000.0
    for width, charts in labels_of(page([("", report)])):
        assert (width, faults(charts)) == (width, [])
