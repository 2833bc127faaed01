"""The work of a command around its runs."""

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys

import grpc
import psutil
import pytest
from tests.load.conftest import observed, seen, workload
from tests.load.reports import mixed_run
from typer.testing import CliRunner

from specmesh.client import NotFound
from specmesh.load.__main__ import app
from specmesh.load.commands import session as sessions
from specmesh.load.commands.options import ResultOptions
from specmesh.load.commands.session import RunSession
from specmesh.load.generators import fleet, worker
from specmesh.load.generators.fleet import Fleet
from specmesh.load.results.objectives import Objectives
from specmesh.load.runs.conduct import FinishedRun, RunPlan
from specmesh.load.runs.servers import CannotScrape
from specmesh.load.runs.summary import summarise
from specmesh.load.transports.mesh_transport import MeshDoor
from specmesh.load.transports.observation import RequestOutcome
from specmesh.load.transports.transport import RequestFailed
from specmesh.load.workload.arrivals import ReplayedArrivals
from specmesh.load.workload.conversations import Conversation, Listed, Turn

SCRIPT = "from specmesh.cli.main import main; main()"
LISTED = Listed((Conversation((Turn("hello"),)),))
NOTHING = workload(conversations=LISTED, arrivals=ReplayedArrivals(()))


def test_ctrl_c_ends_a_run_that_is_still_connecting():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        arguments = ("load", "run", "--rate", "1", "--target", target)
        child = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *arguments], stderr=subprocess.PIPE, text=True
        )
        try:
            silent.settimeout(30)
            with silent.accept()[0]:
                child.send_signal(signal.SIGINT)
                _, said = child.communicate(timeout=30)
        finally:
            child.kill()
            child.wait()
    assert child.returncode == 130
    assert "interrupted before anything was sent" in said


async def test_ctrl_c_ends_a_run_whose_generators_are_still_starting(monkeypatch):
    async def begin(_):
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    monkeypatch.setattr(fleet._Worker, "begin", begin)
    door = MeshDoor(("127.0.0.1:1",), model="m")
    session = RunSession(ResultOptions())
    with pytest.raises(RequestFailed, match="interrupted before anything was sent"):
        async with asyncio.timeout(20):
            await session.run(RunPlan(workload=workload(conversations=LISTED), door=door), "")
    assert session.stopped


async def test_files_in_the_current_folder_are_no_modules_of_the_generators(monkeypatch, tmp_path):
    (tmp_path / "random.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    sent = Fleet(NOTHING, MeshDoor(("127.0.0.1:1",), model="m"), 1, traced=False)
    assert (await sent.run(lambda _: None, lambda *_: None)).observations == []


async def test_generators_may_open_as_many_files_as_the_operator_allows():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = []

    def started(_):
        children = psutil.Process().children()
        (one,) = (each for each in children if worker.__name__ in each.cmdline())
        allowed.append(one.rlimit(psutil.RLIMIT_NOFILE))

    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
    try:
        sent = Fleet(NOTHING, MeshDoor(("127.0.0.1:1",), model="m"), 1, traced=False)
        await sent.run(started, lambda *_: None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert allowed == [(before[1], before[1])]


SEARCH = ("search", "--from", "8", "--slo", "ttft=200ms")
SWEEP = ("sweep", "--rates", "8", "--over", "temperature=0,0.5")


@pytest.mark.parametrize("command", [SEARCH, SWEEP])
@pytest.mark.parametrize(
    ("failure", "status", "told"),
    [
        (RequestFailed("UNAVAILABLE", "it is gone"), 3, "it is gone [UNAVAILABLE]"),
        (CannotScrape("no metrics"), 1, "no metrics"),
    ],
)
def test_a_server_that_dies_ends_a_search_or_a_sweep_with_what_there_is(
    monkeypatch, tmp_path, command, failure, status, told
):
    begun = []

    async def conduct(plan, *_):
        begun.append(plan)
        if len(begun) > 1:
            raise failure
        return FinishedRun(plan, seen([]), mixed_run())

    monkeypatch.setattr(sessions, "conduct", conduct)
    files = tmp_path / "report.json", tmp_path / "report.html"
    done = CliRunner().invoke(app, [*command, "--json", str(files[0]), "--html", str(files[1])])
    assert done.exit_code == status, done.output
    assert done.stderr.endswith(f"specmesh: {told}\n")
    assert "rate/s" in done.stdout
    report = json.loads(files[0].read_text())
    assert [each["rate"] for each in report["points"]] == [8.0]
    assert report["failure"] == told
    assert f"ended early: {told}" in files[1].read_text()


@pytest.mark.parametrize("command", [SEARCH, SWEEP])
def test_ctrl_c_between_two_runs_costs_none_of_the_finished_ones(monkeypatch, tmp_path, command):
    begun = []

    async def conduct(plan, *_):
        for _ in begun:
            await asyncio.Event().wait()
        begun.append(plan)
        return FinishedRun(plan, seen([]), mixed_run())

    def setting(session, plan):
        os.kill(os.getpid(), signal.SIGINT)
        return described_by(session, plan)

    described_by = RunSession.setting
    monkeypatch.setattr(sessions, "conduct", conduct)
    monkeypatch.setattr(RunSession, "setting", setting)
    files = tmp_path / "report.json", tmp_path / "report.html"
    done = CliRunner().invoke(app, [*command, "--json", str(files[0]), "--html", str(files[1])])
    assert done.exit_code == 130, done.output
    report = json.loads(files[0].read_text())
    assert [each["rate"] for each in report["points"]] == [8.0]
    assert report["interrupted"]
    assert f"interrupted; the {command[0]} had not come to its end" in files[1].read_text()
    assert ("interrupted; so far found no rate" in done.stdout) == (command == SEARCH)


def test_values_of_an_option_that_a_sweep_varies_twice_add_up(monkeypatch, tmp_path):
    async def conduct(plan, *_):
        return FinishedRun(plan, seen([]), mixed_run())

    monkeypatch.setattr(sessions, "conduct", conduct)
    file = tmp_path / "report.json"
    again = ("--over", "temperature=0.5,1", "--json", str(file))
    assert CliRunner().invoke(app, [*SWEEP, *again]).exit_code == 0
    changed = [each["changed"] for each in json.loads(file.read_text())["points"]]
    assert changed == [{"temperature": each} for each in ("0", "0.5", "1")]


@pytest.mark.parametrize("command", [SEARCH, SWEEP])
def test_a_file_of_prompts_is_read_once_however_many_runs_there_are(monkeypatch, tmp_path, command):
    prompts, file = tmp_path / "prompts.txt", tmp_path / "report.json"
    prompts.write_text("hello")

    async def conduct(plan, *_):
        prompts.unlink(missing_ok=True)
        return FinishedRun(plan, seen([]), mixed_run())

    monkeypatch.setattr(sessions, "conduct", conduct)
    asked = [*command, "--prompts", str(prompts), "--json", str(file)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code != 2, done.output
    assert len(json.loads(file.read_text())["points"]) > 1


@pytest.mark.parametrize(
    ("roles", "options", "left_out"),
    [
        (("system", "user"), ("--chat",), 0),
        (("system", "user"), (), 1),
        (("system", "user", "system"), ("--chat",), 1),
        (("system", "user", "system"), (), 2),
    ],
)
def test_messages_of_the_system_that_are_not_sent_are_counted(
    monkeypatch, tmp_path, roles, options, left_out
):
    chat = [{"role": role, "content": "be brief"} for role in roles]
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"messages": chat}))
    done = run_with(monkeypatch, "--prompts", prompts, *options)
    assert done.exit_code == 0, done.output
    told = f"specmesh: {left_out} of the system's messages in {prompts} are left out: "
    assert told in done.stderr if left_out else "left out" not in done.stderr


def test_a_search_ends_at_a_rate_at_which_nothing_is_due(monkeypatch, tmp_path):
    nothing = summarise(workload(), seen([]), Objectives(ttft_s=0.2))
    judged = iter([mixed_run(), nothing])

    async def conduct(plan, *_):
        return FinishedRun(plan, seen([]), next(judged))

    monkeypatch.setattr(sessions, "conduct", conduct)
    file = tmp_path / "report.json"
    done = CliRunner().invoke(app, [*SEARCH, "--json", str(file)])
    assert done.exit_code == 1
    why = "at 4 a second no request was due that was not cancelled"
    assert f"specmesh: {why}: --duration is too short for this rate" in done.stderr
    report = json.loads(file.read_text())
    assert [(each["rate"], each["meets"]) for each in report["points"]] == [(4, None), (8, False)]
    assert (report["highest_rate"], report["lowest_missed_rate"]) == (None, 8.0)


def test_a_refusal_of_the_mesh_has_the_status_that_it_has_elsewhere(monkeypatch):
    async def conduct(*_):
        refused = NotFound("no such model", code=grpc.StatusCode.NOT_FOUND, reason="NO_MODEL")
        raise RequestFailed("NO_MODEL", "no such model") from refused

    monkeypatch.setattr(sessions, "conduct", conduct)
    done = CliRunner().invoke(app, SEARCH)
    assert (done.exit_code, done.stderr) == (5, "specmesh: no such model [NO_MODEL]\n")


def test_a_server_that_was_never_there_is_reported_as_such_alone(monkeypatch, tmp_path):
    async def conduct(*_):
        raise RequestFailed("UNAVAILABLE", "it is not there")

    monkeypatch.setattr(sessions, "conduct", conduct)
    file = tmp_path / "report.json"
    done = CliRunner().invoke(app, [*SEARCH, "--json", str(file)])
    assert (done.exit_code, done.stdout) == (3, "")
    assert not file.exists()


HALF = "\ud83d"
"""Half a character, as JSON may have it."""


def run_with(monkeypatch, *arguments, reason="OVERLOADED", meanwhile=lambda: None):
    """The command of a run that ends at once, as far as it could be begun."""

    async def conduct(plan, *_):
        meanwhile()
        failed = observed(0.0, outcome=RequestOutcome.FAILED, reason=f"{reason} {HALF}")
        return FinishedRun(plan, seen([failed, observed(0.0)]), mixed_run(reason))

    monkeypatch.setattr(sessions, "conduct", conduct)
    environment = {"COLUMNS": "200"}
    return CliRunner(env=environment).invoke(app, ["run", "--rate", "1", *map(str, arguments)])


def test_a_run_is_written_and_shown_whatever_a_server_calls_its_failures(monkeypatch, tmp_path):
    json_file, csv_file = tmp_path / "run.json", tmp_path / "run.csv"
    files = ("--json", json_file, "--csv", csv_file)
    done = run_with(monkeypatch, *files, reason="[/INST] bad")
    assert done.exit_code == 0, done.output
    assert "[/INST] bad" in done.stdout
    assert list(json.loads(json_file.read_text())["result"]["errors"]) == ["[/INST] bad"]
    assert "[/INST] bad \\ud83d" in csv_file.read_text()


def test_a_file_that_cannot_be_written_costs_neither_the_others_nor_what_is_shown(
    monkeypatch, tmp_path
):
    json_file, html, csv_file = (tmp_path / f"run.{kind}" for kind in ("json", "html", "csv"))
    files = ("--json", json_file, "--html", html, "--csv", csv_file)
    done = run_with(monkeypatch, *files, meanwhile=json_file.mkdir)
    assert done.exit_code == 1
    assert done.stderr == f"specmesh: [Errno 21] Is a directory: '{json_file}'\n"
    assert html.stat().st_size > 0
    assert csv_file.stat().st_size > 0
    assert "answered" in done.stdout


@pytest.mark.parametrize("url", ["http://me:s3cret@127.0.0.1:1/v1", "http://me:s3cret@a@b:1"])
def test_a_password_in_a_url_is_in_no_report_and_no_message(monkeypatch, tmp_path, url):
    files = tmp_path / "run.json", tmp_path / "run.html"
    asked = ("--openai", url, "--json", files[0], "--html", files[1])
    monkeypatch.setattr(sys, "argv", ["load", "run", f"--openai={url}", "--openai", url])
    done = run_with(monkeypatch, *asked)
    assert done.exit_code == 0, done.output
    setting = json.loads(files[0].read_text())["setting"]
    assert setting["command"].count("://***@") == 2
    assert setting["server"].startswith("OpenAI http://***@")
    for text in (done.output, *(file.read_text() for file in files)):
        assert "s3cret" not in text


@pytest.mark.parametrize(
    ("first", "second"), [("--json", "--html"), ("--json", "--csv"), ("--html", "--csv")]
)
def test_one_file_for_two_reports_is_refused(monkeypatch, tmp_path, first, second):
    file, same = tmp_path / "report", tmp_path / ".." / tmp_path.name / "report"
    done = run_with(monkeypatch, first, file, second, same)
    assert done.exit_code == 2
    assert f"Invalid value for {second}: it is the file of {first}, too" in done.stderr
    assert not file.exists()


@pytest.mark.parametrize("option", ["--json", "--html", "--csv"])
def test_a_folder_or_a_file_that_may_not_be_written_is_refused_before_a_run(
    monkeypatch, tmp_path, option
):
    def begun():
        raise AssertionError("it has begun")

    done = run_with(monkeypatch, option, tmp_path, meanwhile=begun)
    assert done.exit_code == 2
    assert "is a folder" in done.stderr
    monkeypatch.setattr(os, "access", lambda file, _: file != tmp_path)
    done = run_with(monkeypatch, option, tmp_path / "new", meanwhile=begun)
    assert done.exit_code == 2
    assert "can't be written" in done.stderr
    assert list(tmp_path.iterdir()) == []
