"""Traces on disk: found again, and never more of them than is allowed."""

import os
import random
import sqlite3
import zlib

import pytest
from tests.traces.otlp import ANSWER, answer, group, make_span

from specmesh.traces.spans import spans_from
from specmesh.traces.store import writer as writer_module
from specmesh.traces.store.blob import pack, unpack
from specmesh.traces.store.limits import MIN_BYTES, StoreLimits
from specmesh.traces.store.query import Order, Query
from specmesh.traces.store.reader import NoSuchTrace, StoreReader, bytes_on_disk
from specmesh.traces.store.schema import StoreError
from specmesh.traces.store.stored_trace import StoredTrace
from specmesh.traces.store.writer import StoreWriter
from specmesh.traces.summary import Outcome, summarise


class Clock:
    now_s = 1_700_000_000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "traces.sqlite"


def writer(path, clock=None, **limits):
    return StoreWriter(path, StoreLimits(**limits), clock or Clock())


def stored(*answers):
    return [StoredTrace.of(groups) for groups in answers]


def noise(number, num_bytes):
    """A trace, or a further span of it, whose blob can't be made smaller."""
    span = make_span(number, ANSWER)
    text = random.Random(span.span_id).randbytes(num_bytes).hex()
    span.attributes.add(key="noise").value.string_value = text
    return StoredTrace.of([group("orchestrator", span)])


def ids(summaries):
    return [int(each.trace_id, 16) for each in summaries]


def test_a_trace_comes_back_as_it_was_sent(path):
    groups = answer(0xABC, num_rounds=3)
    store = writer(path)
    assert store.add(stored(groups)) == 0
    with StoreReader(path) as reader:
        assert list(reader.spans(f"{0xABC:032x}").resource_spans) == groups
    assert zlib.decompress(pack(groups)) == unpack(pack(groups)).SerializeToString()


def test_it_is_for_its_user_alone(path):
    writer(path)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(path.parent).st_mode & 0o777 == 0o700


def test_lists_are_filtered_and_ordered(path):
    store = writer(path)
    one = answer(1, duration_ms=10, session="s1")
    two = answer(2, duration_ms=30, failed=True, strategy="speculative")
    three = answer(3, duration_ms=20)
    store.add(stored(one, two, three))
    with StoreReader(path) as reader:

        def listed(**query):
            return ids(reader.select(Query(**query)))

        assert listed(order=Order.SLOWEST) == [2, 3, 1]
        assert listed(order=Order.SLOWEST, limit=2) == [2, 3]
        assert listed(min_ms=20.0, order=Order.SLOWEST) == [2, 3]
        assert listed(outcome=Outcome.FAILED) == [2]
        assert listed(strategy="speculative") == [2]
        assert listed(session="s1") == [1]
        assert listed(node="nobody") == []
        assert sorted(listed(node="verifier")) == [1, 2, 3]
        assert listed(since_s=1_700_000_001.0) == []
        assert listed(incomplete=True) == []
        (summary,) = reader.select(Query(session="s1"))
    assert (summary.name, summary.duration_ms, summary.num_spans) == (ANSWER, 10.0, 4)
    assert summary.nodes == ("orchestrator", "verifier")


def test_a_request_with_several_answers_is_found_by_each_session_and_counts_all_their_tokens(path):
    root = make_span(5, "POST /v1/completions", 0.0, 30.0)
    streams = [
        make_span(5, ANSWER, start_ms, 10.0, parent=root.span_id, **told(session, tokens))
        for start_ms, session, tokens in ((2.0, "s2", 3), (1.0, "s1", 4), (11.0, "s1", 5))
    ]
    writer(path).add(stored([group("gateway", root), group("orchestrator", *streams)]))
    with StoreReader(path) as reader:
        for session in ("s1", "s2"):
            (summary,) = reader.select(Query(session=session))
        assert reader.select(Query(session="s")) == []
        assert ids(reader.select(Query(begun=True))) == [5]
    assert summary.sessions == ("s1", "s2")
    assert summary.num_tokens == 12


def test_a_resumed_answer_has_the_tokens_that_its_client_counted(path):
    client = make_span(6, "specmesh.generate", 0.0, 30.0, kind=3, **told("s1", 9))
    streams = [  # that of another stream was lost with its orchestrator
        make_span(6, ANSWER, 1.0, 10.0, parent=client.span_id, **told("s1", 3)),
        make_span(6, ANSWER, 12.0, 10.0, parent=client.span_id, **told("s2", 5)),
    ]
    writer(path).add(stored([group("client", client), group("orchestrator", *streams)]))
    with StoreReader(path) as reader:
        (summary,) = reader.select(Query())
    assert summary.num_tokens == 14


def test_sessions_that_were_stored_as_they_are_are_found(path):
    store = writer(path)
    store.add(stored(answer(1, session="s1")))
    store._connection.execute("UPDATE traces SET session = 's1'")
    with StoreReader(path) as reader:
        (summary,) = reader.select(Query(session="s1"))
    assert summary.sessions == ("s1",)


@pytest.mark.parametrize(
    ("root", "streams", "outcome", "reason"),
    [
        ({"http__response__status_code": 404}, [], Outcome.FAILED, ""),
        ({"http__response__status_code": 429, "error__type": "busy"}, [], Outcome.FAILED, "busy"),
        ({}, ["RESOURCE_EXHAUSTED"], Outcome.FAILED, "RESOURCE_EXHAUSTED"),
        ({}, ["RESOURCE_EXHAUSTED", "OK"], Outcome.OK, ""),
        ({"http__response__status_code": 200}, ["OK"], Outcome.OK, ""),
        ({"specmesh__cancelled": True}, ["RESOURCE_EXHAUSTED"], Outcome.CANCELLED, ""),
    ],
)
def test_a_refused_request_has_failed(path, root, streams, outcome, reason):
    top = make_span(7, "POST /v1/completions", 0.0, 30.0, **root)
    below = [
        make_span(7, ANSWER, start_ms, parent=top.span_id, rpc__response__status_code=status)
        for start_ms, status in enumerate(streams)
    ]
    writer(path).add(stored([group("gateway", top, *below)]))
    with StoreReader(path) as reader:
        (summary,) = reader.select(Query())
    assert (summary.outcome, summary.reason) == (outcome, reason)


def told(session, tokens):
    return {"gen_ai__response__id": session, "gen_ai__usage__output_tokens": tokens}


def test_what_the_mesh_asks_itself_is_listed_only_if_asked_for(path):
    name = "specmesh.mesh.v1alpha1.ModelService/GetModel"
    writer(path).add(stored([group("verifier", make_span(7, name))]))
    with StoreReader(path) as reader:
        assert reader.select(Query()) == []
        assert ids(reader.select(Query(internal=True))) == [7]


def test_late_spans_are_added_and_none_is_there_twice(path):
    store = writer(path)
    orchestrator, verifier = answer(1)
    store.add(stored([orchestrator]))
    with StoreReader(path) as reader:
        assert ids(reader.select(Query(incomplete=True))) == [1]
    store.add(stored([verifier, orchestrator]))
    with StoreReader(path) as reader:
        (summary,) = reader.select(Query())
        assert (summary.num_spans, summary.num_missing) == (4, 0)
        found = list(spans_from(reader.spans(summary.trace_id).resource_spans))
    assert len({span.span_id for span in found}) == len(found) == 4


def test_spans_that_an_exporter_repeats_are_stored_once_as_they_came_first(path):
    orchestrator, verifier = answer(1)
    first = orchestrator.scope_spans[0].spans[0]
    again = orchestrator.scope_spans[0].spans.add()
    again.CopyFrom(first)
    again.name = "again"
    writer(path).add(stored([orchestrator, verifier, verifier]))
    with StoreReader(path) as reader:
        (summary,) = reader.select(Query())
        found = list(spans_from(reader.spans(summary.trace_id).resource_spans))
    assert summary.num_spans == len(found) == 4
    assert [span.name for span in found if span.span_id == first.span_id.hex()] == [ANSWER]


DAMAGED = [b"\x00\x11\x22\x33", pack([])[:-3], zlib.compress(b"\xff\xff garbage"), pack([]), b""]


@pytest.mark.parametrize("blob", DAMAGED)
def test_a_damaged_trace_is_named_until_its_spans_come_again(path, blob):
    store = writer(path)
    store.add(stored(answer(1), answer(2)))
    store._connection.execute("UPDATE spans SET otlp = ? WHERE id = 1", (blob,))
    with StoreReader(path) as reader:
        with pytest.raises(StoreError, match=f"trace {1:032x} is damaged"):
            reader.spans(f"{1:032x}")
        assert reader.spans(f"{2:032x}")
    assert store.add(stored(answer(1))) == 0
    with StoreReader(path) as reader:
        assert reader.spans(f"{1:032x}")


def test_a_trace_without_its_spans_is_damaged(path):
    store = writer(path)
    store.add(stored(answer(1)))
    store._connection.execute("DELETE FROM spans")
    with StoreReader(path) as reader, pytest.raises(StoreError, match="is damaged"):
        reader.spans(f"{1:032x}")
    assert store.add(stored(answer(1))) == 0  # they come again
    with StoreReader(path) as reader:
        assert reader.spans(f"{1:032x}").resource_spans


def test_a_trace_that_cannot_be_stored_costs_no_other_batch(path, monkeypatch):
    store, added = writer(path), StoreWriter._add

    def add(self, trace):
        if trace.summary.trace_id == f"{1:032x}":
            raise sqlite3.OperationalError("full")
        added(self, trace)

    monkeypatch.setattr(StoreWriter, "_add", add)
    monkeypatch.setattr(writer_module, "batches", lambda traces, *_: [[each] for each in traces])
    assert store.add([*stored(answer(1)), *stored(answer(2))]) == 1
    with StoreReader(path) as reader:
        assert reader.spans(f"{2:032x}").resource_spans
    with pytest.raises(StoreError, match="full"):
        store.add(stored(answer(1)))


@pytest.mark.parametrize("start_ns", [2**64 - 10**9, 2**62])
def test_a_trace_of_the_future_is_as_new_as_its_storing(path, start_ns):
    clock = Clock()
    clock.now_s += 3600
    store = writer(path, clock)
    future = make_span(9, ANSWER)
    future.start_time_unix_nano, future.end_time_unix_nano = start_ns, start_ns + 1
    groups = [group("orchestrator", future)]
    store.add(stored(groups))
    later = make_span(1, ANSWER, start_ms=2 * 3600e3)
    clock.now_s += 7200
    store.add(stored([group("orchestrator", later)], answer(2)))
    with StoreReader(path) as reader:
        found = reader.select(Query())
    assert ids(found) == [1, 9, 2]
    assert found[1].start_ns == summarise(list(spans_from(groups))).start_ns


def test_a_summary_that_cannot_be_read_is_left_out_and_counted(path):
    store = writer(path)
    store.add(stored(answer(1), answer(2)))
    store._connection.execute("UPDATE traces SET outcome = 'odd' WHERE id = 2")
    with StoreReader(path) as reader:
        assert ids(reader.select(Query())) == [1]
        assert reader.find("last") == f"{1:032x}"
        assert reader.extent().num_damaged == 1


def test_a_prefix_that_only_one_id_has_finds_it(path):
    store = writer(path)
    store.add(stored(answer(0xA << 124, duration_ms=90), answer(0xAB << 120)))
    with StoreReader(path) as reader:
        assert reader.find("AB") == f"{0xAB << 120:032x}"
        assert reader.find("a0") == reader.find("slowest") == f"{0xA << 124:032x}"
        with pytest.raises(NoSuchTrace, match="no trace"):
            reader.find("c")


@pytest.mark.parametrize(("num_traces", "end"), [(3, ""), (4, ", and others")])
def test_a_prefix_of_several_ids_names_the_first_of_them(path, num_traces, end):
    expected = [f"a{number:031x}" for number in range(num_traces)]
    store = writer(path)
    store.add(stored(*(answer(int(each, 16)) for each in expected)))
    with StoreReader(path) as reader, pytest.raises(NoSuchTrace) as refused:
        reader.find("A")
    listed = ", ".join(expected[:3])
    assert str(refused.value) == f"several traces have an id that begins with 'A': {listed}{end}"


def test_its_size_never_exceeds_the_limit_and_the_oldest_go_first(path):
    limit = MIN_BYTES
    store = writer(path, max_bytes=limit)
    sizes = [random.Random(number).choice([10, 300, 5_000, 60_000]) for number in range(250)]
    for number, size in enumerate(sizes, start=1):
        assert store.add([noise(number, size)]) == 0
        assert bytes_on_disk(path) <= limit
    with StoreReader(path) as reader:
        left = sorted(ids(reader.select(Query(limit=1000))))
    assert left[-1] == 250
    # What is left are the newest, without a gap.
    assert left == list(range(left[0], 251))
    assert left[0] > 1
    assert sum(sizes[left[0] :]) > limit / 4


def test_neither_does_it_while_somebody_reads_for_long(path):
    limit = MIN_BYTES
    store = writer(path, max_bytes=limit)
    store.add([noise(1, 1000)])
    store._connection.execute("PRAGMA busy_timeout = 1")  # how long it waits for the reader
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM traces").fetchone()
    num_left_out = 0
    for number in range(2, 60):
        num_left_out += store.add([noise(number, 50_000)])
        assert bytes_on_disk(path) <= limit
    assert num_left_out > 0
    reader.close()
    assert store.add([noise(100, 50_000)]) == 0


def test_a_lower_limit_holds_from_the_start(path):
    first = writer(path, max_bytes=16 * MIN_BYTES)
    first.add([noise(number, 50_000) for number in range(200)])
    first.close()
    assert bytes_on_disk(path) > MIN_BYTES
    writer(path, max_bytes=MIN_BYTES)
    assert bytes_on_disk(path) <= MIN_BYTES


def test_what_is_too_old_goes_and_the_file_shrinks(path):
    clock = Clock()
    store = writer(path, clock, max_age_s=3600.0)
    store.add([noise(number, 20_000) for number in range(1, 50)])
    before = bytes_on_disk(path)
    clock.now_s += 1800
    store.add(stored(answer(100)))
    clock.now_s += 1801
    for _ in range(20):
        store.tidy()
    with StoreReader(path) as reader:
        assert ids(reader.select(Query())) == [100]
    assert bytes_on_disk(path) < before / 4


def test_a_trace_too_large_for_the_store_is_left_out(path):
    store = writer(path, max_bytes=MIN_BYTES)
    assert store.add([noise(1, 2_000_000), noise(2, 10)]) == 1
    with StoreReader(path) as reader:
        assert ids(reader.select(Query())) == [2]


def test_a_trace_that_keeps_growing_stays_as_it_was_when_full_and_costs_no_other(path):
    store = writer(path, max_bytes=MIN_BYTES)
    num_left_out = 0
    for number in range(2, 30):
        num_left_out += store.add([noise(1, 30_000), noise(number, 1000)])
        assert bytes_on_disk(path) <= MIN_BYTES
    with StoreReader(path) as reader:
        spans = {int(each.trace_id, 16): each.num_spans for each in reader.select(Query(limit=99))}
    assert set(spans) == set(range(1, 30))
    assert num_left_out == 28 - spans[1] > 0


def test_late_spans_are_added_up_to_a_number(path):
    store = writer(path, max_joined_spans=5)
    assert store.add(stored(answer(1, num_rounds=2))) == 0  # however many come at once
    assert store.add([noise(1, 10), noise(2, 10)]) == 1
    with StoreReader(path) as reader:
        spans = {int(each.trace_id, 16): each.num_spans for each in reader.select(Query())}
    assert spans == {1: 7, 2: 1}


def test_two_processes_may_write_to_one_store(path):
    one, two = writer(path), writer(path)
    one.add(stored(answer(1)))
    two.add(stored(answer(2)))
    one.add(stored(answer(3)))
    with StoreReader(path) as reader:
        assert reader.extent().num_traces == 3


def test_other_files_are_refused_with_the_reason(path, tmp_path):
    with pytest.raises(StoreError, match="no trace store at"):
        StoreReader(path)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    for open_ in (StoreReader, writer):
        with pytest.raises(StoreError, match="is not a trace store"):
            open_(other)
    text = tmp_path / "text"
    text.write_text("x" * 2000)
    for open_ in (StoreReader, writer):
        with pytest.raises(StoreError, match="not a database"):
            open_(text)
    writer(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="version 99"):
        StoreReader(path)
