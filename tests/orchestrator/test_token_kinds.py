"""How each token of an answer came about: told with it, and in agreement with the counts."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.orchestrator.answers import NUM_TOKENS, alone, collect, request, resuming
from tests.orchestrator.peers import Drafter, Filter, Verifier

from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.v1 import events_pb2

GREEDY = {"temperature": 0}
COUPLED = {"temperature": 0.8, "seed": 11}
REJECTION = {**COUPLED, "acceptance_mode": "ACCEPTANCE_MODE_REJECTION"}
SAMPLINGS = pytest.mark.parametrize(
    "sampling", [GREEDY, COUPLED, REJECTION], ids=["greedy", "coupled", "rejection"]
)
ACCEPTED = events_pb2.TOKEN_KIND_ACCEPTED
RECOVERED = events_pb2.TOKEN_KIND_RECOVERED
BONUS = events_pb2.TOKEN_KIND_BONUS
UNCHECKED = events_pb2.TOKEN_KIND_UNCHECKED


@SAMPLINGS
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_kinds_agree_with_the_counts(connect, serve, strategy, sampling):
    verifiers, drafters = [Verifier(), Verifier()], [Drafter(), Drafter()]
    stub = await serve(await connect(verifiers, drafters, [Filter(0.5)]))
    asked = request(sampling=sampling, speculation={"strategy": strategy})
    answer = await collect(stub.Generate(asked))
    assert all(len(chunk.kinds) == len(chunk.token_ids) for chunk in answer.chunks)
    kinds, stats = Counter(answer.kinds), answer.finished.stats
    assert kinds.total() == NUM_TOKENS
    assert kinds[ACCEPTED] == stats.num_accepted_tokens
    assert kinds[UNCHECKED] == stats.num_unchecked_tokens
    assert kinds[RECOVERED] <= stats.num_verified_tokens - stats.num_accepted_tokens
    # A verification brings one token of the target's own at most.
    assert kinds[RECOVERED] + kinds[BONUS] <= stats.num_verify_calls


async def test_kinds_of_a_speculative_round(connect, serve):
    """With a drafter that is right each round is a draft accepted whole and a bonus token; with
    one that is wrong, a recovered token alone."""
    for agreement, expected in [(1, [*[ACCEPTED] * 4, BONUS] * 8), (0, [RECOVERED] * 39 + [BONUS])]:
        stub = await serve(await connect([Verifier()], [Drafter(agreement=agreement)]))
        answer = await collect(stub.Generate(request()))
        assert answer.tokens == alone(request().sampling)
        assert answer.kinds == expected


async def test_every_token_of_the_target_alone_is_a_bonus_token(connect, serve):
    stub = await serve(await connect([Verifier()]))
    answer = await collect(stub.Generate(request(speculation={"strategy": "autoregressive"})))
    assert answer.kinds == [BONUS] * NUM_TOKENS


async def test_of_a_token_that_is_replayed_only_that_it_was_unchecked_is_known(
    connect, serve, store_on, redis_server
):
    """The rest is not stored."""
    store = store_on(redis_server.url)
    stub = await serve(await connect([Verifier()], [Drafter()], [Filter(0.5)]), store)
    begun = await collect(stub.Generate(request(speculation={"strategy": "filter"})))
    assert {UNCHECKED} < set(begun.kinds)
    nothing = resuming(begun, received={})
    replayed = await collect(stub.Resume(nothing))
    assert replayed.tokens == begun.tokens
    expected = [kind if kind == UNCHECKED else 0 for kind in begun.kinds]
    assert replayed.kinds == expected
