"""TokenizerService: the target's tokens and chat prompts, for clients without a tokenizer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest
from tests.orchestrator.answers import PROMPT
from tests.orchestrator.face import CHATML, Face, face, template
from tests.orchestrator.model import CONTEXT_TOKENS, END_OF_TEXT, TOKENIZER, VOCAB_SIZE
from tests.orchestrator.peers import Verifier
from tokenizers.processors import TemplateProcessing

from specmesh.client.connections.status import from_rpc_error
from specmesh.orchestrator.requests.prompts import INLINE_CHARS, INLINE_TOKENS
from specmesh.serving.errors import CONTEXT_LENGTH_EXCEEDED, error_info, invalid_field
from specmesh.serving.templates.tokenizers import fingerprint
from specmesh.v1 import chat_pb2, generation_pb2, tokenizer_pb2

CHAT = chat_pb2.Chat(messages=[{"role": "user", "content": "hello"}])


def beginning_with_a_token(tokenizer):
    """The tokenizer, putting its special token before every text."""
    ours = type(tokenizer).from_str(tokenizer.to_str())
    ours.post_processor = TemplateProcessing(single="<end> $A", special_tokens=[("<end>", 0)])
    return ours


WITH_BOS = beginning_with_a_token(TOKENIZER)


@pytest.fixture
def verifier() -> Verifier:
    """Its tokenizer puts a special token before every text, and so does its template."""
    replica = Verifier()
    replica.tokenizer_json = WITH_BOS.to_str()
    replica.info.tokenizer_fingerprint = fingerprint(replica.tokenizer_json)
    replica.chat_template = template("{{ bos_token }}" + CHATML, bos_token="<end>")
    return replica


@pytest.fixture
async def clients(connect, verifier) -> AsyncIterator[Face]:
    async with face(await connect([verifier])) as both:
        yield both


@pytest.mark.parametrize("text", [PROMPT, "", "größer 東京 🙂", "return " * INLINE_CHARS])
@pytest.mark.parametrize("special", [None, True, False])
async def test_text_becomes_the_tokens_of_a_prompt(connect, verifier, text, special):
    verifier.info.context_tokens = 1 << 14  # the longest text is no prompt's
    async with face(await connect([verifier])) as clients:
        response = await clients.tokenizer.Tokenize(
            tokenizer_pb2.TokenizeRequest(text=text, add_special_tokens=special)
        )
    expected = WITH_BOS.encode(text, add_special_tokens=special is not False)
    assert list(response.token_ids) == expected.ids


async def test_text_of_more_tokens_than_a_prompt_may_have_is_counted(clients):
    text = "東" * CONTEXT_TOKENS
    response = await clients.tokenizer.Tokenize(tokenizer_pb2.TokenizeRequest(text=text))
    assert len(response.token_ids) > CONTEXT_TOKENS


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("count", [0, 20, INLINE_TOKENS + 1])
async def test_tokens_become_text(connect, verifier, keep, count):
    verifier.info.context_tokens = 2 * INLINE_TOKENS
    ids = [END_OF_TEXT, *range(100, 100 + min(count, 100))] * (1 + count // 100)
    async with face(await connect([verifier])) as clients:
        response = await clients.tokenizer.Detokenize(
            tokenizer_pb2.DetokenizeRequest(token_ids=ids, keep_special_tokens=keep)
        )
    assert response.text == TOKENIZER.decode(ids, skip_special_tokens=not keep)
    assert ("<end>" in response.text) == keep


async def test_tokens_are_spelled_as_in_the_vocabulary_on_request(clients):
    ids = [END_OF_TEXT, *TOKENIZER.encode("return 東").ids]
    spelled, plain = [
        await clients.tokenizer.Detokenize(
            tokenizer_pb2.DetokenizeRequest(token_ids=ids, include_token_strings=asked)
        )
        for asked in (True, False)
    ]
    assert list(spelled.token_strings) == [TOKENIZER.id_to_token(each) for each in ids]
    assert (list(plain.token_strings), plain.text) == ([], spelled.text)


async def test_half_a_character_becomes_the_replacement_character(clients):
    first_byte = TOKENIZER.encode("東").ids[:1]
    response = await clients.tokenizer.Detokenize(
        tokenizer_pb2.DetokenizeRequest(token_ids=first_byte)
    )
    assert response.text == "\ufffd"


async def test_chat_becomes_text_and_tokens_without_a_second_special_token(clients):
    response = await clients.tokenizer.ApplyChatTemplate(
        tokenizer_pb2.ApplyChatTemplateRequest(chat=CHAT)
    )
    assert response.text == "<end><user>hello<end>\n<assistant>"
    assert list(response.token_ids) == TOKENIZER.encode(response.text).ids
    assert response.token_ids[:2].count(END_OF_TEXT) == 1


@pytest.mark.parametrize(
    ("method", "request_", "field"),
    [
        ("Tokenize", tokenizer_pb2.TokenizeRequest(text="x" * 100_000), "text"),
        ("Detokenize", {"token_ids": [5, VOCAB_SIZE]}, "token_ids[1]"),
        ("Detokenize", {"token_ids": [5] * (CONTEXT_TOKENS + 1)}, "token_ids"),
        ("ApplyChatTemplate", tokenizer_pb2.ApplyChatTemplateRequest(), "chat.messages"),
    ],
)
async def test_wrong_field_is_named(clients, method, request_, field):
    if isinstance(request_, dict):
        request_ = tokenizer_pb2.DetokenizeRequest(**request_)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await getattr(clients.tokenizer, method)(request_)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert invalid_field(refused.value).field == field


async def test_more_tokens_than_the_context_holds_are_told_apart_as_in_a_prompt(clients):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await clients.tokenizer.Detokenize(
            tokenizer_pb2.DetokenizeRequest(token_ids=[5] * (CONTEXT_TOKENS + 1))
        )
    (violation,) = from_rpc_error(refused.value).field_violations
    assert violation.reason == CONTEXT_LENGTH_EXCEEDED


@pytest.mark.parametrize("method", ["Tokenize", "Detokenize", "ApplyChatTemplate"])
async def test_unknown_model_is_not_found(clients, method):
    request = getattr(tokenizer_pb2, f"{method}Request")(model="other")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await getattr(clients.tokenizer, method)(request)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert error_info(refused.value).reason == "MODEL_NOT_FOUND"


async def test_before_a_replica_has_come_up_there_is_no_tokenizer(connect):
    async with face(await connect([])) as clients:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await clients.tokenizer.Tokenize(tokenizer_pb2.TokenizeRequest(text="a"))
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert error_info(refused.value).reason == "NO_VERIFIER"


async def test_what_tokenize_gives_continues_as_the_text_does(clients):
    tokens = await clients.tokenizer.Tokenize(tokenizer_pb2.TokenizeRequest(text=PROMPT))
    answers = []
    for prompt in ({"text": PROMPT}, {"tokens": {"ids": tokens.token_ids}}):
        request = generation_pb2.GenerateRequest(
            **prompt, sampling={"temperature": 0}, stopping={"max_tokens": 8}
        )
        events = [each.event async for each in clients.generation.Generate(request)]
        answers.append([each.chunk.text for each in events if each.HasField("chunk")])
    assert "".join(answers[0]) == "".join(answers[1])
