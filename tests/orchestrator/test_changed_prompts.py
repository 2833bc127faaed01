"""An answer goes on behind the prompt that it began with, or not at all."""

from __future__ import annotations

from contextlib import AsyncExitStack

import grpc
import pytest
from google.protobuf import text_format
from tests.orchestrator.answers import PROMPT, PROMPT_IDS, Answer, collect, refusal, request
from tests.orchestrator.face import CHATML, face, template
from tests.orchestrator.model import TOKENIZER, target_only
from tests.orchestrator.peers import Verifier

from specmesh.serving.codec.wire import read_sampling
from specmesh.v1 import chat_pb2
from specmesh.v1 import generation_pb2 as pb

CHAT = text_format.Parse('messages { role: "user" content: "hello" }', chat_pb2.Chat())
OTHER_TEMPLATE = CHATML.replace("<end>", "|")
CLOCK_TEMPLATE = CHATML + "{{ strftime_now('%f') }}"
CHANGED = (grpc.StatusCode.UNAVAILABLE, "PROMPT_CHANGED")


def replica(source: str) -> Verifier:
    verifier = Verifier()
    verifier.chat_template = template(source)
    return verifier


def carried_on(asked: pb.GenerateRequest, begun: Answer) -> pb.GenerateRequest:
    """What a client asks without the store that has all of ``begun``."""
    rest = pb.GenerateRequest()
    rest.CopyFrom(asked)
    rest.epoch = 2
    rest.received.CopyFrom(begun.received)
    rest.received.prompt_digest = begun.started.prompt_digest
    rest.received.max_tokens = begun.started.max_tokens
    return rest


@pytest.fixture
async def faces(connect):
    """Orchestrators without a store, each before verifiers of its own."""
    async with AsyncExitStack() as stack:

        async def started(*verifiers):
            return await stack.enter_async_context(face(await connect(verifiers)))

        yield started


async def begun_at(generation, asked: pb.GenerateRequest) -> Answer:
    call = generation.Generate(asked)
    begun = await collect(call, num_chunks=2)
    call.cancel()
    return begun


async def test_an_answer_does_not_go_on_behind_the_prompt_of_another_template(faces):
    other = replica(OTHER_TEMPLATE)
    first, second = await faces(replica(CHATML)), await faces(other)
    asked = request(text=None, chat=CHAT)
    begun = await begun_at(first.generation, asked)
    rest = carried_on(asked, begun)
    assert await refusal(second.generation.Generate(rest)) == CHANGED
    assert not other.requests
    # A client from before the digest is not refused.
    rest.received.ClearField("prompt_digest")
    assert (await collect(second.generation.Generate(rest))).finished is not None


async def test_an_answer_does_not_go_on_behind_the_prompt_of_another_time(faces):
    only = await faces(replica(CLOCK_TEMPLATE))
    asked = request(text=None, chat=CHAT)
    begun = await begun_at(only.generation, asked)
    assert await refusal(only.generation.Generate(carried_on(asked, begun))) == CHANGED


@pytest.mark.parametrize("source", ["", "{{ raise_exception('not in this house') }}", "silent"])
async def test_a_template_that_refuses_the_chat_does_not_end_an_answer_that_has_begun(
    faces, source
):
    theirs = replica(CHATML)
    other = replica(source) if source else Verifier()
    first, second = await faces(theirs), await faces(other)
    asked = request(text=None, chat=CHAT)
    begun = await begun_at(first.generation, asked)
    rest = carried_on(asked, begun)
    assert await refusal(second.generation.Generate(rest)) == CHANGED
    both = await faces(other, theirs)
    whole = begun.then(await collect(both.generation.Generate(rest)))
    prompt = TOKENIZER.encode("<user>hello<end>\n<assistant>").ids
    assert whole.tokens == target_only(prompt, 40, read_sampling(asked.sampling))


async def test_an_answer_goes_on_by_the_template_of_another_replica_that_made_its_prompt(faces):
    theirs = replica(CHATML)
    first, second = await faces(theirs), await faces(replica(OTHER_TEMPLATE), theirs)
    asked = request(text=None, chat=CHAT)
    begun = await begun_at(first.generation, asked)
    whole = begun.then(await collect(second.generation.Generate(carried_on(asked, begun))))
    prompt = TOKENIZER.encode("<user>hello<end>\n<assistant>").ids
    assert whole.tokens == target_only(prompt, 40, read_sampling(asked.sampling))


@pytest.mark.parametrize(
    "prompt", [{"text": PROMPT}, {"text": None, "tokens": {"ids": PROMPT_IDS}}]
)
async def test_a_prompt_that_is_the_same_has_the_same_digest(faces, prompt):
    first, second = await faces(Verifier()), await faces(replica(CHATML))
    asked = request(**prompt)
    begun = await begun_at(first.generation, asked)
    whole = begun.then(await collect(second.generation.Generate(carried_on(asked, begun))))
    assert whole.tokens == target_only(PROMPT_IDS, 40, read_sampling(asked.sampling))
    others = await begun_at(first.generation, request(text=PROMPT + "!"))
    assert others.started.prompt_digest != begun.started.prompt_digest
