"""The page in a real browser: what is pointed at, toggled, narrowed, darkened and printed."""

import re
from contextlib import contextmanager

import pytest
from tests import browser as driver
from tests.browser import PHONE, chromium, drag, settled, tap, until
from tests.browser import point as point_at
from tests.load.conftest import observed, seen, workload
from tests.load.reports import mixed_run, point, run_report, sweep_report

from specmesh.load.html.contents import comparison, page
from specmesh.load.html.document import write_page
from specmesh.load.runs.summary import summarise
from specmesh.load.transports.observation import RequestOutcome

SIDES = ("top", "right", "bottom", "left")
HOSTILE = "</script><img src=x onerror=alert(1)>"
ALL_DRAWN = "[...document.querySelectorAll('.plot')].every((each) => each.querySelector('canvas'))"
PIXELS = "document.querySelector('#chart canvas').toDataURL()"
HINTED = "document.getElementById('hint').checkVisibility()"
IN_VIEW = "document.documentElement.scrollWidth <= innerWidth"


@pytest.fixture(scope="module")
def browser():
    with chromium() as it:
        yield it


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page, which must complain of nothing and fetch nothing, and waits for its charts:
    each is drawn in a frame after it was given a size."""

    @contextmanager
    def open_(made, **options):
        file = tmp_path / "page.html"
        write_page(file, made)
        size = {"viewport": {"width": 1200, "height": 900}}
        with driver.opened(browser, file.as_uri(), fetches=False, **{**size, **options}) as tab:
            until(tab, ALL_DRAWN)
            yield tab

    return open_


def color(selector, name="backgroundColor"):
    return f"getComputedStyle(document.querySelector({selector!r})).{name}"


def figure(title):
    """The selector of a chart, which the page marks for the test."""
    return (
        "[...document.querySelectorAll('figure')].find((each) => "
        f"each.querySelector('figcaption').textContent.startsWith({title!r})).id = 'chart'"
    )


def pixels(tab):
    """What the marked chart looks like."""
    return tab.evaluate(PIXELS)


def wait_for_pixels(tab, wanted):
    """Wait until the marked chart looks like this."""
    until(tab, f"(wanted) => {PIXELS} === wanted", wanted)


def wait_for_other_pixels(tab, before):
    """Wait until the marked chart looks otherwise."""
    until(tab, f"(before) => {PIXELS} !== before", before)


def test_a_chart_reads_out_what_is_under_the_pointer_and_toggles_its_lines(opened):
    with opened(page([("", run_report())])) as tab:
        tab.evaluate(figure("TTFT"))
        value = "document.querySelector('#chart .value').textContent"
        assert tab.evaluate(value) == ""
        point_at(tab, "#chart .u-over", 0.99)
        assert tab.evaluate(value) == "100 %"
        point_at(tab, "#chart .u-over", 0.5)
        assert re.fullmatch(r"\d+ %", tab.evaluate(value))
        assert (tab.evaluate("document.querySelector('#chart .at').textContent")).endswith(" ms")

        before = pixels(tab)
        point_at(tab, "#chart .legend button", clicks=1)
        assert tab.evaluate("document.querySelector('#chart button').ariaPressed") == "false"
        wait_for_other_pixels(tab, before)
        point_at(tab, "#chart .legend button", clicks=1)
        point_at(tab, "h1")
        wait_for_pixels(tab, before)

        tab.evaluate("document.querySelector('#chart .u-over').focus()")
        tab.keyboard.press("ArrowRight")
        assert tab.evaluate("document.querySelector('#chart .at').textContent") == "at 50 ms"
        tab.evaluate("document.querySelector('#chart summary').click()")
        settled(tab)
        assert tab.evaluate("document.querySelectorAll('#chart details tbody tr').length") >= 7


def test_a_part_of_a_chart_is_zoomed_to_and_left_again(opened):
    with opened(page([("", run_report())])) as tab:
        tab.evaluate(figure("Under way"))
        whole = pixels(tab)
        drag(tab, "#chart .u-over", 0.4, 0.6)
        wait_for_other_pixels(tab, whole)
        since = "document.querySelector('#chart .at').textContent.split(' ')[1]"
        point_at(tab, "#chart .u-over", 0.01)
        assert float(tab.evaluate(since)) > 5
        point_at(tab, "#chart .u-over", 0.5, clicks=2)
        wait_for_pixels(tab, whole)


def test_of_a_run_within_a_second_every_value_is_a_point(opened):
    brief = summarise(workload(), seen([observed(n / 100, e2e_s=0.2) for n in range(5)]), None)
    with opened(page([("", run_report(brief))])) as tab:
        tab.evaluate(figure("Under way"))
        shown = pixels(tab)
        point_at(tab, "#chart .legend button", clicks=1)
        wait_for_other_pixels(tab, shown)
        ends = "[...charts].map(({ drawn }) => [drawn.scales.x.min, drawn.scales.x.max])"
        assert tab.evaluate(ends)[-1] == [-0.5, 0.5]


def test_a_term_explains_itself_and_a_trace_is_copied(opened):
    with opened(page([("", run_report())])) as tab:
        point_at(tab, ".term")
        until(tab, HINTED)
        assert "first token received − when the request was due" in tab.evaluate(
            "document.getElementById('hint').textContent"
        )
        point_at(tab, "h1")
        until(tab, f"!{HINTED}")
        point_at(tab, "td button", clicks=1)
        until(tab, "document.querySelector('td button').textContent !== 'copy'")
        assert tab.evaluate("document.querySelector('td code').textContent") == (
            f"specmesh trace show {run_report()['result']['slowest'][0]['trace_id']}"
        )


def test_an_objective_far_beyond_what_was_seen_is_told_instead_of_drawn(opened):
    report = run_report()
    report["result"]["goodput"]["objectives_ms"] = {"ttft": 150.0, "e2e": 60_000.0}
    with opened(page([("", report)])) as tab:
        captions = tab.evaluate(
            "[...document.querySelectorAll('figcaption')].map((each) => each.textContent)"
        )
        assert "TTFT share of requests up to a time" in captions
        assert (
            "end to end share of requests up to a time; objective 60,000 ms is beyond" in captions
        )


def test_dark_is_what_the_system_prefers_or_the_button_says(opened):
    with opened(page([("", run_report())])) as tab:
        tab.evaluate(figure("TTFT"))
        light = tab.evaluate(color("body"))
        drawn = pixels(tab)
        tab.emulate_media(color_scheme="dark")
        settled(tab)
        dark = tab.evaluate(color("body"))
        assert dark != light
        wait_for_other_pixels(tab, drawn)
        point_at(tab, ".head button", clicks=1)
        assert tab.evaluate(color("body")) == light
        wait_for_pixels(tab, drawn)


def test_a_phone_shows_all_without_scrolling_sideways(opened):
    phone = {"viewport": PHONE, "device_scale_factor": 2, "is_mobile": True, "has_touch": True}
    with opened(page([("", run_report())]), **phone) as tab:
        assert tab.evaluate(IN_VIEW)
        widths = "[...document.querySelectorAll('.u-wrap')].map((each) => each.clientWidth)"
        assert all(200 < width <= 390 for width in tab.evaluate(widths))
        tab.evaluate(figure("Under way"))
        tap(tab, "#chart .u-over")
        assert tab.evaluate("document.querySelector('#chart .value').textContent") != ""
        tap(tab, ".term")
        until(tab, HINTED)


def test_it_is_printed_in_light_colors_in_the_width_of_the_paper(opened):
    with opened(page([("", run_report())])) as tab:
        tab.emulate_media(color_scheme="dark")
        tab.evaluate(
            "addEventListener('beforeprint', () => { globalThis.printed = "
            "[document.querySelector('.u-wrap').clientWidth,"
            f" {color('figure')}]; }})"
        )
        paper = tab.pdf(print_background=True, margin=dict.fromkeys(SIDES, "0.4in"))
        assert paper.startswith(b"%PDF")
        assert tab.evaluate("globalThis.printed") == [330, "rgb(255, 255, 255)"]
        assert tab.evaluate("document.querySelector('.u-wrap').clientWidth") > 400
        tab.emulate_media(media="print", color_scheme="dark")
        assert tab.evaluate(color("figure")) == "rgb(255, 255, 255)"
        assert not tab.evaluate("document.querySelector('.head button').checkVisibility()")


def test_text_of_a_report_is_only_text(opened):
    with opened(page([("", run_report(mixed_run(HOSTILE), command=HOSTILE))])) as tab:
        assert tab.evaluate("document.querySelectorAll('img').length") == 0
        assert tab.evaluate("document.querySelectorAll('script').length") == 3
        found = tab.evaluate("document.getElementById('page').innerText")
        assert found.count(HOSTILE) >= 3


def test_what_there_is_nothing_of_is_left_out(opened):
    failed = [
        observed(n / 10, outcome=RequestOutcome.FAILED, reason="UNAVAILABLE", first_s=None)
        for n in range(5)
    ]
    shown = "[...document.querySelectorAll('h2')].map((each) => each.textContent)"
    for observations, sections in (
        (failed, ["What was run", "Requests", "Over time"]),
        ([], ["What was run", "Requests"]),
    ):
        made = page([("", run_report(summarise(workload(), seen(observations), None)))])
        with opened(made) as tab:
            found = tab.evaluate(shown)
            assert found[: len(sections)] == sections
            assert not {"Latency", "Speculation"} & set(found)


def test_a_sweep_shows_each_of_its_runs(opened):
    points = [
        point(rate, strategy=name) for name in ("dsi", "autoregressive") for rate in (1.0, 2.0)
    ]
    with opened(page([("", sweep_report(points))])) as tab:
        chosen = "document.querySelector('select').selectedOptions[0].textContent"
        assert tab.evaluate(chosen) == "dsi 1/s"
        row = "[...document.querySelectorAll('th button')][0].closest('tr').cells"
        rates = tab.evaluate(f"[1, 2].map((n) => Number({row}[n].textContent))")
        throughput = points[0].result.throughput
        assert rates == [throughput.offered_per_s, throughput.answered_per_s]
        point_at(tab, "tbody tr:nth-child(4) th button", clicks=1)
        assert tab.evaluate(chosen) == "autoregressive 2/s"
        until(tab, ALL_DRAWN)
        assert tab.evaluate(IN_VIEW)


def test_a_time_that_was_nothing_is_in_the_table_alone(opened):
    changes = [
        {"metric": metric, "statistic": "mean", "before": before, "after": 5.0}
        | {"low": low, "high": low and 0.07, "in_words": "so it is"}
        for metric, before, low in (("ttft_ms", 4.8, 0.03), ("tpot_ms", 0.0, None))
    ]
    with opened(comparison(("old", run_report()), ("new", run_report()), changes, [])) as tab:
        names = "[...document.querySelectorAll('.row .name')].map((each) => each.textContent)"
        assert tab.evaluate(names) == ["TTFT mean"]
        assert tab.get_by_role("row", name="TPOT mean").inner_text().split("\t") == [
            *("TPOT mean", "0", "5", "–", "–", "so it is")
        ]


@pytest.mark.parametrize("width", [1200, 700, 390])
def test_a_comparison_places_its_intervals(opened, width):
    changes = [
        {"metric": "ttft_ms", "statistic": "mean", "before": 100.0, "after": 105.0}
        | {"low": 0.03, "high": 0.07, "in_words": "slower by 3 to 7 %"},
        {"metric": "e2e_ms", "statistic": "p50", "before": 100.0, "after": 99.0}
        | {"low": -0.03, "high": 0.01, "in_words": "no difference shown (-3.0 to +1.0 %)"},
    ]
    made = comparison(("old", run_report()), ("new", run_report()), changes, [])
    with opened(made, viewport={"width": width, "height": 900}) as tab:
        kinds = "[...document.querySelectorAll('.row')].map((each) => each.className)"
        assert tab.evaluate(kinds) == ["row slower", "row neither"]
        edges = (
            "(() => { const [a, b, zero] = ['.slower .bar', '.slower .dot', '.grid .zero'].map("
            "(each) => document.querySelector(each).getBoundingClientRect());"
            "return [zero.left, a.left, b.left + b.width / 2, a.right]; })()"
        )
        zero, low, seen, high = tab.evaluate(edges)
        assert zero < low < seen < high
        assert (low - zero) / (high - zero) == pytest.approx(3 / 7, abs=0.02)
        point_at(tab, ".row .name")
        assert "105 ms after, +5.0 %" in tab.evaluate("document.getElementById('hint').textContent")
