"""Several workers behind one port: none of them is missed for long, and all end together."""

import asyncio
import json
import os
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.e2e.answers import LONG, answer, disturbed, said
from tests.ports import free_port

from specmesh.client import AsyncClient

NOBODY = "127.0.0.1:1"
"""An orchestrator that isn't there: gateways serve nevertheless."""
ESTABLISHED = "01"
PATIENCE_S = 20


def workers_of(process):
    """The workers' process ids, in the order in which they were started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in children.read_text().split()]


def holder(process):
    """The worker that has the one connection to the port."""
    port = f"{int(process.address.rpartition(':')[2]):04X}"
    tables = (Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6"))
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    (socket,) = {row[9] for row in rows if row[1].endswith(f":{port}") and row[3] == ESTABLISHED}
    return next(pid for pid in workers_of(process) if f"socket:[{socket}]" in descriptors(pid))


def descriptors(pid):
    links = list(Path(f"/proc/{pid}/fd").iterdir())
    return {os.readlink(link) for link in links if link.is_symlink()}


def runs(pid):
    return Path(f"/proc/{pid}").exists()


async def until(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(0.02)


def events(process, event):
    lines = (json.loads(line) for line in process.output.splitlines() if line.startswith("{"))
    return [line for line in lines if line["event"] == event]


@pytest.fixture
def gateway(processes):
    def started(*flags):
        return processes.service("gateway", "--orchestrators", NOBODY, *flags)

    return started


async def serving(process, *numbers):
    """Wait until the workers with these numbers serve."""
    for number in numbers:
        await until(
            lambda number=number: any(
                each["name"].endswith(f"-{number}") for each in events(process, "serving")
            )
        )


def status_of(address):
    try:
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=10) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


async def test_workers_share_a_port_and_end_with_status_0_when_told(gateway):
    process = gateway("--workers", "3")
    await serving(process, 0, 1, 2)
    assert len({line["address"] for line in events(process, "serving")}) == 1
    assert len(workers_of(process)) == 3
    assert await asyncio.to_thread(status_of, process.address) == 503  # nobody is behind it
    process.send(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait_exit) == 0
    drained = {line["name"][-2:] for line in events(process, "draining")}
    assert drained == {"-0", "-1", "-2"}
    assert "worker ended" not in process.output


async def test_a_terminal_that_goes_away_breaks_nothing_off_however_often_it_is_told(gateway):
    process = gateway("--workers", "2", "--drain-delay-seconds", "0.5")
    await serving(process, 0, 1)
    for number in (signal.SIGHUP, signal.SIGHUP):
        for each in (*workers_of(process), process.pid):
            os.kill(each, number)
        await asyncio.to_thread(process.wait_event, "leaving")
    assert await asyncio.to_thread(process.wait_exit) == 0


async def test_workers_that_are_told_as_well_as_their_parent_end_once(gateway):
    """As by systemd, or by Ctrl+C; a second signal would break calls off, with status 1."""
    process = gateway("--workers", "2", "--drain-delay-seconds", "0.5")
    await serving(process, 0, 1)
    workers = workers_of(process)
    for number in (signal.SIGTERM, signal.SIGINT):
        for worker in workers:
            os.kill(worker, number)
    process.send(signal.SIGTERM)
    await asyncio.to_thread(process.wait_event, "leaving")
    for worker in workers:
        os.kill(worker, signal.SIGTERM)
    assert await asyncio.to_thread(process.wait_exit) == 0


async def test_second_signal_does_not_wait_for_what_runs(gateway):
    process = gateway("--workers", "2", "--drain-delay-seconds", "600")
    await serving(process, 0, 1)
    process.send(signal.SIGTERM)
    await until(lambda: len(events(process, "leaving")) == 2)
    process.send(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait_exit) == 1


async def test_worker_that_dies_is_replaced_while_the_others_serve(gateway):
    process = gateway("--workers", "2")
    await serving(process, 0, 1)
    victim, other = workers_of(process)
    os.kill(victim, signal.SIGKILL)
    ended = await asyncio.to_thread(process.wait_event, "worker ended")
    assert (ended["worker"], ended["exit_status"]) == (0, 137)
    await until(lambda: len(events(process, "serving")) == 3)
    assert events(process, "serving")[2]["name"] == events(process, "starting")[2]["name"]
    assert other in workers_of(process)
    assert len(workers_of(process)) == 2
    assert await asyncio.to_thread(status_of, process.address) == 503


async def test_no_worker_outlives_a_parent_that_is_killed(gateway):
    process = gateway("--workers", "2")
    await serving(process, 0, 1)
    workers = workers_of(process)
    process.kill()
    await until(lambda: not any(map(runs, workers)))


async def test_workers_that_cannot_start_end_the_parent_with_their_status(gateway, tmp_path):
    began = time.monotonic()
    process = gateway("--workers", "2", "--mesh-ca", str(tmp_path / "missing.pem"))
    assert await asyncio.to_thread(process.wait_exit) == 1
    assert time.monotonic() - began < PATIENCE_S
    assert "missing.pem" in events(process, "cannot start")[0]["reason"]
    assert len(events(process, "giving up")) == 1


async def test_port_that_workers_of_another_parent_share_is_taken(gateway):
    first = gateway("--workers", "2")
    port = first.address.rpartition(":")[2]
    second = gateway("--workers", "2", "--port", port)
    assert await asyncio.to_thread(second.wait_exit) == 1
    (reason,) = (line["reason"] for line in events(second, "cannot start"))
    assert reason.startswith(f"cannot listen on 127.0.0.1:{port}: ")


async def test_each_worker_serves_metrics_at_a_port_of_its_own(gateway):
    port = free_port()
    process = gateway("--workers", "2", "--metrics-address", str(port))
    await serving(process, 0, 1)
    served = {line["name"][-2:]: line["address"] for line in events(process, "metrics")}
    assert served == {"-0": f"127.0.0.1:{port}", "-1": f"127.0.0.1:{port + 1}"}
    for address in served.values():
        assert await asyncio.to_thread(status_of, address) == 200


async def test_answer_of_a_worker_that_is_killed_goes_on_through_the_same_port(
    mesh, processes, client, prompts
):
    orchestrator = processes.orchestrator(
        mesh.verifiers, [mesh.drafter], "--redis-url", mesh.redis_url, "--workers", "2"
    )
    await serving(orchestrator, 0, 1)
    undisturbed = await answer(client, prompts[0], **LONG)

    async def kill():
        os.kill(holder(orchestrator), signal.SIGKILL)

    async with AsyncClient(orchestrator.address) as own:
        result = await disturbed(own, prompts[0], kill, **LONG)
    assert said(result) == said(undisturbed)
    assert result.num_resumes == 1
    ended = await asyncio.to_thread(orchestrator.wait_event, "worker ended")
    assert ended["exit_status"] == 137
