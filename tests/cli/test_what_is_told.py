"""What ``generate``, ``chat`` and ``models`` tell of an answer that is late, broken or refused."""

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
import typer
from typer.testing import CliRunner

from specmesh.cli.answers import waiting
from specmesh.cli.answers.request import FLAGS
from specmesh.cli.app import app
from specmesh.cli.exit_status import ExitStatus
from specmesh.client import BrokenCall, Unavailable
from specmesh.client.testing import FakeMesh
from specmesh.v1 import events_pb2, served_model_pb2
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1.generation_pb2_grpc import (
    GenerationServiceServicer,
    add_GenerationServiceServicer_to_server,
)


class Orchestrator(GenerationServiceServicer):
    """Says "half a line" and then does what ``then`` does; has no drafter and stores nothing."""

    def __init__(self, then):
        self.then = then
        self.requests = []

    def Generate(self, request, context):  # noqa: N802
        self.requests.append(request)
        started = events_pb2.GenerationStarted(session_id="s", strategy="speculative", model="m")
        yield pb.GenerateResponse(event=events_pb2.GenerationEvent(started=started))
        chunk = events_pb2.GenerationChunk(
            token_ids=[1], text="half a line", text_lengths=[11], kinds=[1]
        )
        yield pb.GenerateResponse(event=events_pb2.GenerationEvent(chunk=chunk))
        self.then(context)
        finished = events_pb2.GenerationFinished(
            finish_reason=events_pb2.FINISH_REASON_STOP,
            stats=events_pb2.GenerationStats(num_output_tokens=1),
        )
        yield pb.GenerateResponse(event=events_pb2.GenerationEvent(finished=finished))

    def ListModels(self, request, context):  # noqa: N802
        model = served_model_pb2.ServedModel(
            num_verifiers=1, default_strategy="speculative", has_chat_template=True
        )
        model.target.name = "m"
        model.strategies.add(name="autoregressive", available=True)
        model.strategies.add(name="speculative", options=["lookahead"], available=True)
        model.strategies.add(
            name="tree", options=["lookahead", "width"], available=True, lossless=True
        )
        model.strategies.add(name="filter", options=["lookahead", "width"], available=True)
        return served_model_pb2.ListModelsResponse(models=[model])


@contextmanager
def serving(then=lambda _: None):
    server = grpc.server(ThreadPoolExecutor(4))
    servicer = Orchestrator(then)
    add_GenerationServiceServicer_to_server(servicer, server)
    servicer.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield servicer
    server.stop(None).wait()


def invoke(*arguments, **options):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments, **options)


def refuse(context):
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "it went wrong")


def stall(context):
    ended = threading.Event()
    if context.add_callback(ended.set):
        ended.wait(20)


@pytest.mark.parametrize("form", [(), ("--show-speculation",)])
def test_an_answer_that_breaks_off_ends_its_line_and_is_called_incomplete(form):
    with serving(refuse) as orchestrator:
        result = invoke("generate", "x", "-t", orchestrator.address, *form)
    assert result.exit_code == ExitStatus.REFUSED
    assert result.stdout == "half a line\n"
    assert result.stderr == "specmesh: it went wrong; the text is incomplete\n"


def test_an_answer_in_a_chat_that_breaks_off_likewise():
    with serving(refuse) as orchestrator:
        result = invoke("chat", "-t", orchestrator.address, input="hello\n")
    assert result.stdout == "half a line\n"
    assert result.stderr == "specmesh: it went wrong; the answer is incomplete\n"


def test_time_that_runs_out_is_told_in_words():
    with serving(stall) as orchestrator:
        result = invoke("generate", "x", "-t", orchestrator.address, "--timeout", "0.5")
    assert result.exit_code == ExitStatus.TIMEOUT
    assert result.stdout == "half a line\n"
    assert result.stderr == "specmesh: the timeout has expired; the text is incomplete\n"


def test_statistics_say_that_there_is_no_drafter_and_that_nothing_is_stored():
    with serving() as orchestrator:
        result = invoke("generate", "x", "-t", orchestrator.address, "--stats")
    assert "; no drafter; not stored; finish reason stop" in result.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ("-o", "width=4"),
            "the strategy 'speculative' has no option 'width'; its options are: lookahead; "
            "choose another by --strategy: tree",
        ),
        (
            ("-o", "lookahead=4", "--strategy", "autoregressive"),
            "the strategy 'autoregressive' takes no options; choose another by --strategy: tree",
        ),
        (("-o", "width=4", "--strategy", "tree"), None),
        (("-o", "width=4", "--strategy", "unknown"), None),
    ],
)
@pytest.mark.parametrize("command", [("generate", "x"), ("chat",)])
def test_an_option_that_means_nothing_to_the_strategy_is_refused(command, given, said):
    with serving() as orchestrator:
        result = invoke(*command, "-t", orchestrator.address, *given, input="hello\n")
    assert (result.exit_code, len(orchestrator.requests)) == ((2, 0) if said else (0, 1))
    assert said is None or said in result.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--logprobs", "3"), "requires --json or --ndjson"),
        (("--max-tokens", "0"), "--max-tokens"),
        (("--timeout", "0"), "must be above 0 and finite"),
        (("--timeout", "inf"), "must be above 0 and finite"),
        (("--timeout", "nan"), "must be above 0 and finite"),
        (("-t", "http://127.0.0.1:50051"), "is a URL"),
        (("-t", "127.0.0.1:99999"), "is not from 1 to 65535"),
        (("-t", ""), "has no host"),
    ],
)
def test_what_can_not_be_meant_is_refused_before_any_call(given, said):
    result = invoke("generate", "x", "-t", "127.0.0.1:1", *given)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize("target", ["h:1", "[::1]:1", "dns:///h:1", "unix:///run/m.sock"])
def test_addresses_that_grpc_can_look_up_pass(target):
    # Refused for what comes after it.
    result = invoke("generate", "x", "-t", target, "--logprobs", "1")
    assert "--logprobs" in result.stderr


@pytest.mark.parametrize(
    ("field", "flag"),
    [
        ("sampling.top_p", "--top-p"),
        ("stopping.stop_strings[3]", "--stop"),
        ("speculation.width", "--option width"),
        ("speculation.filter", "--scorer, --threshold or --escalation-rate"),
        ("text", "the prompt"),
        ("chat.messages[0].role", "the conversation"),
        ("received.token_ids", "received.token_ids"),
    ],
)
def test_a_field_that_is_refused_is_called_as_the_caller_wrote_it(field, flag):
    with FakeMesh() as mesh:
        mesh.fail(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", "is wrong", field=field)
        result = invoke("generate", "x", "-t", mesh.address)
    assert result.exit_code == 2
    assert result.stderr == f"specmesh: {flag}: is wrong [INVALID_FIELD]\n"


def test_the_flags_that_errors_name_are_there():
    command = typer.main.get_command(app).commands["generate"]
    known = {name for each in command.params for name in (*each.opts, each.name)}
    for said in FLAGS.values():
        for flag in (word.strip(",") for word in said.split() if word.startswith("--")):
            assert flag in known


def test_replicas_that_are_not_there_yet_are_not_taken_for_a_mesh_that_is_not():
    with FakeMesh() as mesh:
        for _ in range(9):
            mesh.fail(grpc.StatusCode.UNAVAILABLE, "NO_VERIFIER", "no replica is ready")
        result = invoke("generate", "x", "-t", mesh.address)
    assert result.exit_code == ExitStatus.UNAVAILABLE
    assert result.stderr == "specmesh: no replica is ready [NO_VERIFIER]\n"


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(waiting, "_SILENT_S", 0.05)
    monkeypatch.setattr(waiting, "_AGAIN_S", 0.05)


def broken(text):
    error = Unavailable(text, code=grpc.StatusCode.UNAVAILABLE, reason="NO_VERIFIER")
    return BrokenCall(target="h:1", error=error, num_broken=1, pause_s=0.1, session_id="s")


async def until_said(capsys, text):
    said = ""
    async with asyncio.timeout(5):
        while text not in said:
            await asyncio.sleep(0.01)
            said += capsys.readouterr().err
    return said


async def test_a_silent_wait_is_told_with_its_reason(quick, capsys):
    watch = waiting.Waiting()
    async with watch.watching():
        await until_said(capsys, "specmesh: nothing received for 0 s\n")
        watch.hooks.on_resume(broken("no replica is ready"))
        await until_said(capsys, "specmesh: nothing received for 0 s: no replica is ready\n")
        watch.came("text")
        said = await until_said(capsys, "specmesh: nothing received for 0 s\n")
        assert "no replica" not in said.splitlines()[-1]


async def test_a_break_that_mends_at_once_is_not_told(capsys):
    watch = waiting.Waiting()
    async with watch.watching():
        watch.hooks.on_resume(broken("the connection broke"))
        watch.came("text\n")
        await asyncio.sleep(0)
    assert capsys.readouterr().err == ""


async def test_a_line_of_ours_does_not_stand_behind_half_a_line_of_the_answer(
    quick, capsys, monkeypatch
):
    watch = waiting.Waiting()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    watch.came("half a line")
    async with watch.watching():
        assert (await until_said(capsys, "nothing received")).startswith("\nspecmesh: ")
