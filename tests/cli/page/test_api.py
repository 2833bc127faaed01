"""What the page's server answers."""

import json

import pytest
from starlette.testclient import TestClient
from tests.cli.page.made import CLOCK_AHEAD_MS, EVENTFUL, MARKUP, SCRIPT, SEED, store_with
from tests.traces.otlp import ANSWER, group, make_span

from specmesh.cli.trace.page.api import make_app
from specmesh.cli.trace.page.keys import Keys
from specmesh.cli.trace.page.plain import json_text

BASE = "http://127.0.0.1:1234"


def client(store, keys=None):
    """A client of a server over ``store`` that knows its key."""
    keys = keys or Keys()
    return TestClient(make_app(store, keys), base_url=f"{BASE}/{keys.key}")


@pytest.fixture(scope="module")
def http(store):
    return client(store)


def ids(http, **filters):
    answered = http.get("/api/traces", params=filters)
    assert answered.status_code == 200, answered.text
    return [each["trace_id"][:2] for each in answered.json()["traces"]]


def test_traces_are_listed_with_how_many_there_are(http):
    told = http.get("/api/traces").json()
    assert {each["trace_id"][:2] for each in told["traces"]} == {"aa", "bb", "dd", "ee"}
    assert (told["limit"], told["num_stored"]) == (1000, 4)


def test_filters_are_those_of_the_command(http):
    assert ids(http, order="slowest") == ["bb", "dd", "ee", "aa"]
    assert ids(http, slower_than="150", order="slowest") == ["bb", "dd"]
    assert ids(http, outcome="failed") == ["bb"]
    assert ids(http, strategy="speculative") == ["dd"]
    assert ids(http, session="s-1") == ["aa"]
    assert ids(http, node="verifier-0") == ["ee"]
    assert ids(http, incomplete="true") == ["ee"]
    assert ids(http, since="1h") == []
    assert len(ids(http, since="99999999999d")) == 4
    assert ids(http, order="slowest", limit="1", session="") == ["bb"]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("acceptance_below", "3", "3 is not between 0 and 1"),
        ("slower_than", "nan", "nan is not between 0 and inf"),
        ("slower_than", "much", "'much' is not a number"),
        ("outcome", "bad", "'bad' is not one of ok, cancelled, failed"),
        ("since", "yesterday", "'yesterday' is not a number with s, m, h or d"),
        ("incomplete", "1", "'1' is neither true nor false"),
        ("limit", "10001", "10001 is not between 1 and 10000"),
        ("colour", "red", "unknown; the filters are slower_than, outcome"),
    ],
)
def test_a_bad_filter_is_refused_by_its_name(http, name, value, reason):
    answered = http.get("/api/traces", params={name: value})
    told = answered.json()
    assert (answered.status_code, told["field"]) == (400, name)
    assert told["error"].startswith(f"{name}: {reason}")


def test_a_trace_is_told_as_by_show(http):
    told = http.get(f"/api/traces/{EVENTFUL}").json()
    assert told["summary"]["num_missing"] == 2
    assert sorted(each["loss"] for each in told["incomplete"]) == ["parent", "server"]
    (clock,) = told["clocks"]
    assert clock["node"] == "verifier-0"
    assert clock["offset_ms"] == pytest.approx(-CLOCK_AHEAD_MS, abs=5)
    texts = {token["text"] for token in told["tokens"]["committed"] + told["tokens"]["wasted"]}
    assert {MARKUP, SCRIPT} < texts


def test_what_would_have_shortened_a_trace_is_told_when_it_is_asked_for(http):
    told = http.get(f"/api/traces/{EVENTFUL}/what-if").json()
    assert told == {"unknown": "not known: spans are missing"}
    assert http.get("/api/traces/99/what-if").status_code == 404


def test_a_trace_that_took_no_time_is_told(tmp_path):
    instant = [group("orchestrator", make_span(1 << 120, ANSWER, duration_ms=0.0))]
    told = client(store_with(tmp_path / "t.sqlite", instant)).get("/api/traces/last").json()
    assert told["summary"]["duration_ms"] == 0
    assert [node["path_share"] for node in told["nodes"]] == [0]


def test_numbers_that_javascript_lacks_are_texts(http):
    (root,) = [
        span
        for span in http.get(f"/api/traces/{EVENTFUL}").json()["spans"]
        if "specmesh.seed" in span["attributes"]
    ]
    assert root["attributes"]["specmesh.seed"] == str(SEED)
    assert root["attributes"]["specmesh.filter.threshold"] == "-inf"
    assert json.loads(json_text([2**53 - 1, 2**53, True, None])) == [
        2**53 - 1,
        str(2**53),
        True,
        None,
    ]


def test_what_is_not_there_is_not_found(http, tmp_path):
    answered = http.get("/api/traces/ff")
    assert answered.status_code == 404
    assert answered.json() == {"error": "no trace has an id that begins with 'ff'"}
    answered = client(tmp_path / "none.sqlite").get("/api/traces")
    assert answered.status_code == 503
    assert "no trace store at" in answered.json()["error"]


PATHS = ("/", "/api/traces", f"/api/traces/{EVENTFUL}", f"/api/traces/{EVENTFUL}/what-if", "/x")


def test_who_lacks_the_key_is_shown_nothing(store):
    keys = Keys()
    http = TestClient(make_app(store, keys), base_url=BASE)
    wrong = f"/{Keys().key}"
    for path in (*PATHS, keys.key, "/favicon.ico"):
        for before in ("", wrong, f"/{keys.key[:-1]}", f"/x/{keys.key}", f"/{keys.key}x", "/"):
            answered = http.get(f"{before}{path}")
            assert answered.status_code == 403, before + path
            assert keys.key not in answered.text
    assert http.get(f"/{keys.key}/").status_code == 200


def test_a_ticket_leads_to_the_page_once(store):
    keys = Keys()
    http = TestClient(make_app(store, keys), base_url=BASE, follow_redirects=False)
    ticket = keys.ticket()
    assert http.get(f"/{ticket}/api/traces").status_code == 403
    led = http.get(f"/{ticket}/")
    assert (led.status_code, led.headers["location"]) == (303, f"/{keys.key}/")
    assert http.get(f"/{ticket}/").status_code == 403
    assert http.get(f"/{keys.key}/").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "169.254.169.254"])
def test_no_other_name_leads_to_the_traces(http, host):
    for path in ("/", "/api/traces"):
        assert http.get(path, headers={"host": host}).status_code == 400
    assert http.get("/api/traces", headers={"host": "localhost:99"}).status_code == 200


def test_what_may_hold_texts_is_not_kept_or_framed(http):
    for path in ("/", "/api/traces", f"/api/traces/{EVENTFUL}"):
        headers = http.get(path).headers
        assert headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers
