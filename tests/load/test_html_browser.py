"""The page in a real browser: what is pointed at, toggled, narrowed, darkened and printed."""

import asyncio
import re
from contextlib import asynccontextmanager

import pytest
from tests.browser import CHROMIUM, browser
from tests.load.conftest import observed, seen, workload
from tests.load.reports import mixed_run, point, run_report, sweep_report

from specmesh.load.html.contents import comparison, page
from specmesh.load.html.document import write_page
from specmesh.load.observation import Outcome
from specmesh.load.summary import summarise

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")

HOSTILE = "</script><img src=x onerror=alert(1)>"
ALL_DRAWN = "[...document.querySelectorAll('.plot')].every((each) => each.querySelector('canvas'))"
IN_VIEW = "document.documentElement.scrollWidth <= innerWidth"


@asynccontextmanager
async def opened(tmp_path, made, **size):
    """A tab with the page, which must have complained of nothing and fetched nothing."""
    file = tmp_path / "page.html"
    write_page(file, made)
    async with browser(tmp_path / "profile") as tab:
        await tab.resize(**(size or {"width": 1200, "height": 900}))
        await tab.open(file.as_uri())
        yield tab
        assert tab.complaints == []
        assert tab.requests == [file.as_uri()]


def color(selector, name="backgroundColor"):
    return f"getComputedStyle(document.querySelector({selector!r})).{name}"


def figure(title):
    """The selector of a chart, which the page marks for the test."""
    return (
        "[...document.querySelectorAll('figure')].find((each) => "
        f"each.querySelector('figcaption').textContent.startsWith({title!r})).id = 'chart'"
    )


async def pixels(tab):
    """What the marked chart looks like."""
    return await tab.run("document.querySelector('#chart canvas').toDataURL()")


async def test_a_chart_reads_out_what_is_under_the_pointer_and_toggles_its_lines(tmp_path):
    async with opened(tmp_path, page([("", run_report())])) as tab:
        assert await tab.run(ALL_DRAWN)
        await tab.run(figure("TTFT"))
        value = "document.querySelector('#chart .value').textContent"
        assert await tab.run(value) == ""
        await tab.point("#chart .u-over", 0.99)
        assert await tab.run(value) == "100 %"
        await tab.point("#chart .u-over", 0.5)
        assert re.fullmatch(r"\d+ %", await tab.run(value))
        assert (await tab.run("document.querySelector('#chart .at').textContent")).endswith(" ms")

        before = await pixels(tab)
        await tab.point("#chart .legend button", clicks=1)
        assert await tab.run("document.querySelector('#chart button').ariaPressed") == "false"
        assert await pixels(tab) != before
        await tab.point("#chart .legend button", clicks=1)
        await tab.point("h1")
        assert await pixels(tab) == before

        await tab.run("document.querySelector('#chart .u-over').focus()")
        await tab.press("ArrowRight")
        assert await tab.run("document.querySelector('#chart .at').textContent") == "at 50 ms"
        await tab.run("document.querySelector('#chart summary').click()")
        await tab.settled()
        assert await tab.run("document.querySelectorAll('#chart details tbody tr').length") >= 7


async def test_a_part_of_a_chart_is_zoomed_to_and_left_again(tmp_path):
    async with opened(tmp_path, page([("", run_report())])) as tab:
        await tab.run(figure("Under way"))
        whole = await pixels(tab)
        await tab.drag("#chart .u-over", 0.4, 0.6)
        assert await pixels(tab) != whole
        since = "document.querySelector('#chart .at').textContent.split(' ')[1]"
        await tab.point("#chart .u-over", 0.01)
        assert float(await tab.run(since)) > 5
        await tab.point("#chart .u-over", 0.5, clicks=2)
        assert await pixels(tab) == whole


async def test_a_term_explains_itself_and_a_trace_is_copied(tmp_path):
    async with opened(tmp_path, page([("", run_report())])) as tab:
        await tab.point(".term")
        assert await tab.run("document.getElementById('hint').checkVisibility()")
        assert "first token received − when the request was due" in await tab.run(
            "document.getElementById('hint').textContent"
        )
        await tab.point("h1")
        assert not await tab.run("document.getElementById('hint').checkVisibility()")
        await tab.point("td button", clicks=1)
        async with asyncio.timeout(5):
            while await tab.run("document.querySelector('td button').textContent") == "copy":
                await tab.settled()
        assert await tab.run("document.querySelector('td code').textContent") == (
            f"specmesh trace show {run_report()['result']['slowest'][0]['trace_id']}"
        )


async def test_an_objective_far_beyond_what_was_seen_is_told_instead_of_drawn(tmp_path):
    report = run_report()
    report["result"]["goodput"]["objectives_ms"] = {"ttft": 150.0, "e2e": 60_000.0}
    async with opened(tmp_path, page([("", report)])) as tab:
        captions = await tab.run(
            "[...document.querySelectorAll('figcaption')].map((each) => each.textContent)"
        )
        assert "TTFT share of requests up to a time" in captions
        assert (
            "end to end share of requests up to a time; objective 60,000 ms is beyond" in captions
        )


async def test_dark_is_what_the_system_prefers_or_the_button_says(tmp_path):
    async with opened(tmp_path, page([("", run_report())])) as tab:
        await tab.run(figure("TTFT"))
        light = await tab.run(color("body"))
        drawn = await pixels(tab)
        await tab.emulate(scheme="dark")
        dark = await tab.run(color("body"))
        assert dark != light
        assert await pixels(tab) != drawn
        await tab.point(".head button", clicks=1)
        assert await tab.run(color("body")) == light
        assert await pixels(tab) == drawn


async def test_a_phone_shows_all_without_scrolling_sideways(tmp_path):
    size = {"width": 390, "height": 844, "mobile": True}
    async with opened(tmp_path, page([("", run_report())]), **size) as tab:
        assert await tab.run(IN_VIEW)
        assert await tab.run(ALL_DRAWN)
        widths = "[...document.querySelectorAll('.u-wrap')].map((each) => each.clientWidth)"
        assert all(200 < width <= 390 for width in await tab.run(widths))
        await tab.run(figure("Under way"))
        await tab.tap("#chart .u-over")
        assert await tab.run("document.querySelector('#chart .value').textContent") != ""
        await tab.tap(".term")
        assert await tab.run("document.getElementById('hint').checkVisibility()")


async def test_it_is_printed_in_light_colors_in_the_width_of_the_paper(tmp_path):
    async with opened(tmp_path, page([("", run_report())])) as tab:
        await tab.emulate(scheme="dark")
        await tab.run(
            "addEventListener('beforeprint', () => { globalThis.printed = "
            "[document.querySelector('.u-wrap').clientWidth,"
            f" {color('figure')}]; }})"
        )
        paper = await tab.pdf()
        assert paper.startswith(b"%PDF")
        assert await tab.run("globalThis.printed") == [330, "rgb(255, 255, 255)"]
        assert await tab.run("document.querySelector('.u-wrap').clientWidth") > 400
        await tab.emulate(media="print", scheme="dark")
        assert await tab.run(color("figure")) == "rgb(255, 255, 255)"
        assert not await tab.run("document.querySelector('.head button').checkVisibility()")


async def test_text_of_a_report_is_only_text(tmp_path):
    async with opened(
        tmp_path, page([("", run_report(mixed_run(HOSTILE), command=HOSTILE))])
    ) as tab:
        assert await tab.run("document.querySelectorAll('img').length") == 0
        assert await tab.run("document.querySelectorAll('script').length") == 3
        found = await tab.run("document.getElementById('page').innerText")
        assert found.count(HOSTILE) >= 3


async def test_what_there_is_nothing_of_is_left_out(tmp_path):
    failed = [
        observed(n / 10, outcome=Outcome.FAILED, reason="UNAVAILABLE", first_s=None)
        for n in range(5)
    ]
    shown = "[...document.querySelectorAll('h2')].map((each) => each.textContent)"
    for observations, sections in (
        (failed, ["What was run", "Requests", "Over time"]),
        ([], ["What was run", "Requests"]),
    ):
        made = page([("", run_report(summarise(workload(), seen(observations), None)))])
        folder = tmp_path / str(len(observations))
        folder.mkdir()
        async with opened(folder, made) as tab:
            found = await tab.run(shown)
            assert found[: len(sections)] == sections
            assert not {"Latency", "Speculation"} & set(found)
            assert await tab.run(ALL_DRAWN)


async def test_a_sweep_shows_each_of_its_runs(tmp_path):
    points = [
        point(rate, strategy=name) for name in ("dsi", "autoregressive") for rate in (1.0, 2.0)
    ]
    async with opened(tmp_path, page([("", sweep_report(points))])) as tab:
        assert await tab.run(ALL_DRAWN)
        chosen = "document.querySelector('select').selectedOptions[0].textContent"
        assert await tab.run(chosen) == "dsi 1/s"
        await tab.point("tbody tr:nth-child(4) th button", clicks=1)
        assert await tab.run(chosen) == "autoregressive 2/s"
        assert await tab.run(ALL_DRAWN)
        assert await tab.run(IN_VIEW)


async def test_a_comparison_places_its_intervals(tmp_path):
    changes = [
        {"metric": "ttft_ms", "statistic": "mean", "before": 100.0, "after": 105.0}
        | {"low": 0.03, "high": 0.07, "in_words": "slower by 3 to 7 %"},
        {"metric": "e2e_ms", "statistic": "p50", "before": 100.0, "after": 99.0}
        | {"low": -0.03, "high": 0.01, "in_words": "no difference shown"},
    ]
    made = comparison(("old", run_report()), ("new", run_report()), changes, [])
    async with opened(tmp_path, made) as tab:
        kinds = "[...document.querySelectorAll('.row')].map((each) => each.className)"
        assert await tab.run(kinds) == ["row slower", "row neither"]
        edges = (
            "(() => { const [a, b, zero] = ['.slower .bar', '.slower .dot', '.grid .zero'].map("
            "(each) => document.querySelector(each).getBoundingClientRect());"
            "return [zero.left, a.left, b.left + b.width / 2, a.right]; })()"
        )
        zero, low, seen, high = await tab.run(edges)
        assert zero < low < seen < high
        assert (low - zero) / (high - zero) == pytest.approx(3 / 7, abs=0.02)
        await tab.point(".row .name")
        assert "105 ms after, +5.0 %" in await tab.run(
            "document.getElementById('hint').textContent"
        )
