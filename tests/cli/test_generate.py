"""``specmesh generate`` and ``models`` against a real socket."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status
from typer.testing import CliRunner

from specmesh.cli.app import app
from specmesh.v1 import events_pb2, sampling_pb2, served_model_pb2, speculation_pb2
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1.generation_pb2_grpc import (
    GenerationServiceServicer,
    add_GenerationServiceServicer_to_server,
)

STRATEGIES = [
    served_model_pb2.StrategyInfo(name="autoregressive", lossless=True, available=True),
    served_model_pb2.StrategyInfo(name="dsi", lossless=True, available=True, options=["lookahead"]),
    served_model_pb2.StrategyInfo(name="filter", options=["filter", "lookahead"]),
]


class Orchestrator(GenerationServiceServicer):
    """Says "Hello world", refuses negative temperatures."""

    def __init__(self):
        self.requests = []
        self.finish_reason = events_pb2.FINISH_REASON_STOP
        self.defaults = {}
        self.counts = {}
        self.context_tokens = 1024

    def Generate(self, request, context):  # noqa: N802
        self.requests.append(request)
        if request.sampling.temperature < 0:
            status = Status(code=grpc.StatusCode.INVALID_ARGUMENT.value[0], message="no")
            violation = BadRequest.FieldViolation(field="sampling.temperature", description="< 0")
            status.details.add().Pack(BadRequest(field_violations=[violation]))
            context.abort_with_status(rpc_status.to_status(status))
        started = events_pb2.GenerationStarted(session_id="s", strategy="speculative", seed=7)
        yield event(started=started)
        yield event(chunk=chunk(0, "Hello", events_pb2.TOKEN_KIND_ACCEPTED))
        yield event(chunk=chunk(1, " world", events_pb2.TOKEN_KIND_RECOVERED))
        stats = events_pb2.GenerationStats(
            num_prompt_tokens=3,
            num_output_tokens=2,
            num_verified_tokens=4,
            num_accepted_tokens=1,
            duration_ms=100,
            **self.counts,
        )
        yield event(
            finished=events_pb2.GenerationFinished(finish_reason=self.finish_reason, stats=stats)
        )

    def ListModels(self, request, context):  # noqa: N802
        model = served_model_pb2.ServedModel(
            num_verifiers=2, strategies=STRATEGIES, has_chat_template=True, **self.defaults
        )
        model.target.name, model.target.num_parameters = "toy", 12_000_000
        model.target.context_tokens = self.context_tokens
        model.target.backend, model.target.dtype = "transformers", "bfloat16"
        model.target.weights_digest = "0123456789abcdef" * 4
        model.drafters.add(name="copycat", backend="prompt-lookup")
        return served_model_pb2.ListModelsResponse(models=[model])


def chunk(index, text, kind):
    return events_pb2.GenerationChunk(
        first_index=index, token_ids=[index + 1], text=text, text_lengths=[len(text)], kinds=[kind]
    )


def event(**kind):
    return pb.GenerateResponse(event=events_pb2.GenerationEvent(**kind))


@pytest.fixture
def orchestrator():
    # A server of threads, since the commands bring an event loop of their own.
    servicer = Orchestrator()
    server = grpc.server(ThreadPoolExecutor(2))
    add_GenerationServiceServicer_to_server(servicer, server)
    servicer.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield servicer
    server.stop(None).wait()


def invoke(*arguments, **options):
    return CliRunner().invoke(app, arguments, catch_exceptions=False, **options)


def test_the_answer_goes_to_stdout_and_nothing_else_does(orchestrator):
    result = invoke("generate", "Say it", "--target", orchestrator.address, "--stats")
    assert result.exit_code == 0
    assert result.stdout == "Hello world\n"
    assert "2 tokens in 100 ms (20.0 tokens/s)" in result.stderr
    assert "acceptance 25%" in result.stderr


@pytest.mark.parametrize(
    ("num_drafted", "said"),
    [
        (0, "speculative, seed 7; 0 verify calls; acceptance 25%; nothing drafted, because no"),
        (1, "speculative (no draft was expected to pay), seed 7"),
    ],
)
def test_a_strategy_that_drafts_nothing_says_why(orchestrator, num_drafted, said):
    explanation = "no draft was expected to pay"
    orchestrator.counts = {"explanation": explanation, "num_drafted_tokens": num_drafted}
    result = invoke("generate", "Say it", "--target", orchestrator.address, "--stats")
    assert said in result.stderr
    assert result.stderr.count(explanation) == 1


@pytest.mark.parametrize(
    ("reason", "options", "is_noted"),
    [
        (events_pb2.FINISH_REASON_LENGTH, [], True),
        (events_pb2.FINISH_REASON_LENGTH, ["--max-tokens", "3"], True),
        (events_pb2.FINISH_REASON_LENGTH, ["--max-tokens", "2"], False),
        (events_pb2.FINISH_REASON_STOP, ["--max-tokens", "3"], False),
        (events_pb2.FINISH_REASON_LENGTH, ["--json"], False),
    ],
)
def test_it_is_said_if_the_model_can_hold_no_more(orchestrator, reason, options, is_noted):
    orchestrator.finish_reason = reason
    result = invoke("generate", "Say it", "--target", orchestrator.address, *options)
    note = (
        "specmesh: the answer was cut off: with its prompt it has reached the limit of 5 tokens, "
        "which is the model's context or the KV cache of a replica\n"
    )
    assert result.stderr == (note if is_noted else "")
    if "--json" not in options:  # which chats don't have
        chat = invoke("chat", "--target", orchestrator.address, *options, input="Say it\n")
        assert (chat.stdout, chat.stderr) == ("Hello world\n", result.stderr)


def test_it_is_said_if_the_limit_is_the_models_context(orchestrator):
    orchestrator.finish_reason = events_pb2.FINISH_REASON_LENGTH
    orchestrator.context_tokens = 5
    where = ("--target", orchestrator.address)
    note = "specmesh: the answer was cut off at the model's context of 5 tokens (prompt included)\n"
    assert invoke("generate", "Say it", *where).stderr == note
    assert invoke("chat", *where, input="Say it\n").stderr == note


def test_json_is_one_object_with_the_whole_result(orchestrator):
    result = invoke("generate", "Say it", "--target", orchestrator.address, "--json")
    answer = json.loads(result.stdout)
    assert (answer["text"], answer["token_ids"]) == ("Hello world", [1, 2])
    assert (answer["finish_reason"], answer["acceptance"]) == ("stop", 0.25)


def test_json_lines_are_chunks_and_then_the_result(orchestrator):
    result = invoke("generate", "Say it", "--target", orchestrator.address, "--ndjson")
    first, second, last = map(json.loads, result.stdout.splitlines())
    assert (first["chunk"]["text"], first["chunk"]["kinds"]) == ("Hello", ["accepted"])
    assert second["chunk"]["first_index"] == 1
    assert last["result"]["text"] == "Hello world"


def test_speculation_is_shown_in_colours(orchestrator, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = invoke("generate", "Say it", "-t", orchestrator.address, "--show-speculation")
    assert result.stdout == "\x1b[32mHello\x1b[0m\x1b[35m world\x1b[0m\n"
    assert re.search("1 +accepted", result.stderr)
    assert "1 ◆ recovered" in result.stderr
    assert "bonus" not in result.stderr


@pytest.mark.parametrize("surroundings", [{}, {"FORCE_COLOR": "1", "NO_COLOR": "1"}])
def test_speculation_is_marked_where_there_are_no_colours(orchestrator, surroundings):
    result = invoke(
        *("generate", "Say it", "-t", orchestrator.address, "--show-speculation"),
        env={"FORCE_COLOR": None, **surroundings},
    )
    assert re.sub("\x1b\\[[0-9;]*m", "", result.stdout) == "Hello◆ world\n"
    assert "31m" not in result.stdout
    assert "◆ recovered  the target's" in re.sub("\x1b\\[[0-9;]*m", "", result.stderr)


def test_an_answer_has_one_form(orchestrator):
    result = invoke("generate", "x", "-t", orchestrator.address, "--json", "--show-speculation")
    assert result.exit_code == 2
    assert orchestrator.requests == []


@pytest.mark.parametrize("form", ["--json", "--ndjson"])
def test_a_refused_request_is_json_where_json_is_expected(orchestrator, form):
    result = invoke("generate", "x", "-t", orchestrator.address, "--temperature", "-1", form)
    assert result.exit_code == 2
    error = json.loads(result.stdout)["error"]
    assert error["code"] == "INVALID_ARGUMENT"
    refused = {"field": "sampling.temperature", "description": "< 0", "reason": ""}
    assert error["field_violations"] == [refused]
    assert result.stderr == ""


def test_a_dash_reads_the_prompt_from_stdin_and_the_target_may_be_a_variable(orchestrator):
    environment = {"SPECMESH_TARGET": orchestrator.address}
    result = invoke("generate", "-", "--seed", "3", input="from a pipe", env=environment)
    assert result.exit_code == 0
    assert orchestrator.requests[0].text == "from a pipe"
    assert orchestrator.requests[0].sampling.seed == 3
    assert not orchestrator.requests[0].sampling.HasField("temperature")


def test_a_refused_request_names_the_field_and_exits_with_2(orchestrator):
    result = invoke("generate", "x", "-t", orchestrator.address, "--temperature", "-1")
    assert result.exit_code == 2
    assert result.stderr == "specmesh: --temperature: < 0\n"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("regex=[0-9]{1,3}", {"regex": "[0-9]{1,3}"}),
        ("json_object", {"json_object": True}),
        ('choice=["yes", "no"]', {"choice": {"texts": ["yes", "no"]}}),
        ("json_schema=@person.json", {"json_schema": '{"type": "object"}'}),
    ],
)
def test_grammars_are_passed_on_as_the_docs_write_them(
    orchestrator, tmp_path, monkeypatch, written, expected
):
    (tmp_path / "person.json").write_text('{"type": "object"}')
    monkeypatch.chdir(tmp_path)
    given = ("--grammar", written, "--bad-word", "never", "--min-p", "0.25")
    result = invoke("generate", "x", "-t", orchestrator.address, *given)
    assert result.exit_code == 0, result.output
    sent = orchestrator.requests[-1].sampling
    assert sent == sampling_pb2.SamplingParameters(
        grammar=expected, bad_words=["never"], min_p=0.25
    )


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--grammar", "regexp=a", "'regexp' is not one of: json_schema, "),
        ("--grammar", "json_schema=@nofile", "there is no file 'nofile'"),
        ("--grammar", "choice=yes,no", """choice takes a JSON list, such as '["yes", "no"]'"""),
        ("--grammar", 'choice={"yes": 1}', "choice takes a JSON list"),
        ("--grammar", "choice=[1]", "choice takes a JSON list"),
        ("--temperature", "hot", "'hot' is not a number"),
        ("--seed", "1.5", "'1.5' is not a whole number"),
        ("--max-tokens", "0", "must be at least 1"),
        ("--logprobs", "30", "must be at most 20"),
    ],
)
def test_a_wrong_value_is_told_in_words_for_people(option, value, said):
    result = invoke("generate", "x", "-t", "127.0.0.1:1", option, value)
    assert result.exit_code == 2
    told = " ".join(result.stderr.replace("│", " ").split())
    assert f"Invalid value for '{option}': {said}" in told


def test_options_of_strategies_are_passed_on(orchestrator):
    given = ("-o", "lookahead=3", "-o", "predictor=phi")
    assert invoke("generate", "x", "-t", orchestrator.address, *given).exit_code == 0
    sent = orchestrator.requests[-1].speculation
    assert sent == speculation_pb2.SpeculationOptions(lookahead=3, predictor="phi")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("lookahed=3", "'lookahed' is not a strategy option; did you mean 'lookahead'?"),
        (
            "luck=3",
            "'luck' is not a strategy option; the options are: lookahead, num_branches, "
            "predictor, width",
        ),
        ("lookahead=x", "lookahead must be a whole number, not 'x'"),
        ("lookahead", "lookahead has no value: write lookahead=VALUE"),
    ],
)
def test_an_option_that_there_is_not_is_refused_before_any_call(given, said):
    result = invoke("generate", "x", "-t", "127.0.0.1:1", "-o", given)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", " ").split())


def test_nobody_there_is_one_line_and_a_status_of_its_own():
    result = invoke("models", "--target", "127.0.0.1:1")
    assert result.exit_code == 3
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("specmesh: no orchestrator answers at 127.0.0.1:1")


@pytest.mark.parametrize(
    ("default", "lookahead", "said"),
    [
        ("dsi", 0, "dsi, lookahead chosen by the strategy"),
        ("dsi", 3, "dsi, lookahead 3"),
        ("autoregressive", 3, "autoregressive"),
    ],
)
def test_a_default_is_told_with_the_lookahead_if_it_takes_one(
    orchestrator, default, lookahead, said
):
    orchestrator.defaults = {"default_strategy": default, "default_lookahead": lookahead}
    assert f"  default     {said}\n" in invoke("models", "-t", orchestrator.address).stdout


def test_models_are_listed_for_people_and_machines(orchestrator):
    words = invoke("models", "-t", orchestrator.address).stdout
    assert (
        "toy (12.0 M parameters, transformers, bfloat16, digest 0123456789ab), 2 verifiers" in words
    )
    assert "copycat (prompt-lookup)" in words
    (model,) = json.loads(invoke("models", "-t", orchestrator.address, "--json").stdout)
    assert model["target"]["name"] == "toy"
    assert "strategies  autoregressive, dsi, (filter)" in words
    assert model["strategies"][1] == {
        "name": "dsi",
        "lossless": True,
        "available": True,
        "options": ["lookahead"],
    }
