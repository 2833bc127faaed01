"""Every field of every public request, with what must not be in it: the path that is named."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from math import inf, nan
from random import Random
from typing import Any

import grpc
import pytest
from google.protobuf import struct_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.internal.encoder import TagBytes
from google.protobuf.message_factory import GetMessageClass
from tests.decoding.test_sampling import WRONG
from tests.orchestrator.answers import collect
from tests.orchestrator.face import CHATML, face, template
from tests.orchestrator.model import CONTEXT_TOKENS, END_OF_TEXT, TOKENIZER, VOCAB_SIZE, target_only
from tests.orchestrator.peers import Verifier

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import Sampling
from specmesh.orchestrator.admission import request_limits as most
from specmesh.orchestrator.answers.session_codec import read_received
from specmesh.orchestrator.requests.plan import Defaults, make_plan
from specmesh.orchestrator.requests.prompts import PromptReader
from specmesh.serving.errors import error_info, invalid_field
from specmesh.v1 import chat_pb2, generation_pb2, tokenizer_pb2

METHODS = {
    method.name: method
    for service in (
        generation_pb2.DESCRIPTOR.services_by_name["GenerationService"],
        tokenizer_pb2.DESCRIPTOR.services_by_name["TokenizerService"],
    )
    for method in service.methods
    if not method.client_streaming  # GenerateMany carries requests of others
}
NUM_TOKENS = 4
ASKED = {"text": "return", "stopping": {"max_tokens": NUM_TOKENS}}
UNKNOWN = bytes([15 << 3, 1])
"""Field 15, which no message has."""
MANY = 100_000
OUTSIDE = [70, VOCAB_SIZE]


def arguments(**fields: Any) -> chat_pb2.Chat:
    """A chat with such arguments for its template."""
    chat = chat_pb2.Chat(messages=[{"role": "user", "content": "a"}])
    for name, value in fields.items():
        chat.template_arguments.fields[name].number_value = value
    return chat


def nested(depth: int, innermost: struct_pb2.Value) -> chat_pb2.Chat:
    """A chat with ``innermost`` within so many lists."""
    chat = arguments()
    value = chat.template_arguments.fields["n"]
    for _ in range(depth):
        value = value.list_value.values.add()
    value.CopyFrom(innermost)
    return chat


def one(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "a"} | fields]}


ROOM = [
    ({"text": ""}, "text"),
    ({"text": "x" * 100_000}, "text"),
    ({"text": "東" * CONTEXT_TOKENS}, "text"),
    ({"text": None}, "prompt"),
    ({"tokens": {}}, "tokens.ids"),
    ({"tokens": {"ids": [70] * CONTEXT_TOKENS}}, "tokens.ids"),
    ({"tokens": {"ids": OUTSIDE}}, "tokens.ids[1]"),
    ({"tokens": {"ids": [2**32 - 1]}}, "tokens.ids[0]"),
    ({"tokens": {"ids": [70]}, "add_special_tokens": True}, "add_special_tokens"),
    ({"chat": one(), "add_special_tokens": False}, "add_special_tokens"),
]
SAMPLING = [
    *(({field: bad}, field) for field, bad in WRONG),
    *(({"seed": bad}, "seed") for bad in (1 << most.SEED_BITS, 2**64 - 1)),
    *(({"acceptance_mode": bad}, "acceptance_mode") for bad in (3, -1)),
    *(({"logit_bias": {7: bad}}, "logit_bias[7]") for bad in (-100.5, 100.5, nan, inf)),
    ({"logit_bias": {VOCAB_SIZE: 1}}, f"logit_bias[{VOCAB_SIZE}]"),
    ({"logit_bias": dict.fromkeys(range(most.MAX_LISTED_TOKENS + 1), 1)}, "logit_bias"),
    *(
        ({field: bad}, f"{field}{at}")
        for field in ("allowed_token_ids", "banned_token_ids")
        for bad, at in ((OUTSIDE, "[1]"), (range(most.MAX_LISTED_TOKENS + 1), ""))
    ),
    ({"allowed_token_ids": [5], "banned_token_ids": [5]}, "allowed_token_ids"),
    ({"allowed_token_ids": [5, 5], "banned_token_ids": [5]}, "allowed_token_ids"),
    (
        {"banned_sequences": [{"token_ids": [1]}, {"token_ids": OUTSIDE}]},
        "banned_sequences[1].token_ids[1]",
    ),
    *(
        ({"banned_sequences": [{"token_ids": [5] * length}]}, "banned_sequences[0].token_ids")
        for length in (0, most.MAX_BANNED_SEQUENCE + 1)
    ),
    (
        {"banned_sequences": [{"token_ids": [5]}] * (most.MAX_BANNED_SEQUENCES + 1)},
        "banned_sequences",
    ),
    (
        {
            "banned_sequences": [
                {"token_ids": divmod(n, 16)} for n in range(most.MAX_BANNED_SEQUENCES)
            ],
            "bad_words": ["hello"],
        },
        "banned_sequences",
    ),
    ({"bad_words": ["a", ""]}, "bad_words[1]"),
    ({"bad_words": ["a", "東" * most.MAX_BANNED_SEQUENCE]}, "bad_words[1]"),
    ({"bad_words": ["a" * (most.MAX_BAD_WORD_CHARS + 1)]}, "bad_words[0]"),
    ({"bad_words": ["a"] * (most.MAX_BAD_WORDS + 1)}, "bad_words"),
    ({"min_tokens": NUM_TOKENS + 1}, "min_tokens"),
    ({"min_p": 0.1, "num_prompt_tokens": MANY}, "num_prompt_tokens"),
    ({"num_prompt_tokens": MANY}, "num_prompt_tokens"),
    ({"grammar": {}}, "grammar"),
    ({"grammar": {"json_object": False}}, "grammar.json_object"),
    *(
        ({"grammar": {kind: source}}, f"grammar.{kind}")
        for kind in ("json_schema", "regex", "ebnf")
        for source in ("", "a" * (most.MAX_GRAMMAR_BYTES + 1))
    ),
    *(({"grammar": {"choice": {"texts": bad}}}, "grammar.choice.texts") for bad in ([], ["a", ""])),
    ({"grammar": {"choice": {"texts": ["a" * most.MAX_GRAMMAR_BYTES]}}}, "grammar.choice"),
]
STOPPING = [
    ({"max_tokens": 0}, "max_tokens"),
    ({"stop_token_ids": OUTSIDE}, "stop_token_ids[1]"),
    ({"stop_token_ids": [1] * (most.MAX_STOP_TOKENS + 1)}, "stop_token_ids"),
    ({"stop_strings": ["a", ""]}, "stop_strings[1]"),
    ({"stop_strings": ["a" * (most.MAX_STOP_STRING_CHARS + 1)]}, "stop_strings[0]"),
    ({"stop_strings": ["a"] * (most.MAX_STOP_STRINGS + 1)}, "stop_strings"),
]
FILTER = [
    ({"scorer": "guess"}, "scorer"),
    ({"threshold": nan}, "threshold"),
    *(({"escalation_rate": bad}, "escalation_rate") for bad in (-0.5, 1.5, nan, inf)),
    *(({"follow_load": {"lowest": bad}}, "follow_load.lowest") for bad in (-0.5, 1.5, nan, 0.5)),
    *(({"follow_load": {"highest": bad}}, "follow_load.highest") for bad in (-0.5, 1.5, nan)),
]
SPECULATION = [
    ({"strategy": "clairvoyant"}, "strategy"),
    *(({"lookahead": bad}, "lookahead") for bad in (0, most.MAX_LOOKAHEAD + 1)),
    *(({"num_branches": bad}, "num_branches") for bad in (0, most.MAX_BRANCHES + 1)),
    ({"predictor": "guess"}, "predictor"),
    ({"shape": "round"}, "shape"),
    *(({"width": bad}, "width") for bad in (0, most.MAX_WIDTH + 1)),
    ({"strategy": "speculative", "filter": {}}, "filter"),
    *(({"strategy": "filter", "filter": bad}, f"filter.{path}") for bad, path in FILTER),
]
RECEIVED = [
    ({"token_ids": OUTSIDE}, "token_ids[1]"),
    ({"token_ids": [70] * (NUM_TOKENS + 1)}, "token_ids"),
    ({"token_ids": [END_OF_TEXT, 70]}, "token_ids"),
    ({"unchecked": [0]}, "unchecked"),
    ({"token_ids": [70, 71], "unchecked": [1, 0]}, "unchecked"),
    ({"token_ids": [70, 71], "unchecked": [1, 1]}, "unchecked"),
    ({"token_ids": [70, 71], "unchecked": [2]}, "unchecked"),
    ({"token_ids": [70], "prompt_digest": b"a" * 15}, "prompt_digest"),
]
EPOCHS = [({"epoch": bad}, "epoch") for bad in (0, most.MAX_EPOCH + 1)]
TOOL = '{"type": "function", "function": {"name": "f"}}'
NO_TOOLS = [
    *("{", "[]", '"{}"', '{"a": NaN}', '{"a": "\\ud800"}'),
    '{"a":' * most.MAX_JSON_DEPTH + "[]" + "}" * most.MAX_JSON_DEPTH,
    *(f'{{"a": {"9" * 5000}}}', "[" * MANY),
    *("{}", TOOL.replace("function", "custom", 1), TOOL.replace('"f"', '""')),
    *('{"type": "function", "function": "f"}', '{"type": "function", "function": {}}'),
]
TYPED = {"tool_calls": "qwen3_coder"}
FORMAT = [
    ({"tool_calls": "latin"}, "tool_calls"),
    ({"reasoning": "none at all"}, "reasoning"),
    ({"tool_names": ["f"] * (most.MAX_TOOLS + 1)}, "tool_names"),
    ({**TYPED, "arguments": [{"types": ["null"]}] * (most.MAX_ARGUMENTS + 1)}, "arguments"),
    ({**TYPED, "arguments": [{"tool": "f", "name": "a"}]}, "arguments[0].types"),
    ({**TYPED, "arguments": [{"types": ["null"]}, {"types": ["int"]}]}, "arguments[1].types"),
]
CHAT = [
    (one(role="user<end>") | {"content_as_text": True}, "messages[0].role"),
    ({}, "messages"),
    ({"messages": one()["messages"] * (most.MAX_MESSAGES + 1)}, "messages"),
    (one(content="x" * 100_000), "messages"),
    (one(role=""), "messages[0].role"),
    (
        one() | {"add_generation_prompt": True, "continue_final_message": True},
        "continue_final_message",
    ),
    (arguments(n=nan), "template_arguments.n"),
    (arguments(n=inf), "template_arguments.n"),
    (
        nested(most.MAX_ARGUMENT_DEPTH + 1, struct_pb2.Value(bool_value=True)),
        f"template_arguments.n{'[0]' * (most.MAX_ARGUMENT_DEPTH + 1)}",
    ),
    (arguments(messages=1), "template_arguments.messages"),
    (one() | {"tools": [TOOL], "template_arguments": {"tools": 1}}, "template_arguments.tools"),
    (one() | {"tools": [TOOL] * (most.MAX_TOOLS + 1)}, "tools"),
    (one() | {"tools": ["x" * (most.MAX_TOOL_BYTES + 1)]}, "tools"),
    *((one() | {"tools": [TOOL, bad]}, "tools[1]") for bad in NO_TOOLS),
    (one() | {"tool_choice": {}}, "tool_choice"),
    *(
        (one() | {"tools": [TOOL], "tool_choice": {"names": bad}}, f"tool_choice.names{at}")
        for bad, at in ((["f", "g"], "[1]"), (["f"] * (most.MAX_TOOLS + 1), ""))
    ),
    (one(tool_calls=[{"arguments": "{}"}]), "messages[0].tool_calls[0].name"),
    (arguments(**{"n" * most.MAX_ARGUMENT_BYTES: 1}), "template_arguments"),
]
CLAIM = [
    ({"session_id": ""}, "session_id"),
    ({"session_id": "a" * (most.MAX_SESSION_ID_CHARS + 1)}, "session_id"),
    ({"resume_token": b""}, "resume_token"),
    ({"resume_token": b"a" * (most.MAX_RESUME_TOKEN_BYTES + 1)}, "resume_token"),
]


def within(field: str, rows: list[tuple[Any, str]]) -> list[tuple[dict[str, Any], str]]:
    return [({field: bad}, f"{field}.{path}") for bad, path in rows]


CHATS = within("chat", CHAT)
PROGRESS = within("received", RECEIVED)
GENERATE = [
    *ROOM,
    *CHATS,
    *PROGRESS,
    *EPOCHS,
    *within("sampling", SAMPLING),
    *within("stopping", STOPPING),
    *within("speculation", SPECULATION),
    *within("format", FORMAT),
    ({"request_id": "a" * (most.MAX_REQUEST_ID_CHARS + 1)}, "request_id"),
    ({"cache_salt": "a" * (most.MAX_CACHE_SALT_CHARS + 1)}, "cache_salt"),
    ({"num_top_logprobs": most.MAX_TOP_LOGPROBS + 1}, "num_top_logprobs"),
    ({"num_top_logprobs": 1, "speculation": {"strategy": "filter"}}, "num_top_logprobs"),
    ({"sampling": {"min_p": 0.1}, "speculation": {"strategy": "filter"}}, "speculation.strategy"),
]
BAD: dict[str, list[tuple[dict[str, Any], str]]] = {
    "Generate": GENERATE,
    "Complete": [({"request": ASKED | bad}, f"request.{path}") for bad, path in GENERATE],
    "Resume": [*CLAIM, *EPOCHS, *PROGRESS],
    "GetSession": CLAIM,
    "CancelSession": CLAIM,
    "ListModels": [
        ({"page_size": -1}, "page_size"),
        ({"page_size": -(2**31)}, "page_size"),
        ({"page_token": "2"}, "page_token"),
    ],
    "Score": [
        *(
            ({"tokens": {"token_ids": bad}}, f"tokens.token_ids{at}")
            for bad, at in (([], ""), (OUTSIDE, "[1]"), ([70] * (CONTEXT_TOKENS + 1), ""))
        ),
        *(row for row in ROOM if not row[0].keys() & {"tokens", "chat"}),
        ({"tokens": {"token_ids": [70]}, "add_special_tokens": True}, "add_special_tokens"),
        ({"text": "a", "num_top_logprobs": most.MAX_TOP_LOGPROBS + 1}, "num_top_logprobs"),
        ({"text": "a", "cache_salt": "a" * (most.MAX_CACHE_SALT_CHARS + 1)}, "cache_salt"),
    ],
    "Tokenize": [({"text": "x" * 100_000}, "text")],
    "Detokenize": [
        ({"token_ids": OUTSIDE}, "token_ids[1]"),
        ({"token_ids": [70] * (CONTEXT_TOKENS + 1)}, "token_ids"),
    ],
    "ApplyChatTemplate": [({"chat": {}}, "chat.messages"), *CHATS],
}
"""By method: what of a valid request is changed, and the path that the refusal names."""
UNKNOWN_NAMES = {"model": "MODEL_NOT_FOUND", "model_fingerprint": "TARGET_REPLACED"}
"""Fields whose values are right or wrong for this mesh alone, and the reasons of refusals."""
TAKEN = {
    "sampling.top_k": "more than the vocabulary has keeps all",
    "sampling.end_token_ids": "the orchestrator's own",
    "stopping.ignore_end_of_text": "a bool",
    "stopping.include_stop_string": "a bool",
    "chat.add_generation_prompt": "a bool",
    "chat.content_as_text": "a bool",
    "chat.tool_choice.single_call": "a bool",
    "chat.messages.content": "its size counts for messages",
    **{
        f"chat.messages.{field}": "its size counts for messages"
        for field in ("name", "tool_calls.id", "tool_call_id", "reasoning_content")
    },
    "chat.messages.tool_calls.arguments": "what the model has written",
    "add_special_tokens": "a bool",
    "format.arguments.tool": "a tool of another name has no such arguments",
    "format.arguments.name": "another tool may have it",
    "format.calls_only": "a bool",
    "keep_special_tokens": "a bool",
    "include_token_strings": "a bool",
    "received.max_tokens": "never more than the context holds",
}
"""Fields that take every value that their type has."""


class World:
    """An orchestrator, and an answer that it has in its store."""

    def __init__(self, channel: grpc.aio.Channel, verifier: Verifier, claim: dict[str, Any]):
        self._channel = channel
        self.verifier = verifier
        self.valid: dict[str, dict[str, Any]] = {
            **{"Generate": ASKED, "Complete": {"request": ASKED}},
            **{"Resume": claim | {"epoch": 2}, "GetSession": claim, "CancelSession": claim},
        }

    async def call(self, name: str, request: bytes) -> list[Any]:
        """The responses of one call."""
        method = METHODS[name]
        path = f"/{method.containing_service.full_name}/{name}"
        read = GetMessageClass(method.output_type).FromString
        if method.server_streaming:
            stream = self._channel.unary_stream(path, response_deserializer=read)
            return [response async for response in stream(request)]
        call = self._channel.unary_unary(path, response_deserializer=read)
        return [await call(request)]

    async def refusal(self, name: str, request: bytes) -> grpc.aio.AioRpcError:
        """Why a call is refused; no replica has heard of it."""
        before = len(self.verifier.requests)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await self.call(name, request)
        assert len(self.verifier.requests) == before
        return refused.value

    def request(self, name: str, **changes: Any) -> bytes:
        """A valid request but for ``changes``."""
        kind = GetMessageClass(METHODS[name].input_type)
        return kind(**self.valid.get(name, {}) | changes).SerializeToString()


@pytest.fixture
async def world(connect, store_on, redis_server) -> AsyncIterator[World]:
    verifier = Verifier()
    verifier.chat_template = template(CHATML)
    store = store_on(redis_server.url, timeout_s=10)
    async with (
        face(await connect([verifier]), store) as clients,
        grpc.aio.insecure_channel(clients.address) as channel,
    ):
        answer = await collect(clients.generation.Generate(generation_pb2.GenerateRequest(**ASKED)))
        started = answer.started
        claim = {"session_id": started.session_id, "resume_token": started.resume_token}
        yield World(channel, verifier, claim)


@pytest.mark.parametrize("name", BAD)
async def test_wrong_field_is_named_before_any_work(world, name):
    named = []
    for bad, _ in BAD[name]:
        refused = await world.refusal(name, world.request(name, **bad))
        assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
        named.append(invalid_field(refused).field)
    assert named == [path for _, path in BAD[name]]


@pytest.mark.parametrize(
    ("name", "field", "reason"),
    [
        (name, field, reason)
        for name, method in METHODS.items()
        for field, reason in UNKNOWN_NAMES.items()
        if field in method.input_type.fields_by_name
    ],
)
async def test_unknown_name_has_a_reason_of_its_own(world, name, field, reason):
    refused = await world.refusal(name, world.request(name, **{field: "another"}))
    assert error_info(refused).reason == reason


def fields(descriptor: Descriptor) -> Iterator[tuple[FieldDescriptor, ...]]:
    """The fields of a message and of those in it, each after those that lead to it. A map is one
    field."""
    for field in descriptor.fields:
        yield (field,)
        inner = field.message_type
        if inner and not (
            inner.full_name == "google.protobuf.Struct" or inner.GetOptions().map_entry
        ):
            yield from ((field, *rest) for rest in fields(field.message_type))


def path_of(steps: tuple[FieldDescriptor, ...]) -> str:
    return ".".join(field.name for field in steps)


@pytest.mark.parametrize("name", METHODS)
def test_every_field_is_listed_here(name):
    prefix = "request." if name == "Complete" else ""
    listed = {re.sub(r"\[\d+\]", "", path) for _, path in BAD[name]}
    listed |= {prefix + field for field in (*UNKNOWN_NAMES, *TAKEN)}
    known = list(fields(METHODS[name].input_type))
    messages = {steps[:-1] for steps in known}
    assert {path_of(steps) for steps in known if steps not in messages} <= listed


def test_fields_that_are_listed_exist():
    known = {path_of(steps) for each in METHODS.values() for steps in fields(each.input_type)}
    assert known >= {*UNKNOWN_NAMES, *TAKEN}


def tag(field: FieldDescriptor, wire_type: int) -> bytes:
    """The bytes before a field of this type."""
    number = field.number << 3 | wire_type
    return bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])


@pytest.mark.parametrize("name", METHODS)
async def test_field_of_another_type_is_unknown(world, name):
    """None is a 64-bit number of fixed length."""
    for steps in fields(METHODS[name].input_type):
        *parents, last = steps
        sent = TagBytes(last.number, 1) + bytes(8)
        for parent in reversed(parents):
            sent = TagBytes(parent.number, 2) + bytes([len(sent)]) + sent
        refused = error_info(await world.refusal(name, sent))
        assert refused.reason == "UNKNOWN_FIELD", path_of(steps)
        lead = "".join(f"{each.name}{'[0]' * each.is_repeated}." for each in parents)
        assert refused.metadata["field"] == f"{lead}{last.number}"


@pytest.mark.parametrize(
    ("innermost", "reason"),
    [(b"\x20\x01", "OK"), (b"\x20\x01" + UNKNOWN, "UNKNOWN_FIELD")],
)
async def test_unknown_field_of_the_deepest_argument_is_noticed(world, innermost, reason):
    chat = nested(most.MAX_ARGUMENT_DEPTH, struct_pb2.Value.FromString(innermost))
    sent = world.request("Complete", request=ASKED | {"chat": chat})
    if reason == "OK":
        assert await world.call("Complete", sent)
    else:
        assert error_info(await world.refusal("Complete", sent)).reason == reason


@pytest.mark.parametrize(
    "fields",
    [
        {"tokens": {"ids": [70] * MANY}},
        {"received": {"token_ids": [70] * MANY}},
        {"received": {"unchecked": range(MANY)}},
        {"stopping": {"stop_token_ids": [70] * MANY}},
        {"stopping": {"stop_strings": ["a"] * MANY}},
        {"chat": {"messages": [{}] * MANY}},
    ],
    ids=lambda fields: next(iter(fields)),
)
async def test_list_that_is_too_long_is_not_taken_apart(connect, fields):
    """It would keep everybody else waiting."""
    behind = await connect([Verifier()])
    target, prompts = behind.targets.required(), PromptReader()
    request = generation_pb2.GenerateRequest(**ASKED | fields)

    async def read() -> None:
        prompt = await prompts.read(request, target)
        plan = make_plan(request, prompt, target, Defaults("autoregressive"), Random(0))
        read_received(request.received, plan.goal, VOCAB_SIZE)

    tracemalloc.start()
    try:
        with pytest.raises(InvalidField):
            await read()
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        await prompts.close()
    assert most_bytes < 4 * MANY


async def test_of_a_field_that_comes_twice_the_last_counts(world):
    once, again = (tokenizer_pb2.TokenizeRequest(text=text) for text in ("a", "return"))
    (response,) = await world.call("Tokenize", once.SerializeToString() + again.SerializeToString())
    assert list(response.token_ids) == TOKENIZER.encode("return").ids


async def test_of_two_prompts_the_last_counts_and_messages_are_merged(world):
    parts = [
        generation_pb2.GenerateRequest(
            tokens={"ids": [70]}, sampling={"temperature": 0}, stopping={"stop_token_ids": [1]}
        ),
        generation_pb2.GenerateRequest(
            text="return",
            sampling={"seed": 7},
            stopping={"max_tokens": 4, "stop_token_ids": [2]},
        ),
    ]
    sent = b"".join(part.SerializeToString() for part in parts)
    started, *chunks, _ = [each.event for each in await world.call("Generate", sent)]
    assert started.started.seed == 7
    prompt = TOKENIZER.encode("return").ids
    tokens = [token for event in chunks for token in event.chunk.token_ids]
    assert tokens == target_only(prompt, 4, Sampling(temperature=0))
