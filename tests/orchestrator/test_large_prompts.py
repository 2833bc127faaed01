"""A large prompt is refused by its size, or tokenized without anybody else waiting for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest
from tests.orchestrator.answers import PROMPT
from tests.orchestrator.model import CONTEXT_TOKENS, TOKENIZER, TOKENIZER_JSON, model_info

from specmesh.decoding.errors import ContextExceeded
from specmesh.orchestrator.replicas.target import Target
from specmesh.orchestrator.replicas.transport.peer_model import PeerModel
from specmesh.orchestrator.requests.prompts import (
    INLINE_CHARS,
    MAX_AT_WORK,
    MAX_WAITING,
    PromptReader,
)
from specmesh.serving.errors import ResourceExhaustedStatus
from specmesh.v1 import generation_pb2

TARGET = Target.of(PeerModel(model_info("toy"), TOKENIZER_JSON))
LONGEST = max(len(entry.encode()) for entry in TOKENIZER.get_vocab())
LONG_TEXT = "return" * (INLINE_CHARS // 4)
ROOMY = model_info("toy", context_tokens=1 << 22)
NUM_TRIES = 3
"""Of what the loop may miss where the machine is busy."""


class HeldTokenizer:
    """Tokenizes nothing before it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.at_work = threading.Semaphore(0)
        self.num_texts = 0

    def encode_batch(self, texts: Sequence[str], **options: bool):
        self.num_texts += 1
        self.at_work.release()
        assert self.released.wait(30)
        return TOKENIZER.encode_batch(texts, **options)


def read(reader: PromptReader, text: str, target: Target = TARGET):
    return reader.read(generation_pb2.GenerateRequest(text=text), target)


async def test_text_that_no_context_can_hold_is_refused_untokenized():
    held = HeldTokenizer()
    target = replace(TARGET, tokenizer=held)
    most = LONGEST * CONTEXT_TOKENS
    for text in ("x" * (most + 1), "ä" * (most // 2 + 1), "x" * 10_000_000):
        with pytest.raises(ContextExceeded, match=str(most)) as refused:
            await read(PromptReader(), text, target)
        assert refused.value.field == "text"
    assert held.num_texts == 0


async def test_text_of_the_longest_tokens_is_let_through():
    # Of parts of characters no text can be made.
    texts = (
        TOKENIZER.decode([token]) * (CONTEXT_TOKENS - 1) for token in TOKENIZER.get_vocab().values()
    )
    fitting = (text for text in texts if 0 < len(TOKENIZER.encode(text).ids) < CONTEXT_TOKENS)
    text = max(fitting, key=lambda text: len(text.encode()))
    assert len(await read(PromptReader(), text)) == len(TOKENIZER.encode(text).ids)


async def test_too_many_token_ids_are_refused_before_a_wrong_one_is_looked_for():
    ids = [7] * CONTEXT_TOKENS + [1 << 31]
    with pytest.raises(ContextExceeded) as refused:
        await PromptReader().read(generation_pb2.GenerateRequest(tokens={"ids": ids}), TARGET)
    assert refused.value.field == "tokens.ids"


async def test_others_are_read_while_a_long_text_is_tokenized():
    held, reader = HeldTokenizer(), PromptReader()
    long = asyncio.create_task(read(reader, LONG_TEXT, replace(TARGET, tokenizer=held)))
    assert await asyncio.to_thread(held.at_work.acquire, timeout=30)
    assert list(await read(reader, PROMPT)) == TOKENIZER.encode(PROMPT).ids
    assert not long.done()
    held.released.set()
    with suppress(ContextExceeded):
        await long


async def test_the_event_loop_goes_on_while_a_real_tokenizer_works():
    target = replace(TARGET, info=ROOMY)
    text, loop = "def f(x): return x\n" * 20_000, asyncio.get_running_loop()
    expected = TOKENIZER.encode(text).ids

    async def longest_pause() -> float:
        """As a share of the time that the tokenizer works."""
        pauses = [0.0]

        async def tick() -> None:
            while True:
                began = loop.time()
                await asyncio.sleep(0.001)
                pauses.append(loop.time() - began)

        ticking = asyncio.create_task(tick())
        began = loop.time()
        assert list(await read(PromptReader(), text, target)) == expected
        ticking.cancel()
        assert len(pauses) > 10
        return max(pauses) / (loop.time() - began)

    for _ in range(NUM_TRIES):
        if (share := await longest_pause()) < 0.5:
            break
    assert share < 0.5


async def test_few_texts_are_tokenized_at_once_and_few_wait():
    held, reader = HeldTokenizer(), PromptReader()
    target = replace(TARGET, tokenizer=held, info=ROOMY)
    tasks = [
        asyncio.create_task(read(reader, LONG_TEXT, target))
        for _ in range(MAX_AT_WORK + MAX_WAITING)
    ]
    for _ in range(MAX_AT_WORK):
        assert await asyncio.to_thread(held.at_work.acquire, timeout=30)
    with pytest.raises(ResourceExhaustedStatus) as refused:
        await read(reader, LONG_TEXT, target)
    assert refused.value.reason == "OVERLOADED"
    assert refused.value.retry_after_s
    assert held.num_texts == MAX_AT_WORK
    held.released.set()
    assert len({await task for task in tasks}) == 1


async def test_a_text_whose_client_has_gone_counts_until_its_thread_is_done():
    held, reader = HeldTokenizer(), PromptReader()
    target = replace(TARGET, tokenizer=held, info=ROOMY)
    for _ in range(MAX_AT_WORK):
        gone = asyncio.create_task(read(reader, LONG_TEXT, target))
        assert await asyncio.to_thread(held.at_work.acquire, timeout=30)
        gone.cancel()
    waiting = asyncio.create_task(read(reader, LONG_TEXT, target))
    await asyncio.sleep(0.05)
    assert held.num_texts == MAX_AT_WORK
    held.released.set()
    await waiting
