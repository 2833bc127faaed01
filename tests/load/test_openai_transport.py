"""A server of OpenAI's API, whose every event the test writes, over real HTTP."""

import asyncio
import json
import re
import resource
import sys
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from tests.client.conftest import FakeOrchestrator, serve, whole_answer
from tests.gateway.conftest import open_gateway
from tests.load.conftest import workload

from specmesh.load.runs.conduct import RunPlan, conduct
from specmesh.load.transports.openai_transport import OpenAiDoor
from specmesh.load.transports.tracing import traced
from specmesh.load.transports.transport import LoadRequest, RequestFailed, Served
from specmesh.load.workload.arrivals import ReplayedArrivals
from specmesh.load.workload.variations import Variation

__all__ = ["open_gateway", "serve"]

USAGE = {"prompt_tokens": 7, "completion_tokens": 5}


class FakeServer:
    """Sends ``events`` to whoever asks, or the status and body of ``refusal``."""

    def __init__(self) -> None:
        self.listed: object = {"data": [{"id": "first"}, {"id": "second"}]}
        self.events: list[object] = []
        self.refusal: tuple[int, object] | None = None
        self.refusal_headers: dict[str, str] = {}
        self.done = True
        self.endings: list[bytes] = []
        """What streams end with in place of [DONE], one after the other."""
        self.asked: list[dict] = []
        self.headers: list[dict] = []
        self.gone = asyncio.Event()
        self.url = ""

    async def models(self, request):
        return web.json_response(self.listed)

    async def answer(self, request):
        self.asked.append({"path": request.path, **await request.json()})
        self.headers.append(dict(request.headers))
        if self.refusal is not None:
            status, body = self.refusal
            return web.json_response(body, status=status, headers=self.refusal_headers)
        if not self.asked[-1].get("stream"):
            return web.json_response({"usage": USAGE})
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            for event in self.events:
                if event is None:
                    await asyncio.Event().wait()
                await response.write(f"data: {json.dumps(event)}\n\n".encode())
            if self.endings:
                await response.write(self.endings.pop(0))
            elif self.done:
                await response.write(b": a comment\n\ndata: [DONE]\n\n")
        except (ConnectionError, asyncio.CancelledError):
            self.gone.set()
            raise
        return response


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    fake = FakeServer()
    app = web.Application()
    app.router.add_get("/v1/models", fake.models)
    app.router.add_post("/v1/completions", fake.answer)
    app.router.add_post("/v1/chat/completions", fake.answer)
    app.router.add_get("/v3/models", fake.models)
    app.router.add_post("/v3/chat/completions", fake.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield fake
    await runner.cleanup()


def text(said):
    return {"choices": [{"index": 0, "text": said}], "usage": None}


def call(*said, timeout_s=20.0, **changed):
    given = {"variation": Variation(), "max_tokens": 9, "ignore_end": False, "sampling_seed": 1}
    return LoadRequest(said=said or ("hi",), timeout_s=timeout_s, **{**given, **changed})


async def ask(door, asked, stop_after=None):
    heard = []

    def hear(num_tokens, said):
        heard.append((num_tokens, said))
        return stop_after is None or len(heard) < stop_after

    async with door.open() as transport:
        return await transport.ask(asked, hear), heard


async def test_a_completion_is_read_to_its_end(server):
    server.events = [text("a"), text(""), text("b"), {"choices": [], "usage": USAGE}]
    asked = call("hi", ignore_end=True, sampling_seed=7)
    told, heard = await ask(OpenAiDoor(server.url, model="mine"), asked)
    assert heard == [(None, "a"), (None, "b")]
    assert (told.num_prompt_tokens, told.num_output_tokens, told.work) == (7, 5, None)
    (asked,) = server.asked
    assert asked["path"] == "/v1/completions"
    assert (asked["model"], asked["prompt"], asked["max_tokens"]) == ("mine", "hi", 9)
    assert asked["seed"] == 7
    assert asked["stream_options"] == {"include_usage": True}
    assert asked["ignore_eos"] is True


async def test_a_chat_is_sent_as_messages_and_its_role_is_no_token(server):
    role = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
    word = {"choices": [{"index": 0, "delta": {"content": "a"}}]}
    server.events = [role, word, {"choices": [], "usage": USAGE}]
    door = OpenAiDoor(f"{server.url}/v1/", model="mine", chat=True)
    _, heard = await ask(door, call("hi", "hello", "bye"))
    assert heard == [(None, "a")]
    (asked,) = server.asked
    assert (asked["path"], asked["model"]) == ("/v1/chat/completions", "mine")
    roles = [(each["role"], each["content"]) for each in asked["messages"]]
    assert roles == [("user", "hi"), ("assistant", "hello"), ("user", "bye")]
    await ask(door, call("hi", system=("be brief",)))
    assert server.asked[-1]["messages"][0] == {"role": "system", "content": "be brief"}


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (429, {"error": {"message": "full", "code": "overloaded"}}, "overloaded"),
        (500, {"error": {"message": "oh", "code": None}}, "HTTP_500"),
        (502, "bad gateway", "HTTP_502"),
    ],
)
async def test_a_refusal_is_counted_by_its_code_or_status(server, status, body, reason):
    server.refusal = status, body
    with pytest.raises(RequestFailed) as failed:
        await ask(OpenAiDoor(server.url), call())
    assert failed.value.reason == reason


@pytest.mark.parametrize(
    ("said", "retry_after_s"), [("7", 7.0), ("Fri, 31 Dec 1999 23:59:59 GMT", None)]
)
async def test_a_refusal_says_when_to_come_back(server, said, retry_after_s):
    server.refusal, server.refusal_headers = (503, {}), {"Retry-After": said}
    with pytest.raises(RequestFailed) as failed:
        await ask(OpenAiDoor(server.url), call())
    assert failed.value.retry_after_s == retry_after_s


async def test_an_answer_that_breaks_has_failed(server):
    server.events = [text("a"), {"error": {"message": "lost", "code": "no_verifier"}}]
    with pytest.raises(RequestFailed, match="lost") as failed:
        await ask(OpenAiDoor(server.url), call())
    assert failed.value.reason == "no_verifier"
    server.events, server.done = [text("a")], False
    with pytest.raises(RequestFailed) as failed:
        await ask(OpenAiDoor(server.url), call())
    assert failed.value.reason == "BAD_STREAM"


@pytest.mark.parametrize("event", ["no object", text("a" * (2 << 20))])
async def test_what_cannot_be_read_has_failed(server, event):
    server.events = [text("a"), event]
    with pytest.raises(RequestFailed) as failed:
        await ask(OpenAiDoor(server.url), call())
    assert failed.value.reason == "BAD_STREAM"


FINISHED = {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": None},
        {"choices": [], "usage": None},
        {"error": None, **text("")},
        {"choices": [{"index": 0, "delta": None, "text": None}]},
        {"choices": [{"index": 0, "delta": {"content": None, "tool_calls": None}}]},
        {"choices": [{"index": 0, "text": "", "specmesh": None}], "usage": "none"},
        {"choices": [{"index": 0, "text": "", "specmesh": {"stats": {"other": 1}}}]},
        {"usage": {"prompt_tokens": "7", "completion_tokens": -1}},
        {"object": "ping"},
    ],
    ids=str,
)
async def test_what_says_nothing_is_passed_over(server, odd):
    server.events = [odd, text("a"), odd, text("b"), odd, FINISHED]
    told, heard = await ask(OpenAiDoor(server.url), call())
    assert heard == [(None, "a"), (None, "b")]
    assert (told.num_prompt_tokens, told.num_output_tokens, told.work) == (None, None, None)


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": "a"},
        {"choices": {"index": 0}},
        {"choices": ["a"]},
        {"choices": [None]},
        {"choices": [{"delta": "a"}]},
        {"choices": [{"text": {"a": 1}}]},
        {"choices": [{"delta": {"content": 3}}]},
    ],
    ids=str,
)
async def test_what_is_said_in_no_known_form_fails_its_request_alone(server, odd):
    server.events = [odd]
    with pytest.raises(RequestFailed, match="choices") as failed:
        await ask(OpenAiDoor(server.url), call())
    assert failed.value.reason == "BAD_STREAM"


async def test_an_answer_that_has_finished_needs_no_done(server):
    server.events, server.done = [text("a"), FINISHED, {"choices": [], "usage": USAGE}], False
    told, heard = await ask(OpenAiDoor(server.url), call())
    assert (heard, told.num_output_tokens) == ([(None, "a")], 5)


async def test_a_connection_that_breaks_behind_the_finish_is_still_a_failure(server):
    server.events, server.done = [text("a"), FINISHED], False
    server.endings = [b"data: {"]  # half of an event
    with pytest.raises(RequestFailed) as failed:
        await ask(OpenAiDoor(server.url), call())
    assert failed.value.reason == "BAD_STREAM"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_tokens_of_reasoning_count_and_are_no_part_of_the_answer(server, name):
    server.events = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
        {"choices": [{"index": 0, "delta": {name: "hm", "content": None}}]},
        {"choices": [{"index": 0, "delta": {"content": "a"}}]},
    ]
    _, heard = await ask(OpenAiDoor(server.url, chat=True), call())
    assert heard == [(None, ""), (None, "a")]


async def test_content_in_parts_is_its_text(server):
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    server.events = [{"choices": [{"index": 0, "delta": {"content": parts}}]}]
    _, heard = await ask(OpenAiDoor(server.url, chat=True), call())
    assert heard == [(None, "ab")]


@pytest.mark.parametrize("slash", ["", "/"])
async def test_an_address_with_a_path_is_taken_as_it_is(server, slash):
    server.events = [text("a")]
    door = OpenAiDoor(f"{server.url}/v3{slash}", chat=True)
    await ask(door, call())
    assert server.asked[0]["path"] == "/v3/chat/completions"
    async with door.open() as transport:
        assert (await transport.served()).model == "first"


async def test_what_a_strict_server_refuses_is_left_out_or_has_its_name(server):
    server.events = [text("a")]
    door = OpenAiDoor(
        server.url,
        left_out=frozenset({"seed", "stream_options"}),
        renamed={"max_tokens": "max_completion_tokens"},
    )
    await ask(door, call())
    async with door.open() as transport:
        await transport.count_tokens("some words")
    streamed, counted = server.asked
    assert set(streamed) == {"path", "model", "prompt", "stream", "max_completion_tokens"}
    assert streamed["max_completion_tokens"] == 9
    assert counted["max_completion_tokens"] == 1
    assert "max_tokens" not in counted


async def test_a_deadline_ends_a_request_at_the_server_too(server):
    server.events = [text("a"), None]
    with pytest.raises(RequestFailed) as failed:
        await ask(OpenAiDoor(server.url), call(timeout_s=0.2))
    assert failed.value.reason == "DEADLINE_EXCEEDED"
    async with asyncio.timeout(5):
        await server.gone.wait()


async def test_cancelling_hangs_up(server):
    server.events = [text("a"), text("b"), None]
    told, heard = await ask(OpenAiDoor(server.url), call(), stop_after=2)
    assert told is None
    assert len(heard) == 2
    async with asyncio.timeout(5):
        await server.gone.wait()


async def test_a_token_and_a_trace_go_with_the_request(server):
    server.events = [text("a")]
    with traced() as trace_id:
        await ask(OpenAiDoor(server.url, token="s3cret"), call())
    (headers,) = server.headers
    assert headers["Authorization"] == "Bearer s3cret"
    version, sent_id, _, flags = headers["traceparent"].split("-")
    assert (version, sent_id, flags) == ("00", trace_id, "01")


async def test_tokens_are_counted_by_the_server(server):
    async with OpenAiDoor(server.url).open() as transport:
        assert await transport.count_tokens("some words") == 7


async def test_the_model_is_the_one_asked_for_or_the_first_that_the_server_names(server):
    for asked, model in (("", "first"), ("mine", "mine")):
        async with OpenAiDoor(server.url, model=asked).open() as transport:
            assert await transport.served() == Served(model, has_strategies=False)


@pytest.mark.parametrize("body", [{"data": []}, {"models": []}, {"data": ["toy"]}, ["toy"]])
async def test_a_list_without_models_is_a_failure(server, body):
    server.listed = body
    async with OpenAiDoor(server.url).open() as transport:
        with pytest.raises(RequestFailed, match="/v1/models"):
            await transport.served()


async def test_a_server_that_is_not_there_is_named(server):
    named = server.url.replace("://", "://me:s3cret@")
    server.listed = []
    with pytest.raises(RequestFailed, match=re.escape("://***@127.0.0.1")):
        async with OpenAiDoor(named).open() as transport:
            await transport.served()
    with pytest.raises(RequestFailed, match=r"127\.0\.0\.1:1: ") as failed:
        async with OpenAiDoor("http://127.0.0.1:1").open() as transport:
            await transport.served()
    assert failed.value.reason == "CONNECTION"


async def test_a_generator_that_may_open_no_more_files_does_not_blame_the_server(server):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with OpenAiDoor(server.url, model="m").open() as transport:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
        try:
            with pytest.raises(RequestFailed, match="Too many open files") as failed:
                await transport.ask(call(), lambda *_: True)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert failed.value.reason == "OUT_OF_DESCRIPTORS"


async def test_of_our_own_gateway_the_cost_of_answers_is_known_too(serve, open_gateway):
    mesh = await serve(FakeOrchestrator([whole_answer]))
    gateway = await open_gateway(mesh.address)
    asked = call(variation=Variation(strategy="dsi", options={"lookahead": 4}))
    async with OpenAiDoor(gateway.url).open() as transport:
        assert await transport.served() == Served("toy", has_strategies=True)
    told, heard = await ask(OpenAiDoor(gateway.url, model="toy"), asked)
    assert "".join(said for _, said in heard).startswith("100 101 ")
    assert (told.num_prompt_tokens, told.num_output_tokens) == (3, 12)
    assert (told.work.num_verify_calls, told.work.num_accepted_tokens) == (4, 8)
    assert mesh.requests[0].speculation.strategy == "dsi"
    assert mesh.requests[0].speculation.lookahead == 4


async def test_the_command_measures_a_server_of_openais_api(server):
    server.events = [text("a"), text("b"), {"choices": [], "usage": USAGE}]
    arguments = ("--users", "2", "--requests", "10", "--slo", "ttft=10s", "--json", "-")
    command = ("from specmesh.cli.main import main; main()", "load", "run", "--openai", server.url)
    done = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", *command, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(30):
        said, complained = await done.communicate()
    assert done.returncode == 0, complained
    report = json.loads(said)
    result = report["result"]
    assert report["setting"]["server"] == f"OpenAI {server.url}/v1/completions"
    assert result["counts"]["answered"] == 10
    assert result["throughput"]["mean_output_tokens"] == 5
    assert result["latency"]["tpot_ms"]["count"] == 10
    # What the server does not tell is unknown.
    assert result["speculation"] is None
    assert result["tokens_per_chunk"] == {}
    assert result["goodput"]["share"] == 1.0


async def test_an_odd_answer_costs_its_request_and_never_the_run(server):
    server.events, server.done = [{"choices": None}, text("a")], False
    server.endings = [
        b"data: [DONE]\n\n",
        b"data: 3\n\n",
        b'data: {"choices": [3]}\n\n',
        b'data: {"choices": [], "usage": null, "error": null}\n\ndata: [DONE]\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
        b"\xff\xfe\n\ndata: [DONE]\n\n",
    ]
    plan = RunPlan(
        workload=workload(arrivals=ReplayedArrivals(tuple(range(6)), 1000.0)),
        door=OpenAiDoor(server.url, model="mine"),
    )
    result = (await conduct(plan)).result
    assert (result.counts.answered, result.errors) == (3, {"BAD_STREAM": 3})


async def test_a_strategy_that_the_server_would_pass_over_is_refused(server):
    door = OpenAiDoor(server.url, model="mine")
    plan = RunPlan(workload=workload(variations=(Variation(strategy="dsi"),)), door=door)
    with pytest.raises(
        RequestFailed, match=r"is not a specmesh server and would ignore .*: dsi"
    ) as failed:
        await conduct(plan)
    assert failed.value.reason == "NO_STRATEGIES"
    assert server.asked == []


def with_usage(said, num_output_tokens, **choice):
    event = text(said)
    event["choices"][0].update(choice)
    return {**event, "usage": {"prompt_tokens": 7, "completion_tokens": num_output_tokens}}


async def test_usage_that_grows_with_every_chunk_counts_its_tokens(server):
    server.events = [with_usage("", 0), with_usage("a b", 2), with_usage("", 3), with_usage("c", 5)]
    told, heard = await ask(OpenAiDoor(server.url, model="mine"), call())
    assert heard == [(2, "a b"), (3, "c")]
    assert told.num_output_tokens == 5


@pytest.mark.parametrize(
    "logprobs",
    [{"tokens": ["a", " b"]}, {"content": [{"token": "a"}, {"token": " b"}]}],
    ids=["completion", "chat"],
)
async def test_log_probabilities_count_the_tokens_of_their_chunk(server, logprobs):
    server.events = [text("a b"), {"choices": [], "usage": USAGE}]
    server.events[0]["choices"][0]["logprobs"] = logprobs
    _, heard = await ask(OpenAiDoor(server.url, model="mine"), call())
    assert heard == [(2, "a b")]


@pytest.mark.parametrize(
    "events",
    [
        [with_usage("a", 0), with_usage("b", 0)],
        [with_usage("a", 5), with_usage("b", 5)],
        [text("a"), with_usage("b", 5)],
        [{**with_usage("a", 5), "choices": [*text("a")["choices"], *text("b")["choices"]]}],
        [{**text("a"), "usage": {"completion_tokens": "2"}}],
    ],
    ids=["nothing", "standing still", "late", "two choices", "no number"],
)
async def test_tokens_of_chunks_are_never_guessed(server, events):
    server.events = [*events, {"choices": [], "usage": USAGE}]
    told, heard = await ask(OpenAiDoor(server.url, model="mine"), call())
    assert heard[-1][0] is None
    assert told.num_output_tokens == 5


async def test_between_tokens_only_the_mean_is_known_if_the_end_alone_counts_them(server):
    server.events = [text("a b"), text("c d e"), {"choices": [], "usage": USAGE}]
    result = (await conduct(plan_for(server))).result
    assert result.inter_chunk_ms.count == 3
    assert result.inter_token_ms is None
    # Both are the gap of each answer, over one chunk and over four tokens.
    expected = pytest.approx(result.inter_chunk_ms.mean / 4, rel=0.01, abs=0.001)
    assert result.mean_inter_token_ms == expected


async def test_between_tokens_nothing_is_known_if_nothing_counts_them(server):
    server.events = [text("a b"), text("c d e")]
    result = (await conduct(plan_for(server))).result
    assert result.inter_chunk_ms.count == 3
    assert (result.inter_token_ms, result.mean_inter_token_ms) == (None, None)


async def test_both_definitions_are_there_if_every_chunk_counts_its_tokens(server):
    server.events = [with_usage("a", 1), with_usage("b c d e", 5)]
    result = (await conduct(plan_for(server))).result
    assert (result.inter_chunk_ms.count, result.inter_token_ms.count) == (3, 12)
    assert result.tokens_per_chunk == {"1": 3, "4": 3}
    assert result.mean_inter_token_ms == pytest.approx(
        result.inter_token_ms.mean, rel=0.01, abs=0.001
    )


def plan_for(server):
    return RunPlan(
        workload=workload(arrivals=ReplayedArrivals(tuple(range(3)), 1000.0)),
        door=OpenAiDoor(server.url, model="mine"),
    )
