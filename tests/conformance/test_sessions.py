"""Sessions that grow call by call say what the reference says, whatever was drafted before."""

from __future__ import annotations

import asyncio

import numpy as np
from tests.conformance.calls import request_of, verdict_on, verify
from tests.conformance.cases import BORDERS, DRAWN, GREEDY, MAX_DRAFT, SALTS, Case, say

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.trees.tree import EMPTY, TokenTree

NUM_TOKENS = 80
CASES_EACH = 20
"""A session costs as much as so many of the random cases."""
GIVEN_UP = 0.15
LONGEST_PATIENCE_S = 0.03


async def test_sessions_grow_beside_one_another(verifier, channel):
    """Over the ends of blocks, by drafts that are right, wrong, or given up. Several begin alike,
    and every fifth one says the same as another."""
    rng = np.random.default_rng(31)
    number = verifier.num_cases // CASES_EACH
    asked = [ask(rng, verifier.texts) for _ in range(number)]
    asked += asked[::4]
    said = say(verifier.reference, asked)
    await asyncio.gather(
        *(
            grow(verifier, channel, prefix, sampling, own, np.random.default_rng(index))
            for index, ((prefix, _, sampling), own) in enumerate(zip(asked, said, strict=True))
        )
    )


def ask(rng, texts):
    """A prefix that ends around the end of a block, and how it goes on."""
    length = int(rng.choice(BORDERS)) + int(rng.integers(-3, 4))
    settings = (GREEDY, *DRAWN)[int(rng.integers(1 + len(DRAWN)))]
    seed, mode = int(rng.integers(1 << 40)), AcceptanceMode.COUPLED
    prefix = texts[int(rng.integers(2))][:length]
    return tuple(prefix), NUM_TOKENS - 1, Sampling(**settings, seed=seed, mode=mode)


async def grow(verifier, channel, prefix, sampling, own, rng):
    """A session, up to all of its ``own`` tokens; fails at the first verdict that is another."""
    vocab_size, salt = verifier.info.vocab_size, SALTS[int(rng.integers(len(SALTS)))]
    num_said = 0
    while num_said < len(own):
        tree, verdict = draft(rng, own[num_said:], vocab_size)
        case = Case((*prefix, *own[:num_said]), tree, sampling, verdict, salt=salt)
        if rng.random() < GIVEN_UP:
            await give_up(channel, case, float(rng.random()) * LONGEST_PATIENCE_S)
            continue
        assert await verdict_on(channel, case, vocab_size) == verdict
        num_said += len(verdict.accepted_nodes) + 1


def draft(rng, own, vocab_size):
    """Some of a session's ``own`` next tokens, every second time with a wrong one among them; and
    the verdict on them."""
    tokens = list(own[: int(rng.integers(min(MAX_DRAFT + 1, len(own))))])
    wrong = int(rng.integers(2 * len(tokens) + 1))
    if wrong < len(tokens):
        tokens[wrong] = (tokens[wrong] + 1) % vocab_size
    num_accepted = min(wrong, len(tokens))
    verdict = Verdict(
        tuple(range(1, num_accepted + 1)), own[num_accepted], recovered=wrong < len(tokens)
    )
    return TokenTree.chain(tokens) if tokens else EMPTY, verdict


async def give_up(channel, case, after_s):
    call = asyncio.ensure_future(begun(channel, case))
    await asyncio.sleep(after_s)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


async def begun(channel, case):
    return await verify(channel, request_of(case))
