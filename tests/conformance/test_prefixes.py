"""Prefixes are named by what they say and to whom, cached, and told apart."""

from __future__ import annotations

import os

import grpc
import pytest
from tests.conformance.calls import GREEDY, by_base, refusal, request, verify, whole
from tests.conformance.cases import half_right, say
from tests.conformance.engines import Engine

from specmesh.decoding.prefix import BLOCK_TOKENS, SALT_BYTES, PrefixChain
from specmesh.decoding.trees.tree import TokenTree
from specmesh.mesh.v1alpha1 import tokens_pb2

LARGEST_BLOCK = 128
"""An engine that keeps KV in larger blocks would hardly ever find one again."""


@pytest.fixture
def salt() -> bytes:
    """A caller whom nobody has seen."""
    return os.urandom(SALT_BYTES)


@pytest.fixture
def text(verifier: Engine):
    return verifier.texts[0]


async def told(channel, prefix, **fields):
    """The next token, and how much of the prefix was held."""
    response = await verify(channel, request(prefix, **fields))
    return response.next_token_id, response.cost.num_cached_tokens


async def test_what_was_read_is_not_read_again(channel, text, salt):
    """But for the last token, whose logits are wanted; counted in whole blocks."""
    first, none = await told(channel, whole(text, salt))
    again, held = await told(channel, whole(text, salt))
    assert (again, none) == (first, 0)
    assert len(text) - LARGEST_BLOCK <= held < len(text)
    assert held % BLOCK_TOKENS == 0


async def test_what_was_accepted_is_not_read_again(verifier, channel, text, salt):
    """The draft's tokens make a block full; what follows finds them."""
    length = len(text) // LARGEST_BLOCK * LARGEST_BLOCK or len(text)
    prefix = text[: length - 5]
    ((*own, following),) = say(verifier.reference, [(prefix, 8, GREEDY)])
    message = request(whole(prefix, salt), TokenTree.chain(own))
    response = await verify(channel, message)
    assert list(response.accepted_nodes) == [*range(1, 9)]
    _, held = await told(channel, whole((*prefix, *own, following), salt))
    assert held >= length - LARGEST_BLOCK + BLOCK_TOKENS * (length > LARGEST_BLOCK)


async def test_a_base_that_is_held_stands_for_its_tokens(channel, text, salt):
    first, _ = await told(channel, whole(text, salt))
    assert (await told(channel, by_base(text, salt)))[0] == first


async def test_a_session_grows_by_what_it_names(verifier, channel, text, salt):
    """Base and tail alone, round after round on what the round before has left, of which the last
    is rejected: no KV of it may be taken for that of the token in its place."""
    prefix, sent = list(text[:100]), whole(text[:100], salt)
    (own,) = say(verifier.reference, [(tuple(prefix), 40, GREEDY)])
    while len(prefix) < 100 + len(own):
        tree = half_right(own[len(prefix) - 100 :], verifier.info.vocab_size)
        response = await verify(channel, request(sent, tree))
        prefix += [*tree.tokens_on(response.accepted_nodes), response.next_token_id]
        sent = by_base(prefix, salt)
    assert prefix[100:] == list(own)


@pytest.mark.parametrize("case", ["nobody's", "of_another_length", "of_another_caller"])
async def test_a_base_that_is_not_held_is_asked_for(channel, text, salt, case):
    """By whoever guesses the digest of somebody else's prefix, too."""
    await told(channel, whole(text, salt))
    length, digest = PrefixChain(text, salt).base()
    prefix = tokens_pb2.Prefix(base_length=length, base_digest=digest, token_ids=[1], salt=salt)
    match case:
        case "nobody's":
            prefix.base_digest = b"?" * len(digest)
        case "of_another_length":
            prefix.base_digest = PrefixChain(text, salt).digest_at(length - BLOCK_TOKENS)
        case "of_another_caller":
            prefix.salt = os.urandom(SALT_BYTES)
    status, reason, _ = await refusal(told(channel, prefix))
    assert (status, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "PREFIX_UNKNOWN")
    await told(channel, whole(text, salt))


async def test_callers_share_nothing(channel, text, salt):
    first, _ = await told(channel, whole(text, salt))
    assert await told(channel, whole(text, os.urandom(SALT_BYTES))) == (first, 0)


@pytest.mark.parametrize("named", [whole, by_base])
async def test_a_guess_at_somebody_elses_next_token_is_told_nothing(
    verifier, channel, text, salt, named
):
    """Right or wrong, of all that is within a block."""
    await verify(channel, request(whole(text, salt)))
    block = len(text) // BLOCK_TOKENS * BLOCK_TOKENS - BLOCK_TOKENS
    for length in range(block + 1, block + BLOCK_TOKENS - 3, 3):
        wrong = (text[length] + 1) % verifier.info.vocab_size
        costs = []
        for guess in (text[length], wrong):
            message = request(named((*text[:length], guess, 5, 6), salt))
            cost = (await verify(channel, message)).cost
            held = cost.num_cached_tokens, cost.num_computed_tokens
            costs.append((*held, cost.num_batch_calls, cost.num_batch_tokens))
        assert costs[0] == costs[1]
