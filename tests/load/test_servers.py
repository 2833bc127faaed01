"""What servers tell of themselves, from their /metrics."""

import asyncio

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from specmesh.load.runs.servers import (
    CannotScrape,
    ServerReading,
    ServerWatch,
    parsed,
    scrape,
    server,
)

TEXT = """\
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 12.5
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 1e8
# TYPE specmesh_queue_duration_seconds histogram
specmesh_queue_duration_seconds_bucket{le="+Inf",service_name="specmesh-verifier"} 10
specmesh_queue_duration_seconds_sum{service_name="specmesh-verifier"} 0.5
specmesh_queue_duration_seconds_count{service_name="specmesh-verifier"} 10
# TYPE specmesh_engine_queue_depth gauge
specmesh_engine_queue_depth{service_name="specmesh-verifier"} 3
"""

CPU = "process_cpu_seconds_total"
QUEUED = "specmesh_queue_duration_seconds_sum"
NUM_QUEUED = "specmesh_queue_duration_seconds_count"
FORWARDS = "specmesh_engine_forward_duration_seconds_sum"
DEPTH = "specmesh_engine_queue_depth"


def told(at_s, cpu_s, queued_s, num_queued, depth):
    values = {
        CPU: cpu_s,
        QUEUED: queued_s,
        NUM_QUEUED: num_queued,
        FORWARDS: at_s * 0.4,
        DEPTH: depth,
    }
    return ServerReading(at_s, "verifier", values)


def test_the_text_format_is_read_with_the_role():
    found = parsed(TEXT, 1.0)
    assert found.role == "verifier"
    assert found.values[CPU] == 12.5
    assert (found.values[QUEUED], found.values[NUM_QUEUED], found.values[DEPTH]) == (0.5, 10, 3)


def test_a_process_is_told_by_what_it_did_while_it_was_measured():
    scrapes = [
        told(0.0, 5.0, 1.0, 10, 0.0),
        told(2.0, 6.0, 2.0, 20, 2.0),
        told(4.0, 7.5, 3.0, 120, 5.0),
        told(6.0, 7.6, 9.0, 130, 9.0),
    ]
    found = server("a:1", scrapes, from_s=2.5, until_s=3.9)
    assert found.cpu_cores == pytest.approx(0.75)
    assert found.queue_mean_ms == pytest.approx(10.0)
    assert found.forward_share == pytest.approx(0.4)
    assert found.max_queue_depth == 5.0
    assert found.max_waiting is None
    assert [each.t_s for each in found.samples] == [2.0, 4.0, 6.0]
    assert [each.cpu_cores for each in found.samples] == pytest.approx([0.5, 0.75, 0.05])


def test_a_process_that_is_restarted_counts_from_nothing_again():
    scrapes = [
        told(0.0, 50.0, 9.0, 900, 0.0),
        told(2.0, 51.0, 10.0, 1000, 0.0),
        told(4.0, 0.5, 0.25, 50, 0.0),
        told(6.0, 2.5, 0.75, 150, 0.0),
    ]
    found = server("a:1", scrapes, from_s=0.0, until_s=6.0)
    assert found.cpu_cores == pytest.approx((1.0 + 0.5 + 2.0) / 6, abs=1e-4)
    assert found.queue_mean_ms == pytest.approx((1.0 + 0.75) / 250 * 1e3)
    assert [each.cpu_cores for each in found.samples] == pytest.approx([0.5, 0.25, 1.0])


def test_what_a_process_does_not_tell_is_unknown_not_zero():
    scrapes = [ServerReading(0.0, "", {CPU: 1.0}), ServerReading(2.0, "", {CPU: 2.0})]
    found = server("a:1", scrapes, 0.0, 2.0)
    assert (found.role, found.cpu_cores) == ("unknown", 0.5)
    assert found.queue_mean_ms is found.forward_share is found.max_queue_depth is None


@pytest.fixture
def exporter():
    registry = CollectorRegistry()
    Counter("process_cpu_seconds", "", registry=registry).inc(3.5)
    Gauge("specmesh_requests_waiting", "", ["service_name"], registry=registry).labels(
        "specmesh-orchestrator"
    ).set(4)
    httpd, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    yield f"127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    httpd.server_close()
    thread.join()


async def test_processes_are_looked_at_until_the_run_ends(exporter):
    watch = ServerWatch([exporter])
    await watch.check()
    watching = asyncio.create_task(watch.run(lambda: 1.0))
    async with asyncio.timeout(10):
        while exporter not in watch.scrapes:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
    watching.cancel()
    await asyncio.wait({watching})
    (found,) = watch.servers(0.0, 2.0)
    assert (found.role, found.max_waiting) == ("orchestrator", 4.0)


async def test_an_address_without_metrics_is_said_before_the_run():
    with pytest.raises(CannotScrape, match=r"http://127\.0\.0\.1:1/metrics: "):
        await ServerWatch(["127.0.0.1:1"]).check()


async def test_a_page_that_is_no_metrics_is_refused():
    async def page(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        body = b"<html>welcome!</html>"
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(page, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with listening, aiohttp.ClientSession() as session:
        with pytest.raises(CannotScrape, match=f":{port}/metrics"):
            await scrape(session, f"127.0.0.1:{port}", 0.0)
