"""A chat through real processes becomes the prompt that transformers makes of it."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import psutil
import pytest
from tests.e2e.processes import Process, Processes
from transformers import AutoTokenizer

from specmesh import models
from specmesh.orchestrator.chats import sandbox
from specmesh.v1 import chat_pb2, events_pb2, generation_pb2, tokenizer_pb2
from specmesh.v1.generation_pb2_grpc import GenerationServiceStub
from specmesh.v1.tokenizer_pb2_grpc import TokenizerServiceStub

TEMPLATE = """
{%- for message in messages %}
    {{- '# ' + message.role + '\\n' + message.content + eos_token + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '# assistant\\n' }}{% endif %}
"""
MESSAGES = [
    {"role": "system", "content": "Write Python."},
    {"role": "user", "content": "def größe(x):\n    return"},
]


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    file = tmp_path_factory.mktemp("chat") / "template.jinja"
    file.write_text(TEMPLATE, encoding="utf-8")
    with Processes() as own:
        yield own.verifier("--chat-template", str(file))


@pytest.fixture
def orchestrator(processes: Processes, verifier: Process) -> Process:
    return processes.orchestrator([verifier], [], "--strategy", "autoregressive")


async def generate(channel, **prompt: object) -> list[events_pb2.GenerationEvent]:
    request = generation_pb2.GenerateRequest(
        **prompt, sampling={"temperature": 0}, stopping={"max_tokens": 16}
    )
    return [each.event async for each in GenerationServiceStub(channel).Generate(request)]


async def test_chat_is_answered_as_its_tokens_are(orchestrator):
    tokenizer = AutoTokenizer.from_pretrained(models.path(models.TARGET), chat_template=TEMPLATE)
    expected = tokenizer.apply_chat_template(
        MESSAGES, add_generation_prompt=True, return_dict=False
    )
    chat = chat_pb2.Chat(messages=[chat_pb2.ChatMessage(**each) for each in MESSAGES])
    async with grpc.aio.insecure_channel(orchestrator.address) as channel:
        prompt = await TokenizerServiceStub(channel).ApplyChatTemplate(
            tokenizer_pb2.ApplyChatTemplateRequest(chat=chat)
        )
        answers = [
            await generate(channel, chat=chat),
            await generate(channel, tokens={"ids": expected}),
        ]
    assert list(prompt.token_ids) == expected
    assert prompt.text == tokenizer.decode(expected)
    of_chat, of_tokens = (
        [token for event in events for token in event.chunk.token_ids] for events in answers
    )
    assert of_chat == of_tokens
    assert len(of_chat) == 16


async def test_no_process_is_left_of_an_orchestrator_that_was_killed(orchestrator):
    async with grpc.aio.insecure_channel(orchestrator.address) as channel:
        await TokenizerServiceStub(channel).ApplyChatTemplate(
            tokenizer_pb2.ApplyChatTemplateRequest(chat={"messages": [MESSAGES[1]]})
        )
    (rendering,) = psutil.Process(orchestrator.pid).children()
    assert sandbox.__name__ in rendering.cmdline()
    orchestrator.kill()
    rendering.wait(30)
