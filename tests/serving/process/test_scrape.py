"""What /metrics and /healthz of a real process say, over HTTP."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from tests.scraping import Scraped, get, scrape

from specmesh.serving.certs.folder import bearers, make

if TYPE_CHECKING:
    from tests.serving.process.conftest import Collector, Connect, Launch, ServerProcess

VERIFY = "specmesh.mesh.v1alpha1.VerifierService/Verify"
CALLS = "rpc_server_call_duration_seconds_count"


async def scraped_process(launch: Launch, *flags: str, **options) -> tuple[ServerProcess, str]:
    process = await launch("--metrics-address", "0", *flags, **options)
    return process, next(line["address"] for line in process.log if line["event"] == "metrics")


def statuses(scraped: Scraped) -> dict[str, float]:
    """How many calls of Verify ended with each status."""
    found = scraped.all(CALLS, rpc_method=VERIFY)
    return {sample.labels["rpc_response_status_code"]: sample.value for sample in found}


async def test_calls_are_counted_by_method_and_by_the_status_that_the_caller_sees(
    launch: Launch, connect: Connect
):
    process, address = await scraped_process(launch, "--name", "verifier-7")
    calls = connect(process.address)
    await calls.verify()
    for wish in ("precondition", "unexpected"):
        with pytest.raises(grpc.aio.AioRpcError):
            await calls.verify(wish)
    call = calls.verify("wait")
    await process.logged("waiting")
    assert (await scrape(address)).value("specmesh_rpc_active") == 1
    call.cancel()
    await process.logged("cancelled")
    found = await scrape(address)
    while len(statuses(found)) < 4:  # the call ends a moment after its handler
        found = await scrape(address)
    expected = {"OK": 1, "FAILED_PRECONDITION": 1, "INTERNAL": 1, "CANCELLED": 1}
    assert statuses(found) == expected
    errors = {s.labels["error_type"] for s in found.all(CALLS, rpc_method=VERIFY)}
    assert errors == {"", "INTERNAL"}
    assert found.value("specmesh_rpc_active") == 0


async def test_what_is_scraped_says_whose_it_is(launch: Launch, connect: Connect):
    process, address = await scraped_process(launch, "--name", "verifier-7")
    await connect(process.address).verify()
    found = await scrape(address)
    (info,) = found.all("target_info")
    assert info.labels["service_name"] == "specmesh-verifier"
    assert info.labels["service_instance_id"] == "verifier-7"
    assert info.labels["service_version"] == version("specmesh")
    assert found.all(CALLS)[0].labels["service_name"] == "specmesh-verifier"
    assert found.value("process_resident_memory_bytes") > 0


async def test_until_when_its_certificates_are_valid_is_told(launch: Launch, tmp_path: Path):
    bearer = bearers("test.internal", (), ())["verifier"]
    make(tmp_path, "test.internal", {"verifier": bearer}, timedelta(hours=1), force=False)
    files = [tmp_path / name for name in ("verifier.pem", "verifier-key.pem", "ca.pem")]
    names = ("--tls-cert", "--tls-key", "--tls-ca")
    given = [str(each) for pair in zip(names, files, strict=True) for each in pair]
    collectors_ca = tmp_path / "collector.pem"
    collectors_ca.write_bytes(files[2].read_bytes())
    environment = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://localhost:1",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": str(collectors_ca),
    }
    _, address = await scraped_process(launch, *given, env=environment)
    told = (await scrape(address)).all("specmesh_certificate_expiry_seconds")
    left = {each.labels["specmesh_certificate_file"]: each.value - time.time() for each in told}
    assert set(left) == {str(files[0]), str(files[2]), str(collectors_ca)}
    assert 3500 < left[str(files[0])] <= 3600


async def test_health_of_the_process_needs_no_grpc_from_the_first_moment_to_the_last(
    launch: Launch, connect: Connect
):
    process, address = await scraped_process(launch, "--start", "when-told", until="starting")
    assert await get(address, "/healthz") == (200, b"ok\n")
    process.go_on()
    await process.logged("serving")
    call = connect(process.address).verify("wait")
    await process.logged("waiting")
    process.signal()
    await process.logged("draining")
    assert await get(address, "/healthz") == (200, b"ok\n")
    assert (await scrape(address)).value("specmesh_rpc_active") == 1
    process.go_on()
    await call
    assert await process.ended() == 0


@pytest.mark.parametrize("path", ["/", "/metrics/", "/healthzz", "/favicon.ico"])
async def test_other_paths_are_not_found(launch: Launch, path: str):
    _, address = await scraped_process(launch)
    assert (await get(address, path))[0] == 404


async def test_without_a_port_there_is_none(launch: Launch):
    process = await launch()
    assert "metrics" not in {line["event"] for line in process.log}
    process.signal()
    assert await process.ended() == 0


async def test_port_that_is_taken_ends_the_process_with_the_reason(launch: Launch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = await launch("--metrics-address", str(port), until="cannot start")
        assert f"127.0.0.1:{port} (--metrics-address)" in process.log[-1]["reason"]
        assert await process.ended() == 1


async def test_metrics_may_be_on_another_address_than_the_service(launch: Launch):
    _, address = await scraped_process(launch, "--metrics-address", "127.0.0.2:0")
    assert address.startswith("127.0.0.2:")
    assert (await get(address, "/healthz"))[0] == 200


async def test_scrapes_and_otlp_tell_the_same(
    launch: Launch, connect: Connect, collector: Collector
):
    process, address = await scraped_process(launch, env=collector.env)
    await connect(process.address).verify()
    assert statuses(await scrape(address)) == {"OK": 1}
    process.signal()
    assert await process.ended() == 0
    assert "rpc.server.call.duration" in collector.metrics


async def test_scrapes_at_once_do_not_mix(launch: Launch, connect: Connect):
    process, address = await scraped_process(launch)
    await connect(process.address).verify()
    alone = await scrape(address)
    assert alone.names == {found.names for found in await many(address)}.pop()
    for found in await many(address):
        assert found.names == alone.names
        assert statuses(found) == {"OK": 1}


async def many(address: str) -> list[Scraped]:
    return await asyncio.gather(*(scrape(address) for _ in range(8)))


async def test_clients_that_say_nothing_hold_nobody_up(launch: Launch):
    process, address = await scraped_process(launch)
    host, _, port = address.partition(":")
    async with AsyncExitStack() as stack:
        for _ in range(8):
            _, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
        assert (await get(address, "/healthz"))[0] == 200
        process.signal()
        assert await process.ended() == 0
