"""The samples follow the public definitions: opentelemetry-proto's examples/trace.json, the answer
of Jaeger's /api/traces, and those of Tempo's /api/traces/ID and /api/v2/traces/ID."""

import io
import json
from pathlib import Path

import pytest
from tests.traces.otlp import answer, group, make_span

from specmesh.traces.formats.chrome import to_chrome
from specmesh.traces.formats.errors import UnreadableTraces
from specmesh.traces.formats.files import read_traces
from specmesh.traces.formats.otlp import groups_from_json, to_line
from specmesh.traces.spans import Node, SpanKind, spans_from
from specmesh.traces.trace import Trace

SAMPLES = Path(__file__).parent / "samples"
TRACE = "5b8efff798038103d269b633813fc60c"


def spans_of(text):
    (groups,) = read_traces(io.BytesIO(text))
    return sorted(spans_from(groups), key=lambda span: span.start_ns)


@pytest.mark.parametrize(
    "name", ["otlp.json", "jaeger.json", "tempo-v1.json", "tempo-v2.json", "tempo-old.json"]
)
def test_every_form_tells_the_same(name):
    root, call, served = spans_of((SAMPLES / name).read_bytes())
    assert {span.trace_id for span in (root, call, served)} == {TRACE}
    assert (root.name, root.kind) == ("specmesh.v1.GenerationService/Generate", SpanKind.SERVER)
    assert (root.parent_span_id, root.duration_ms) == ("", 100.0)
    assert root.node == Node("specmesh-orchestrator", "orchestrator")
    assert root.text("specmesh.strategy") == "dsi"
    assert (root.number("specmesh.acceptance"), root.is_error) == (0.5, False)
    assert root.attributes["gen_ai.usage.output_tokens"] == 3
    assert (call.kind, call.parent_span_id) == (SpanKind.CLIENT, root.span_id)
    assert (served.kind, served.parent_span_id) == (SpanKind.SERVER, call.span_id)
    assert (served.node.label, served.is_error) == ("verifier-0", True)
    assert served.numbers("specmesh.tree.nodes") == (1, 2)
    assert served.start_ns - root.start_ns == 15_000_000


def test_jaegers_logs_and_other_references_become_events_and_links():
    (groups,) = read_traces(io.BytesIO((SAMPLES / "jaeger.json").read_bytes()))
    root, _, served = (span for group in groups for span in group.scope_spans[0].spans)
    assert [(event.name, len(event.attributes)) for event in root.events] == [("half way", 1)]
    assert [link.span_id.hex() for link in served.links] == ["0000000000000008"]


def test_what_is_written_is_read_again():
    groups = answer(5, num_rounds=2)
    assert groups_from_json(to_line(groups).encode()) == groups


def test_json_lines_may_spread_a_trace_over_several_lines():
    one, two = answer(1), answer(2)
    lines = [to_line([one[0]]), "", to_line([*two, one[1]])]
    found = read_traces(io.BytesIO("\n".join(lines).encode()))
    sizes = {
        next(spans_from(groups)).trace_id[-1]: len(list(spans_from(groups))) for groups in found
    }
    assert sizes == {"1": 4, "2": 4}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"spans": []}', "none of"),
        (b'{"resourceSpans": []}\n{"resourceSpans": [}', "line 2"),
        (b'{"data": [{"spans": [{}]}]}', "not a trace in Jaeger's format"),
        (b'{"batches": [3]}', "not a trace in Tempo's format"),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "xyz"}]}]}]}', "traceId"),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"kind": {}}]}]}]}', "kind"),
    ],
)
def test_what_is_no_trace_is_refused_with_the_place(text, said):
    with pytest.raises(UnreadableTraces, match=said):
        read_traces(io.BytesIO(text))


@pytest.mark.parametrize(
    ("trace_id", "span_id", "said"),
    [
        ("a" * 40, "b", "traceId '(aa)*' has 20 bytes, not 16"),
        ("a", "b" * 18, "spanId '(bb)*' has 9 bytes, not 8"),
    ],
)
def test_jaegers_ids_have_a_length(trace_id, span_id, said):
    span = {"traceID": trace_id, "spanID": span_id, "startTime": 1, "duration": 1, "processID": "p"}
    document = {"data": [{"spans": [span], "processes": {"p": {}}}]}
    with pytest.raises(UnreadableTraces, match=said):
        read_traces(io.BytesIO(json.dumps(document).encode()))


@pytest.mark.parametrize("missing", ["traceId", "spanId"])
def test_a_span_without_an_id_is_refused(missing):
    document = json.loads(to_line([group("v", make_span(1, "x"))]))
    del document["resourceSpans"][0]["scopeSpans"][0]["spans"][0][missing]
    with pytest.raises(UnreadableTraces, match=f"span 'x': {missing} '' has 0 bytes"):
        read_traces(io.BytesIO(json.dumps(document).encode()))


NESTED = b"[" * 100_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (NESTED, "nested too deeply"),
        (NESTED + b"\n{}", "nested too deeply"),
        (b'{"resourceSpans": []}\n' + NESTED, "line 2: the JSON is nested too deeply"),
        (
            b'{"data": [{"spans": [{"traceID": "1", "spanID": "1", "startTime": 1, "duration": 1, '
            b'"processID": "p", "tags": [{"key": "specmesh.x", "value": "%s"}]}], '
            b'"processes": {"p": {}}}]}' % NESTED,
            "Jaeger",
        ),
    ],
    ids=["alone", "the first line", "another line", "an attribute"],
)
def test_what_is_nested_too_deeply_is_refused(text, said):
    with pytest.raises(UnreadableTraces, match=said):
        read_traces(io.BytesIO(text))


def test_chromes_events_nest_within_a_lane():
    groups = answer(7, num_rounds=4)
    trace = Trace.of(list(spans_from(groups)))
    document = json.loads(json.dumps(to_chrome(trace)))
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert len(events) == len(trace.spans)
    names = {e["args"]["name"] for e in document["traceEvents"] if e["ph"] == "M"}
    assert names == {"orchestrator", "verifier"}
    assert min(event["ts"] for event in events) == 0
    lanes = {}
    for event in events:
        lanes.setdefault((event["pid"], event["tid"]), []).append(
            (event["ts"], event["ts"] + event["dur"])
        )
    for spans in lanes.values():
        for one in spans:
            for other in spans:
                apart = one[1] <= other[0] or other[1] <= one[0]
                nested = (one[0] - other[0]) * (one[1] - other[1]) <= 0
                assert apart or nested
