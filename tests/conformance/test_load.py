"""More than fits, more than is wanted: what is left is answered, rightly and soon."""

from __future__ import annotations

import asyncio
import math
import os
import time
from itertools import cycle, islice

import grpc
import pytest
from tests.conformance.calls import (
    GREEDY,
    TIMEOUT_S,
    by_base,
    refusal,
    request,
    verify,
    whole,
)
from tests.conformance.cases import half_right, say

from specmesh.decoding.prefix import SALT_BYTES
from specmesh.decoding.trees.tree import TokenTree
from specmesh.serving.errors import error_info
from specmesh.v1.model_pb2 import MODEL_FEATURE_TREES

MOST_SESSIONS = 64
LONG_TOKENS = 1000
NUM_UNWANTED = 8
NUM_TRIES = 3
"""Machines are shared: the best counts."""


def new_salt() -> bytes:
    """So that nothing of a prefix is cached."""
    return os.urandom(SALT_BYTES)


async def test_more_sessions_than_the_cache_holds(verifier, channel):
    """Each is a caller of its own, so that they share nothing; what was evicted is sent again."""
    capacity, texts = verifier.info.kv_capacity_tokens, verifier.texts
    number = math.ceil(1.5 * capacity / len(texts[0]))
    if not 0 < number <= MOST_SESSIONS:
        pytest.skip(f"its KV cache, of {capacity} tokens, is not to be filled in short")
    expected = say(verifier.reference, [(text, 7, GREEDY) for text in texts])

    async def session(text, own, salt):
        committed = list(text)
        while len(committed) < len(text) + len(own):
            tree = half_right(own[len(committed) - len(text) :], verifier.info.vocab_size)
            response = await by_base_or_whole(channel, committed, salt, tree)
            committed += [*tree.tokens_on(response.accepted_nodes), response.next_token_id]
        return tuple(committed[len(text) :])

    asked = list(islice(cycle(zip(texts, expected, strict=True)), number))
    told = await asyncio.gather(*(session(*each, new_salt()) for each in asked))
    assert told == [own for _, own in asked]


async def by_base_or_whole(channel, tokens, salt, tree):
    """As an orchestrator asks."""
    try:
        return await verify(channel, request(by_base(tokens, salt), tree))
    except grpc.aio.AioRpcError as error:
        if error_info(error).reason != "PREFIX_UNKNOWN":
            raise
        return await verify(channel, request(whole(tokens, salt), tree))


async def test_what_never_fits_is_refused_with_the_numbers(verifier, channel):
    capacity, limit = verifier.info.kv_capacity_tokens, verifier.info.context_tokens
    width = 1024 if verifier.can(MODEL_FEATURE_TREES) else 0
    length = capacity - width + 1
    if not capacity or length > limit:
        pytest.skip("whatever the context holds fits")
    tokens = verifier.text_of(length)
    tree = TokenTree(tuple(range(width)), (0,) * width)
    status, reason, told = await refusal(verify(channel, request(whole(tokens), tree)))
    assert (status, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "KV_CACHE_TOO_SMALL")
    assert told == {"num_tokens": str(capacity + 1), "kv_capacity_tokens": str(capacity)}


@pytest.mark.parametrize("ending", ["cancelled", "out_of_time"])
async def test_calls_that_nobody_wants_any_more_make_nobody_wait(verifier, channel, ending):
    """Those that wait are taken out; of the one at work at most a part is still computed."""
    tokens = verifier.text_of(LONG_TOKENS)
    began = time.perf_counter()
    await verify(channel, request(whole(tokens, new_salt())))
    each_s = time.perf_counter() - began
    waits = [await wait_behind_unwanted(channel, tokens, each_s, ending)]
    while min(waits) >= NUM_UNWANTED * each_s / 2 and len(waits) < NUM_TRIES:
        waits.append(await wait_behind_unwanted(channel, tokens, each_s, ending))
    assert min(waits) < NUM_UNWANTED * each_s / 2, f"one takes {each_s} s"


async def wait_behind_unwanted(channel, tokens, each_s, ending):
    """Seconds of a call after those of others have ended, of which the first was at work."""
    timeout_s = each_s if ending == "out_of_time" else TIMEOUT_S
    messages = [request(whole(tokens, new_salt())) for _ in range(NUM_UNWANTED)]
    unwanted = [asyncio.ensure_future(begin(channel, each, timeout_s)) for each in messages]
    await asyncio.sleep(each_s / 2)
    if ending == "cancelled":
        for call in unwanted:
            call.cancel()
    ends = await asyncio.gather(*unwanted, return_exceptions=True)
    assert any(isinstance(end, BaseException) for end in ends)
    began = time.perf_counter()
    await verify(channel, request(whole(tokens[:20], new_salt())))
    return time.perf_counter() - began


async def begin(channel, message, timeout_s):
    return await verify(channel, message, timeout_s)


async def test_calls_go_on_beside_one_that_is_cancelled(verifier, channel):
    """And say what they would have said."""
    tokens = verifier.text_of(LONG_TOKENS)
    prefixes = [text[:150] for text in verifier.texts]
    expected = say(verifier.reference, [(prefix, 0, GREEDY) for prefix in prefixes])
    unwanted = asyncio.ensure_future(begin(channel, request(whole(tokens, new_salt())), TIMEOUT_S))
    wanted = [verify(channel, request(whole(prefix, new_salt()))) for prefix in prefixes]
    first, *others = [asyncio.ensure_future(answered(call)) for call in wanted]
    told = [await first]
    unwanted.cancel()
    told += await asyncio.gather(*others)
    assert told == [own for (own,) in expected]
    await asyncio.gather(unwanted, return_exceptions=True)


async def answered(call):
    return (await call).next_token_id
