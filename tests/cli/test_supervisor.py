"""Processes that live and die together: real ones, found and missed by their pids."""

import asyncio
import errno
import json
import os
import re
import shutil
import signal
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

import psutil
import pytest
import redis.asyncio

from specmesh.cli.local.keeper import Keeper
from specmesh.cli.local.logs import Alarms, latest_event, serving_address
from specmesh.cli.local.process import PORT, Process, ProcessSpec, StartError
from specmesh.cli.local.redis import redis_spec
from specmesh.cli.local.service import service_spec
from specmesh.cli.local.supervisor import Supervisor, late_line, pauses
from specmesh.serving.store.redis_url import check_redis_url

STANDIN = Path(__file__).with_name("standin.py")


def standin(name, *flags, cores=frozenset(), environment=None, niceness=0):
    return ProcessSpec(
        name=name,
        command=(sys.executable, str(STANDIN), "--port", PORT, *flags),
        ready=serving_address,
        cores=cores,
        environment=environment or {},
        niceness=niceness,
    )


@pytest.fixture
def reports():
    return asyncio.Queue()


@pytest.fixture
async def supervisor(tmp_path, reports):
    supervisor = Supervisor(
        tmp_path, start_timeout_s=20, stop_timeout_s=5, report=reports.put_nowait
    )
    yield supervisor
    pids = list(supervisor.pids.values())
    await supervisor.stop()
    assert not any(map(alive, pids))


def alive(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def logged(tmp_path, name):
    lines = (tmp_path / f"{name}.log").read_text().splitlines()
    return [json.loads(line) for line in lines]


async def accepts(address):
    host, port = address.split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.close()
    await writer.wait_closed()


async def test_processes_start_at_once_and_tell_their_addresses(supervisor):
    addresses = await supervisor.start(standin("one"), standin("two"))
    assert len(set(addresses)) == 2
    for address in addresses:
        await accepts(address)
    assert sorted(supervisor.pids) == ["one", "two"]


async def test_a_process_gets_its_cores_and_its_environment(supervisor, tmp_path):
    cores = frozenset({max(os.sched_getaffinity(0))})
    environment = {"OMP_NUM_THREADS": "3"}
    await supervisor.start(standin("one", cores=cores, environment=environment))
    starting = logged(tmp_path, "one")[0]
    assert (starting["cores"], starting["threads"]) == (sorted(cores), "3")


async def test_processes_that_compute_give_way_to_the_others(supervisor):
    await supervisor.start(*(standin(name, niceness=5) for name in ("a", "b")), standin("c"))
    *nice, other = (supervisor.pids[name] for name in ("a", "b", "c"))
    for each in nice:
        assert psutil.Process(each).nice() - psutil.Process(other).nice() == 5
        assert niceness_of_session(each) in {5, None}
    assert niceness_of_session(other) in {0, None}


def niceness_of_session(pid):
    """The niceness of a process beside those of other sessions; None if that is its own."""
    session = Path(f"/proc/{pid}/autogroup")
    return int(session.read_text().split()[-1]) if session.exists() else None


def test_models_give_way_to_what_only_passes_messages_on():
    roles = ("verifier", "drafter", "confidence", "orchestrator", "gateway")
    niceness = {role: service_spec(role, role, ()).niceness for role in roles}
    models = {"verifier", "drafter", "confidence"}
    assert {role for role in roles if niceness[role]} == models


async def test_a_process_that_dies_is_started_anew_at_its_address(supervisor, reports):
    (address,) = await supervisor.start(standin("one"))
    first = supervisor.pids["one"]
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(20):
        assert await reports.get() == "one died with status -9; restarting it"
        assert await reports.get() == f"one is serving again at {address}"
    await accepts(address)
    assert supervisor.pids["one"] != first


async def test_a_start_that_fails_for_any_reason_is_tried_again(tmp_path, reports):
    fails = [None, OSError(errno.EMFILE, "Too many open files")]

    async def launch(spec, address):
        if (error := fails.pop(0) if fails else None) is not None:
            raise error
        return await Process.start(spec, tmp_path, 20, address)

    keeper = Keeper(standin("one"), launch, 5, reports.put_nowait)
    async with asyncio.timeout(30):
        address = await keeper.start()
        keeper.send(signal.SIGKILL)
        assert await reports.get() == "one died with status -9; restarting it"
        assert "could not be started: [Errno 24] Too many open files" in await reports.get()
        assert await reports.get() == f"one is serving again at {address}"
        await keeper.stop()


async def test_a_process_goes_on_and_ends_though_its_log_is_on_a_full_disk(tmp_path, reports):
    (tmp_path / "chatty.log").symlink_to("/dev/full")
    script = "head -c 1000000 /dev/zero; echo; echo served; exec sleep 60"
    spec = ProcessSpec("chatty", ("sh", "-c", script), {"served": "here"}.get)
    async with asyncio.timeout(20):
        chatty = await Process.start(spec, tmp_path, timeout_s=10, tell=reports.put_nowait)
        await chatty.stop(0)
    lacks = "lacks some of the output: No space left on device"
    assert await reports.get() == f"{chatty.log_file} {lacks}"
    assert reports.empty()


async def test_a_process_is_started_anew_though_the_folder_of_logs_is_gone(
    supervisor, tmp_path, reports
):
    (address,) = await supervisor.start(standin("one"))
    shutil.rmtree(tmp_path)
    os.kill(supervisor.pids["one"], signal.SIGKILL)
    async with asyncio.timeout(20):
        assert await reports.get() == "one died with status -9; restarting it"
        assert "lacks some of the output: No such file" in await reports.get()
        assert await reports.get() == f"one is serving again at {address}"


async def test_a_failed_start_without_a_log_is_told_all_the_same(supervisor, tmp_path):
    shutil.rmtree(tmp_path)
    with pytest.raises(StartError, match="status 3"):
        await supervisor.start(standin("bad", "--fail", "no such model"))


async def test_a_process_that_is_ended_on_purpose_comes_back_when_it_is_told_to(supervisor):
    (address,) = await supervisor.start(standin("one"))
    first, began = supervisor.pids["one"], time.monotonic()
    async with asyncio.timeout(20):
        await supervisor.end_and_restart("one", signal.SIGKILL, 0.5)
    assert time.monotonic() - began >= 0.5
    await accepts(address)
    assert supervisor.pids["one"] != first


async def test_a_signal_that_comes_as_the_process_ends_leaves_its_exit_status(tmp_path):
    spec = ProcessSpec("brief", ("sh", "-c", "echo; exec sleep 20"), ready=lambda line: line)
    for _ in range(20):
        brief = await Process.start(spec, tmp_path, timeout_s=20)
        for _ in range(200):
            brief.kill()
        assert await brief.wait() == -signal.SIGKILL


async def test_a_failed_start_says_why_and_leaves_no_process(supervisor):
    with pytest.raises(StartError, match="status 3") as caught:
        await supervisor.start(standin("good"), standin("bad", "--fail", "no such\nmodel"))
    assert "no such\nmodel" in str(caught.value)
    assert "bad.log" in str(caught.value)
    pids = supervisor.pids
    await supervisor.stop()
    assert not any(map(alive, pids.values()))


async def test_of_a_process_that_says_why_it_cannot_start_that_alone_is_told(supervisor, tmp_path):
    with pytest.raises(StartError) as caught:
        await supervisor.start(standin("bad", "--refuse", "No such model."))
    log = tmp_path / "bad.log"
    assert str(caught.value) == f"bad cannot start: No such model; its log is {log}"


async def test_a_start_may_take_any_time_while_it_or_its_children_compute(tmp_path):
    compute = "import time\nwhile time.process_time() < 2: pass"
    script = f"{sys.executable} -c '{compute}'; echo served; exec sleep 60"
    spec = ProcessSpec("slow", ("sh", "-c", script), {"served": "here"}.get)
    async with asyncio.timeout(30):
        slow = await Process.start(spec, tmp_path, timeout_s=1)
    assert slow.address == "here"
    await slow.stop(0)


async def test_a_process_that_stands_still_before_it_serves_is_given_up(tmp_path, reports):
    supervisor = Supervisor(
        tmp_path, start_timeout_s=1, stop_timeout_s=5, report=reports.put_nowait
    )
    with pytest.raises(StartError, match="mute is not ready and has used no processor"):
        await supervisor.start(standin("mute", "--silent"))


async def test_a_start_that_takes_long_is_told_of_and_what_it_is_at(
    supervisor, reports, monkeypatch
):
    monkeypatch.setattr("specmesh.cli.local.supervisor.TELL_AFTER_S", 0.5)
    start = asyncio.create_task(supervisor.start(standin("quick"), standin("mute", "--silent")))
    async with asyncio.timeout(20):
        while not (report := await reports.get()).endswith(": mute (starting)"):
            assert report.startswith("still starting after ")  # before it has said anything
    start.cancel()
    await asyncio.wait({start})


async def test_starts_one_after_the_other_are_no_longer_silent_than_one(
    supervisor, reports, monkeypatch
):
    async with asyncio.timeout(30):
        await supervisor.start(standin("first"))
        # Most of the time that may be silent has gone by; the next start has but the rest.
        supervisor._told_at = time.monotonic() - 50
        monkeypatch.setattr("specmesh.cli.local.supervisor.TELL_AFTER_S", 50.5)
        start = asyncio.create_task(supervisor.start(standin("mute", "--silent")))
        assert seconds_in(await reports.get()) < 20
    start.cancel()
    await asyncio.wait({start})


def seconds_in(said):
    return int(re.match(r"still starting after (\d+) s: mute", said)[1])


async def test_the_time_of_starts_one_after_the_other_runs_on(supervisor, reports, monkeypatch):
    monkeypatch.setattr("specmesh.cli.local.supervisor.TELL_AFTER_S", 0.1)
    supervisor._began -= 500
    async with asyncio.timeout(30):
        start = asyncio.create_task(supervisor.start(standin("mute", "--silent")))
        assert seconds_in(await reports.get()) > 500
    start.cancel()
    await asyncio.wait({start})


async def test_the_time_of_a_later_start_is_its_own(supervisor, reports, monkeypatch):
    monkeypatch.setattr("specmesh.cli.local.supervisor.TELL_AFTER_S", 0.1)
    supervisor._began -= 500
    supervisor._started_at -= 400
    async with asyncio.timeout(30):
        start = asyncio.create_task(supervisor.start(standin("mute", "--silent")))
        assert seconds_in(await reports.get()) < 20
    start.cancel()
    await asyncio.wait({start})


def test_a_start_that_goes_on_is_told_of_ever_more_rarely():
    assert list(islice(pauses(), 6)) == [5, 10, 20, 40, 40, 40]


def test_processes_that_start_at_once_share_a_line():
    latest = {"drafter": "loading", "redis": "", "verifier-0": "loading"}
    said = late_line(latest, 24.6)
    assert (
        said
        == "still starting after 25 s: drafter, verifier-0 (loading); redis (nothing logged yet)"
    )


def test_what_a_log_says_last_is_its_latest_event_if_it_has_any(tmp_path):
    log = tmp_path / "one.log"
    assert latest_event(log) == ""
    log.write_text("a warning\n")
    assert latest_event(log) == ""
    log.write_text('{"event": "starting"}\n{"event": "loading\\nmuch"}\na warning\n')
    assert latest_event(log) == "loading"


async def test_stop_ends_the_last_started_first(supervisor, tmp_path):
    await supervisor.start(standin("first"))
    await supervisor.start(standin("second"))
    await supervisor.stop()
    ends = [logged(tmp_path, name)[-1] for name in ("second", "first")]
    assert [end["event"] for end in ends] == ["ending", "ending"]
    assert ends[0]["at"] < ends[1]["at"]


async def test_kill_cuts_a_long_stop_short(supervisor):
    await supervisor.start(standin("deaf", "--stubborn"))
    pids = supervisor.pids
    stopping = asyncio.create_task(supervisor.stop())
    supervisor.kill()
    async with asyncio.timeout(3):
        await stopping
    assert not any(map(alive, pids.values()))


async def test_a_process_deaf_to_sigterm_is_killed(tmp_path, reports):
    supervisor = Supervisor(
        tmp_path, start_timeout_s=20, stop_timeout_s=0.2, report=reports.put_nowait
    )
    await supervisor.start(standin("deaf", "--stubborn"))
    pid = supervisor.pids["deaf"]
    await supervisor.stop()
    assert not alive(pid)
    assert reports.empty()


async def test_cancelling_a_start_leaves_no_process(supervisor):
    began = asyncio.Event()
    mute = replace(standin("mute"), ready=lambda line: began.set())
    others = set(psutil.Process().children(recursive=True))  # a session's Redis, say
    starting = asyncio.create_task(supervisor.start(mute))
    async with asyncio.timeout(20):
        await began.wait()
    children = set(psutil.Process().children(recursive=True)) - others
    assert children
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not any(child.is_running() for child in children)


async def test_killing_the_supervisor_kills_its_processes(tmp_path):
    supervisor = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        KILLED_SUPERVISOR,
        str(tmp_path),
        str(STANDIN),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(20):
        pid = int(await supervisor.stdout.readline())
        child = psutil.Process(pid)
        supervisor.send_signal(signal.SIGKILL)
        await supervisor.wait()
        await asyncio.to_thread(child.wait, 10)
    assert not alive(pid)


KILLED_SUPERVISOR = """
import asyncio, sys
from pathlib import Path
from specmesh.cli.local.logs import serving_address
from specmesh.cli.local.process import ProcessSpec
from specmesh.cli.local.supervisor import Supervisor

async def main(directory, standin):
    supervisor = Supervisor(Path(directory), start_timeout_s=20, stop_timeout_s=5, report=print)
    await supervisor.start(ProcessSpec("one", (sys.executable, standin), serving_address))
    print(supervisor.pids["one"], flush=True)
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_redis_starts_on_a_socket_of_its_own(supervisor, tmp_path):
    (url,) = await supervisor.start(redis_spec(tmp_path / "r.sock", frozenset()))
    async with redis.asyncio.from_url(url, decode_responses=True) as connection:
        assert await connection.ping()
        assert await connection.config_get("port") == {"port": "0"}


@pytest.mark.parametrize("name", ["a#1", "100%", "20%25", "what?", "a b"])
async def test_redis_may_have_its_socket_in_any_folder(supervisor, tmp_path, name):
    (tmp_path / name).mkdir()
    (url,) = await supervisor.start(redis_spec(tmp_path / name / "r.sock"))
    async with redis.asyncio.from_url(check_redis_url(url)) as connection:
        assert await connection.ping()


async def test_redis_with_a_directory_keeps_what_it_held_when_it_was_killed(supervisor, tmp_path):
    (url,) = await supervisor.start(redis_spec(tmp_path / "r.sock", directory=tmp_path))
    async with redis.asyncio.from_url(url, decode_responses=True) as connection:
        await connection.set("name", "value")
    async with asyncio.timeout(20):
        await supervisor.end_and_restart("redis", signal.SIGKILL, 0.0)
    async with redis.asyncio.from_url(url, decode_responses=True) as connection:
        assert await connection.get("name") == "value"


async def test_warnings_and_errors_of_a_process_are_reported_each_event_once(supervisor, reports):
    await supervisor.start(standin("one", "--warn", "not what was asked for"))
    assert await reports.get() == "one: warning: odd reason=not what was asked for"
    assert await reports.get() == "one: error: refused reason=not what was asked for"
    assert reports.empty()


def test_an_event_is_reported_again_a_minute_later():
    told = []
    alarms = Alarms("one", told.append)
    line = json.dumps({"level": "warning", "event": "odd"})
    for now in (100.0, 159.0, 161.0):
        alarms.look_at(line, now)
    alarms.look_at("no JSON", 300.0)
    assert told == ["one: warning: odd"] * 2


def test_what_is_told_of_a_warning_leaves_out_ids():
    told = []
    ids = {"trace_id": "22407a", "span_id": "5e1f", "session": "a-b", "request_id": "c-d"}
    line = json.dumps({"level": "warning", "event": "odd", **ids, "reason": "busy"})
    Alarms("one", told.append).look_at(line, 0.0)
    assert told == ["one: warning: odd reason=busy"]


def test_of_a_process_that_starts_errors_are_left_to_the_failure_of_the_start():
    told = []
    alarms = Alarms("one", told.append)
    for level in ("error", "warning", "info"):
        line = json.dumps({"level": level, "event": f"some {level}"})
        alarms.look_at(line, 0.0, is_starting=True)
    assert told == ["one: warning: some warning"]
