"""The page in a browser."""

import re

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from tests.browser import DESK, PHONE, chromium, opened
from tests.cli.page.made import EVENTFUL, MARKUP, SCRIPT, listed, store_with
from tests.cli.page.test_open import running
from tests.traces.otlp import ANSWER, attribute, group, make_span
from typer.testing import CliRunner

from specmesh.cli.app import app

ROWS = "table.traces tbody tr:visible"
ID = f"{EVENTFUL}{'0' * 30}"


@pytest.fixture(scope="module")
def browser():
    with chromium() as it:
        yield it


@pytest.fixture(scope="module")
def url(browser, store):
    with running("--no-browser", "--store", store) as (_, said):
        yield said


@pytest.fixture
def trace(browser, url):
    """The eventful trace."""
    with opened(browser, f"{url}#/trace/{ID}") as page:
        page.wait_for_selector(".lanes canvas")
        yield page


def wait_for_rows(page, count):
    page.locator(".status", has_text=f"{count} trace").wait_for()
    assert page.locator(ROWS).count() == count


def stretch(page):
    """What of the trace is looked at, in ms, once the address tells; None: all of it."""
    page.wait_for_timeout(250)  # the address follows the view with a delay
    found = re.search(r"from=([-\d.]+)&to=([-\d.]+)", page.url)
    return found and (float(found[1]), float(found[2]))


def changed(page, before):
    """The same, once it is something else than ``before``: a busy browser takes its time."""
    for _ in range(40):
        if (found := stretch(page)) != before:
            return found
    return before


def middle(page, selector, down=0.5):
    box = page.locator(selector).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] * down


def looks(page):
    """The colour of the page's ground, and the picture of the waterfall."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.evaluate(
        "[getComputedStyle(document.body).backgroundColor,"
        " document.querySelector('.lanes canvas').toDataURL()]"
    )


def test_filters_narrow_the_list_and_stay_in_the_address(browser, url):
    with opened(browser, url) as page:
        wait_for_rows(page, 4)
        page.get_by_label("outcome").select_option("failed")
        wait_for_rows(page, 1)
        assert "outcome=failed" in page.url
        page.reload()
        page.wait_for_selector(ROWS)
        assert page.locator(ROWS).count() == 1
        page.get_by_label("outcome").select_option("")
        wait_for_rows(page, 4)


def test_a_filter_that_is_wrong_is_marked(browser, url):
    # The browser itself logs that a request was refused.
    context = browser.new_context()
    page = context.new_page()
    page.goto(url)
    page.get_by_label("since").fill("yesterday")
    page.wait_for_selector("[role=alert]:visible")
    assert "'yesterday' is not a number" in page.locator("[role=alert]").inner_text()
    assert page.get_by_label("since").get_attribute("aria-invalid") == "true"
    context.close()


def test_brushing_over_the_histogram_lists_these_durations(browser, url):
    with opened(browser, url) as page:
        page.wait_for_selector(ROWS)
        box = page.locator(".histogram .brush").bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"], box["y"] + 40, steps=4)
        page.mouse.up()
        assert page.locator(ROWS).count() == 1
        assert "1 trace between" in page.locator(".status").inner_text()
        assert "brush=" in page.url
        page.reload()
        page.wait_for_selector(ROWS)
        assert page.locator(ROWS).count() == 1
        page.keyboard.press("Escape")
        assert page.locator(ROWS).count() == 4
        page.get_by_role("slider", name="durations to list: from").press("ArrowRight")
        assert page.locator(ROWS).count() == 3


def test_a_trace_that_ends_before_it_begins_is_listed(browser, tmp_path):
    traces = [
        [group("orchestrator", make_span(number << 120, ANSWER, 0.0, duration_ms))]
        for number, duration_ms in ((1, -50.0), (2, 0.0), (3, 50.0))
    ]
    store = store_with(tmp_path / "t.sqlite", *traces)
    with running("--no-browser", "--store", store) as (_, said), opened(browser, said) as page:
        wait_for_rows(page, 3)


def test_keys_lead_to_a_trace_and_back(browser, url):
    with opened(browser, url) as page:
        page.wait_for_selector(ROWS)
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("k")
        first = page.locator(ROWS).first.locator("a").get_attribute("href")
        page.keyboard.press("Enter")
        page.wait_for_selector(".lanes canvas")
        assert page.url.endswith(first)
        page.keyboard.press("?")
        assert page.get_by_role("dialog").is_visible()
        page.keyboard.press("Escape")
        assert not page.get_by_role("dialog").is_visible()
        page.keyboard.press("Escape")
        page.wait_for_selector(ROWS)


def test_a_span_is_told_on_hover_and_in_full_on_click(trace):
    trace.keyboard.press("j")
    box = trace.locator(".lanes").bounding_box()
    trace.mouse.move(box["x"] + 40, box["y"] + 24 + 30 + 20 + 9)  # the first lane: the root
    tip = trace.get_by_role("tooltip")
    assert "GenerationService/Generate" in tip.inner_text()
    assert "100 ms, from 0 ms to 100 ms" in tip.inner_text()
    trace.mouse.click(box["x"] + 40, box["y"] + 24 + 30 + 20 + 9)
    panel = trace.locator(".details").inner_text()
    assert "specmesh.strategy" in panel
    assert MARKUP in panel
    assert "none: the root" in panel


ACTIVITIES_OF = """(names) => import("page/model").then(({ modelOf }) => modelOf({
  spans: names.map((name, n) => ({
    span_id: `${n}`, parent_span_id: "", name, start_ms: 0, ms: 1, attributes: {} })),
  summary: { duration_ms: 1 }, incomplete: [], critical_path: [],
}).spans.map((span) => span.activity))"""


def test_each_kind_of_span_has_its_activity(trace):
    activities = {
        "specmesh.draft": "draft",
        "specmesh.verify": "verify",
        "specmesh.verdict": "verify",
        "specmesh.commit": "store",
        "specmesh.assess": "assess",
        "specmesh.round": "round",
        "specmesh.generate": "request",
    }
    assert trace.evaluate(ACTIVITIES_OF, list(activities)) == list(activities.values())


def test_a_trace_whose_token_numbers_are_no_list_is_shown(browser, tmp_path):
    odd = make_span(1 << 120, ANSWER, 0, 10, specmesh__tree__nodes=7)
    attribute(odd, "specmesh.committed.nodes", "seven")
    store = store_with(tmp_path / "t.sqlite", [group("orchestrator", odd)])
    with (
        running("--no-browser", "--store", store) as (_, said),
        opened(browser, f"{said}#/trace/last") as page,
    ):
        page.wait_for_selector(".lanes canvas")
        page.keyboard.press("j")
        assert "none: the root" in page.locator(".details").inner_text()


def test_an_address_that_cannot_be_read_is_answered_with_why(browser, url):
    with opened(browser, f"{url}#/trace/%E0") as page:
        page.get_by_role("status").get_by_text("URI malformed").wait_for()


def test_wheel_drag_and_keys_zoom_and_pan(trace):
    assert stretch(trace) is None
    trace.mouse.move(*middle(trace, ".lanes"))
    trace.mouse.wheel(0, -400)
    zoomed = changed(trace, None)
    assert zoomed[1] - zoomed[0] < 60
    x, y = middle(trace, ".lanes")
    trace.mouse.down()
    trace.mouse.move(x - 200, y, steps=5)
    trace.mouse.up()
    dragged = changed(trace, zoomed)
    assert dragged[0] > zoomed[0]
    assert dragged[1] - dragged[0] == pytest.approx(zoomed[1] - zoomed[0], abs=0.001)
    trace.keyboard.press("ArrowLeft")
    earlier = changed(trace, dragged)
    assert earlier[0] < dragged[0]
    trace.keyboard.press("+")
    nearer = changed(trace, earlier)
    assert nearer[1] - nearer[0] == pytest.approx((zoomed[1] - zoomed[0]) / 1.5, rel=0.01)
    trace.keyboard.press("0")
    assert changed(trace, nearer) is None
    box = trace.locator(".overview").bounding_box()
    trace.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 10)
    trace.mouse.down()
    trace.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 10, steps=4)
    trace.mouse.up()
    assert changed(trace, None) == pytest.approx((20, 40), abs=0.5)


def test_a_link_leads_to_the_same_stretch_and_span(browser, url, trace):
    trace.keyboard.press("c")
    trace.keyboard.press("Enter")
    trace.wait_for_url(re.compile("span="))  # written once the keys have been dealt with
    told = stretch(trace)
    with opened(browser, trace.url) as page:
        page.wait_for_selector(".lanes canvas")
        page.wait_for_selector(".details h2")
        assert stretch(page) == told
        there, here = (each.locator(".details").inner_text() for each in (page, trace))
        assert there == here


def test_what_is_missing_and_whose_clock_was_wrong_is_said(trace):
    notices = trace.locator(".notice").all_inner_texts()
    assert "incomplete: 1 span missing below specmesh.verify: its server's" in notices
    assert any(
        each.startswith("clock of verifier-0 corrected by −499 ms ± 2.00 ms") for each in notices
    )
    seen = set()
    for _ in range(14):
        trace.keyboard.press("j")
        seen.add(trace.locator(".details").inner_text())
    for state in (
        "cancelled on purpose",
        "failed",
        "missing: known only by",
        "the span of its server",
    ):
        assert any(state in text for text in seen), state


def test_what_would_have_shortened_it_is_told(browser, url, trace):
    trace.get_by_text("shortened it: not known: spans are missing").wait_for()
    found = {
        "measured_ms": 1181.5,
        "simulated_ms": 1071.2,
        "simulation_error": -0.093,
        "predictions": [
            {"with": "2 more verifiers", "ms": 946.0, "gain": 0.2},
            {"with": f"γ = 3 {SCRIPT}", "ms": 1180.0, "gain": 0.002},
        ],
        "num_runs": 2,
        "num_planned_runs": 8,
        "left_out": [],
    }
    with opened(browser, url) as page:
        page.route("**/what-if", lambda route: route.fulfill(json=found))
        page.goto(f"{url}#/trace/{ID}")
        panel = page.get_by_label("what would have shortened it").first
        panel.get_by_text("2 more verifiers").wait_for()
        assert "946 ms" in panel.inner_text()
        assert "20 %" in panel.inner_text()
        assert "1182 ms were measured: −9.3 %" in panel.inner_text()
        assert "There was time to simulate each 2 instead of 8 times" in panel.inner_text()
        assert "γ" not in panel.inner_text()
        found["left_out"] = [f"strategy {SCRIPT}", "γ = 12"]
        page.reload()
        panel.get_by_text(f"No time was left to simulate: strategy {SCRIPT}, γ = 12").wait_for()


HELD_BACK = """
const real = window.fetch;
const empty = { ok: true, text: async () => '{"traces": [], "num_stored": 0}' };
window.fetch = (path, options) => path.startsWith("api/traces?")
  ? new Promise((done) => { window.answer = () => done(empty); })
  : real(path, options);
"""


def test_a_list_that_comes_late_leaves_the_address_to_the_trace_that_is_shown(browser, url):
    with opened(browser, url) as page:
        page.add_init_script(HELD_BACK)
        page.reload()
        page.locator(".status", has_text="reading").wait_for()
        page.evaluate(f"location.hash = '#/trace/{ID}'; answer()")
        page.wait_for_selector(".lanes canvas")
        assert stretch(page) is None
        assert page.url == f"{url}#/trace/{ID}"
        page.reload()
        page.wait_for_selector(".lanes canvas")


def test_a_trace_that_was_left_in_the_middle_of_a_zoom_leaves_the_address_to_the_list(trace, url):
    trace.evaluate(
        "document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '+', bubbles: true }));"
        "location.hash = '#/'"
    )
    trace.wait_for_selector(ROWS)
    assert stretch(trace) is None
    assert trace.url == f"{url}#/"


def test_tokens_and_their_spans_point_at_each_other(trace):
    rejected = trace.locator(".tokens .token.rejected")
    assert rejected.inner_text() == SCRIPT
    rejected.hover()
    tip = trace.get_by_role("tooltip").inner_text()
    assert "drafted by drafter" in tip
    assert "verified by verifier-0" in tip
    rejected.click()
    assert trace.locator(".details h2").inner_text() == "specmesh.draft"
    assert trace.locator(".tokens .token.marked").count() == 3
    assert trace.locator(".tokens .token.recovered").inner_text() == MARKUP


def test_a_long_answer_is_laid_out_as_far_as_it_is_in_view(browser, tmp_path):
    commit = make_span(1 << 120, "specmesh.commit", kind=1)
    listed(commit, "specmesh.committed.nodes", range(1, 20_001))
    listed(commit, "specmesh.committed.kinds", ["accepted"] * 20_000)
    long = store_with(tmp_path / "t.sqlite", [group("orchestrator", commit)])
    with (
        running("--no-browser", "--store", long) as (_, said),
        opened(browser, f"{said}#/trace/last") as page,
    ):
        page.wait_for_selector(".tokens .token")
        positions = page.locator(".tokens .position").all_text_contents()
        assert positions == [str(first) for first in range(1, 20_001, 200)]
        seen = "(tokens) => tokens.checkVisibility({ contentVisibilityAuto: true })"
        rows = page.locator(".tokens .row > :last-child")
        rows.first.scroll_into_view_if_needed()
        assert [row.evaluate(seen) for row in (rows.first, rows.last)] == [True, False]
        page.keyboard.press("j")
        assert "500, and 19500 more" in page.locator(".details").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_is_the_systems_until_the_reader_chooses(browser, url, scheme):
    with opened(browser, f"{url}#/trace/{ID}", color_scheme=scheme) as page:
        page.wait_for_selector(".lanes canvas")
        grounds = {"light": "rgb(244, 245, 247)", "dark": "rgb(14, 18, 24)"}
        ground, picture = looks(page)
        assert ground == grounds[scheme]
        page.get_by_role("button", name="Toggle dark and light").click()
        other = looks(page)
        assert other[0] in grounds.values()
        assert other[0] != ground
        assert other[1] != picture
        page.reload()
        page.wait_for_selector(".lanes canvas")
        assert looks(page)[0] == other[0]


@pytest.mark.parametrize("where", ["", f"#/trace/{ID}"])
def test_a_phone_shows_it_without_scrolling_sideways(browser, url, where):
    with opened(browser, url + where, viewport=PHONE, has_touch=True, is_mobile=True) as page:
        page.wait_for_selector(".lanes canvas, table.traces tbody tr")
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


@pytest.mark.parametrize("viewport", [PHONE, DESK])
def test_long_words_do_not_widen_the_page(browser, tmp_path, viewport):
    word = "w" * 3000
    root = make_span(1 << 120, f"{word}/{word}", 0, 10, specmesh__strategy=word, error__type=word)
    attribute(root, "gen_ai.response.model", word)
    root.status.code, root.status.message = Status.STATUS_CODE_ERROR, word
    store = store_with(tmp_path / "t.sqlite", [group(word, root)])
    with (
        running("--no-browser", "--store", store) as (_, said),
        opened(browser, said, viewport=viewport) as page,
    ):
        page.wait_for_selector(ROWS)
        width = "document.documentElement.scrollWidth"
        assert page.evaluate(width) == viewport["width"]
        assert page.locator(".traces .request").get_attribute("title") == word
        page.locator(ROWS).locator("a").click()
        page.wait_for_selector(".lanes canvas")
        assert page.evaluate(width) == viewport["width"]
        assert page.locator(".heading h1").bounding_box()["width"] < viewport["width"]


def test_two_fingers_zoom(browser, url):
    with opened(browser, f"{url}#/trace/{ID}", viewport=PHONE, has_touch=True) as page:
        page.wait_for_selector(".lanes canvas")
        x, y = middle(page, ".lanes")
        touch = page.context.new_cdp_session(page)

        def fingers(kind, apart):
            points = [{"x": x - apart, "y": y, "id": 1}, {"x": x + apart, "y": y, "id": 2}]
            send = {"type": kind, "touchPoints": [] if kind == "touchEnd" else points}
            touch.send("Input.dispatchTouchEvent", send)

        fingers("touchStart", 30)
        for apart in (40, 60, 90):
            fingers("touchMove", apart)
        fingers("touchEnd", 0)
        start, end = changed(page, None)
        assert end - start < 60


def test_controls_have_names(trace):
    nameless = trace.evaluate(
        """() => [...document.querySelectorAll("button, a, input, select, [tabindex]")]
          .filter((it) => !(it.getAttribute("aria-label") || it.innerText.trim()))
          .map((it) => it.outerHTML)"""
    )
    assert nameless == []


def test_an_export_works_from_a_disk(browser, store, tmp_path):
    file = tmp_path / "trace.html"
    command = ["trace", "open", EVENTFUL, "--export", str(file), "--store", str(store)]
    assert CliRunner().invoke(app, command).exit_code == 0
    with opened(browser, file.as_uri(), offline=True) as page:
        page.wait_for_selector(".lanes canvas")
        page.mouse.move(*middle(page, ".lanes"))
        page.mouse.wheel(0, -400)
        assert stretch(page)
        page.keyboard.press("t")
        page.keyboard.press("j")
        assert page.locator(".details h2").inner_text() == "GenerationService/Generate"
        assert stretch(page)
        page.reload()
        page.wait_for_selector(".details h2")
