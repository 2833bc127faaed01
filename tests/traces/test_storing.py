"""The collector stores each trace that it can, whatever else arrives with it, or ends."""

import asyncio
import logging
import sqlite3
from dataclasses import replace

import pytest
from tests.traces.otlp import answer, group, make_span

from specmesh.traces.collector.__main__ import collect
from specmesh.traces.collector.arrival import arrivals
from specmesh.traces.collector.buffer import BufferLimits, TraceBuffer
from specmesh.traces.collector.sampling import KeepAll
from specmesh.traces.collector.settings import CollectorSettings
from specmesh.traces.collector.storing import Storing
from specmesh.traces.store.limits import StoreLimits
from specmesh.traces.store.query import Query
from specmesh.traces.store.reader import StoreReader
from specmesh.traces.store.schema import StoreError
from specmesh.traces.store.stored_trace import StoredTrace
from specmesh.traces.store.writer import StoreWriter


class Full:
    """A connection of SQLite to a disk that is full while ``statement`` is carried out, if it has
    ``value`` among its values."""

    def __init__(self, connection, statement, value=None):
        self.connection = connection
        self.statement = statement
        self.value = value

    def execute(self, sql, *values):
        if self.statement in sql and (self.value is None or self.value in values[0]):
            raise sqlite3.OperationalError("database or disk is full")
        return self.connection.execute(sql, *values)

    def __getattr__(self, name):
        return getattr(self.connection, name)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "traces.sqlite"


@pytest.fixture
def buffer():
    return TraceBuffer(KeepAll(), BufferLimits())


async def write_the_rest(storing):
    running = asyncio.create_task(storing.run())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def ids(path):
    with StoreReader(path) as reader:
        return {int(each.trace_id, 16) for each in reader.select(Query())}


def test_a_trace_without_a_stored_form_is_dropped_alone(path, buffer, caplog):
    broken = replace(next(arrivals(answer(2))), span=b"\xff")
    buffer.take([*arrivals(answer(1)), broken, *arrivals(answer(3))], 0.0)
    with caplog.at_level(logging.ERROR):
        asyncio.run(write_the_rest(Storing(buffer, StoreWriter(path, StoreLimits()))))
    assert ids(path) == {1, 3}
    assert [each.message for each in caplog.records] == ["trace dropped"]


def test_spans_without_valid_ids_are_dropped_and_counted(path, buffer, caplog):
    short, long, nameless = (make_span(2, "x") for _ in range(3))
    short.trace_id, long.span_id, nameless.span_id = b"2", b"3" * 9, b""
    storing = Storing(buffer, StoreWriter(path, StoreLimits()))
    storing.take([*answer(1), group("verifier", short, long, nameless)])
    with caplog.at_level(logging.WARNING):
        asyncio.run(storing._write([]))
        asyncio.run(storing._write([]))
    asyncio.run(write_the_rest(storing))
    assert ids(path) == {1}
    told = [(each.message, each.count, each.reason) for each in caplog.records]
    assert told == [("spans dropped", 3, "without valid ids")]


@pytest.mark.parametrize("statement", ["wal_checkpoint", "page_count", "INSERT", "COMMIT"])
def test_a_full_disk_is_an_error_of_the_store_until_it_has_room(path, statement):
    writer = StoreWriter(path, StoreLimits())
    traces = [StoredTrace.of(answer(1))]
    connection = writer._connection
    writer._connection = Full(connection, statement)
    with pytest.raises(StoreError, match="disk is full"):
        writer.add(traces)
    writer._connection = connection
    assert writer.add(traces) == 0
    assert ids(path) == {1}


def test_a_trace_that_cannot_be_stored_costs_no_other(path):
    writer = StoreWriter(path, StoreLimits())
    writer._connection = Full(writer._connection, "INSERT INTO traces", f"{2:032x}")
    assert writer.add([StoredTrace.of(answer(number)) for number in (1, 2, 3)]) == 1
    assert ids(path) == {1, 3}


def test_a_store_that_another_process_locks_is_waited_for_once(path):
    writer = StoreWriter(path, StoreLimits())
    writer._connection.execute("PRAGMA busy_timeout = 1")
    begun = []
    writer._connection.set_trace_callback(lambda sql: begun.append(sql) if "BEGIN" in sql else None)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        writer.add([StoredTrace.of(answer(number)) for number in (1, 2, 3)])
    other.close()
    assert len(begun) == 1


def test_spans_that_are_each_others_parents_and_numbers_without_end_are_stored(path):
    own, one, other = (make_span(number, "x") for number in (1, 2, 2))
    own.parent_span_id = own.span_id
    own.start_time_unix_nano = own.end_time_unix_nano = 2**64 - 1
    one.parent_span_id, other.parent_span_id = other.span_id, one.span_id
    endless = make_span(3, "x", gen_ai__usage__output_tokens=float("inf"))
    most = make_span(4, "x", gen_ai__usage__output_tokens=2**63 - 1)
    groups = [[group("v", *spans)] for spans in ([own], [one, other], [endless], [most])]
    assert StoreWriter(path, StoreLimits()).add(list(map(StoredTrace.of, groups))) == 0
    assert ids(path) == {1, 2, 3, 4}


def test_the_collector_ends_with_the_task_that_stores(path, monkeypatch, caplog):
    async def broken(_):
        raise RuntimeError("broken")

    monkeypatch.setattr(Storing, "run", broken)
    settings = CollectorSettings(store=path, grpc_port=0, http_port=0)
    assert asyncio.run(asyncio.wait_for(collect(settings), 20)) == 1
    assert "cannot store traces any more" in caplog.messages
