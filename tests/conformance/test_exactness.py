"""A verdict is the reference's, whoever asks what else at the same time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache
from itertools import chain

import grpc
import numpy as np
import pytest
from tests.conformance.calls import TIMEOUT_S, read, refusal, request_of, verdict_on
from tests.conformance.cases import MAX_DRAFT, PROCESSED, Case, chains, draws, rows_of, trees
from tests.conformance.engines import Engine

from specmesh.decoding.acceptance import Verdict, verify
from specmesh.decoding.logprobs import logprobs_along, logprobs_of_nodes
from specmesh.decoding.processing.processor import LogitProcessor
from specmesh.mesh.v1alpha1 import verifier_pb2, verifier_pb2_grpc
from specmesh.serving.errors import error_info
from specmesh.v1.model_pb2 import (
    MODEL_FEATURE_BONUS_DISTRIBUTION,
    MODEL_FEATURE_LOGIT_PROCESSING,
    MODEL_FEATURE_LOGPROBS,
    MODEL_FEATURE_MANY_REQUESTS,
    MODEL_FEATURE_NODE_LOGPROBS,
    MODEL_FEATURE_REJECTION_MODE,
    MODEL_FEATURE_TREES,
)

AT_ONCE = 40
"""More than a forward has room for."""
NUM_ALONE = 12
KINDS = ("greedy", "coupled", "trees", "rejection")


@cache
def cases(engine: Engine) -> dict[str, list[Case]]:
    """By kind, those of what it claims to do; in greedy and coupled mode ``num_cases``."""
    asked = engine.reference, engine.texts
    number, with_trees = engine.num_cases, engine.can(MODEL_FEATURE_TREES)
    found = {
        "greedy": chains(*asked, number * 2 // 5, "greedy"),
        "coupled": chains(*asked, number * 3 // 5, "coupled"),
    }
    if with_trees:
        found["trees"] = trees(*asked, number // 4)
    if engine.can(MODEL_FEATURE_REJECTION_MODE):
        found["rejection"] = draws(*asked, number // 4, with_trees=with_trees)
    return found


def wrong(asked: list[Case], told: list[Verdict]) -> list[tuple[Case, Verdict]]:
    return [pair for pair in zip(asked, told, strict=True) if pair[1] != pair[0].expected]


@pytest.mark.parametrize("kind", KINDS)
async def test_alone(verifier, channel, kind):
    asked = cases(verifier).get(kind)
    if asked is None:
        pytest.skip("is not claimed")
    few = asked[:NUM_ALONE]
    assert not wrong(few, [await verdict_on(channel, case, size(verifier)) for case in few])


async def test_in_company(verifier, channel):
    """Greedy and coupled, chains and trees, of every width, below prefixes over and under the ends
    of blocks, some right and some wrong: all at once."""
    by_kind = cases(verifier)
    asked = list(chain(*by_kind.values()))
    widths = {len(case.tree) for kind in ("greedy", "coupled") for case in by_kind[kind]}
    assert widths == set(range(MAX_DRAFT + 1))
    for some in by_kind.values():
        assert {case.expected.recovered for case in some} == {False, True}
    order = np.random.default_rng(1).permutation(len(asked))
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(case):
        async with slots:
            return await verdict_on(channel, case, size(verifier))

    shuffled = [asked[each] for each in order]
    assert not wrong(shuffled, await asyncio.gather(*map(one, shuffled)))


async def test_on_an_open_call(verifier, channel):
    """One after another; an error ends the call with the status that Verify would have."""
    asked = cases(verifier)["coupled"][:NUM_ALONE]
    call = verifier_pb2_grpc.VerifierServiceStub(channel).VerifyEach(timeout=60)
    told = []
    for case in asked:
        await call.write(verifier_pb2.VerifyEachRequest(request=request_of(case)))
        told.append(read((await call.read()).response, case, size(verifier)))
    assert not wrong(asked, told)
    await call.write(verifier_pb2.VerifyEachRequest())
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call.read()
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_info(refused.value).reason == "INVALID_FIELD"


async def test_many_on_one_call(verifier, channel):
    """As many in a message as no queue refuses; an error is that of its request alone."""
    if not verifier.can(MODEL_FEATURE_MANY_REQUESTS):
        pytest.skip("is not claimed")
    asked = cases(verifier)["coupled"]
    call = verifier_pb2_grpc.VerifierServiceStub(channel).VerifyMany(timeout=TIMEOUT_S)
    verdicts = []
    for start in range(0, len(asked), AT_ONCE):
        some = asked[start : start + AT_ONCE]
        requests = [verifier_pb2.VerifyEachRequest(request=request_of(case)) for case in some]
        # A replica that has just answered may not yet have forgotten a request's number.
        first = start + start // AT_ONCE
        told = await numbered(call, [*requests, verifier_pb2.VerifyEachRequest()], first)
        assert told.pop().failure.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        assert not [each.failure for each in told if each.HasField("failure")]
        responses = [each.response.response for each in told]
        verdicts += [read(*pair, size(verifier)) for pair in zip(responses, some, strict=True)]
    assert not wrong(asked, verdicts)
    call.cancel()


async def numbered(call, requests, first=0):
    """Return the answers to one message of ``requests``, numbered from ``first`` on, in order."""
    message = verifier_pb2.VerifyManyRequest()
    for number, request in enumerate(requests, start=first):
        message.requests.add(number=number, request=request)
    await call.write(message)
    told: dict[int, verifier_pb2.NumberedVerifyResponse] = {}
    while len(told) < len(requests):
        told.update((each.number, each) for each in (await call.read()).responses)
    return [told[number] for number in range(first, first + len(requests))]


@pytest.mark.parametrize("num_candidates", [1, 8, 64])
async def test_the_distribution_of_a_bonus_token(verifier, channel, num_candidates):
    if not verifier.can(MODEL_FEATURE_BONUS_DISTRIBUTION):
        pytest.skip("is not claimed")
    accepted = [case for case in cases(verifier)["rejection"] if not case.expected.recovered]
    for case in accepted[:3]:
        told = await verdict_on(channel, case, size(verifier), num_bonus_candidates=num_candidates)
        rows = rows_of(verifier.reference, case.prefix, case.tree)
        given = case.sampling, len(case.prefix), case.distributions
        expected = verify(case.tree, rows, *given, num_candidates)
        assert told.accepted_nodes == expected.accepted_nodes
        assert told.next_token == expected.next_token
        assert list(told.bonus.token_ids) == list(expected.bonus.token_ids)
        np.testing.assert_allclose(
            told.bonus.probabilities, expected.bonus.probabilities, rtol=1e-3, atol=1e-7
        )
        assert told.bonus.tail_mass == pytest.approx(expected.bonus.tail_mass, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("num_top", [0, 5])
async def test_log_probabilities(verifier, channel, num_top):
    if not verifier.can(MODEL_FEATURE_LOGPROBS):
        pytest.skip("is not claimed")
    for kind in ("greedy", "coupled"):
        case = next(case for case in cases(verifier)[kind] if case.expected.accepted_nodes)
        told = await verdict_on(channel, case, size(verifier), num_top_logprobs=num_top)
        path = case.expected.accepted_nodes, case.expected.next_token
        rows = rows_of(verifier.reference, case.prefix, case.tree)
        expected = logprobs_along(case.tree, rows, *path, num_top)
        for one, other in zip(told.logprobs, expected, strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=1e-3)
            assert one.top_token_ids == other.top_token_ids
            assert one.top_logprobs == pytest.approx(other.top_logprobs, abs=1e-3)


async def test_log_probabilities_of_all_nodes(verifier, channel):
    if not verifier.can(MODEL_FEATURE_NODE_LOGPROBS):
        pytest.skip("is not claimed")
    kind = "trees" if verifier.can(MODEL_FEATURE_TREES) else "greedy"
    case = next(case for case in cases(verifier)[kind] if len(case.tree) > 5)
    told = await verdict_on(channel, case, size(verifier), num_node_logprobs=2)
    rows = rows_of(verifier.reference, case.prefix, case.tree)
    expected = logprobs_of_nodes(case.tree, rows, 2)
    assert len(told.node_logprobs) == len(case.tree)
    for one, other in zip(told.node_logprobs, expected, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-3)
        assert one.top_token_ids == other.top_token_ids


@pytest.mark.parametrize("kind", ["greedy", "coupled", "trees"])
async def test_processed_logits(verifier, channel, kind):
    if not verifier.can(MODEL_FEATURE_LOGIT_PROCESSING) or kind not in cases(verifier):
        pytest.skip("is not claimed")
    for case in cases(verifier)[kind][:NUM_ALONE]:
        sampling = replace(case.sampling, **PROCESSED)
        rows = rows_of(verifier.reference, case.prefix, case.tree)
        processed = LogitProcessor(sampling, case.prefix).rows(rows, case.tree)
        expected = verify(case.tree, processed, sampling, len(case.prefix))
        asked = replace(case, sampling=sampling, expected=expected)
        assert await verdict_on(channel, asked, size(verifier)) == expected


async def test_what_is_not_claimed_is_refused_by_name(verifier, channel):
    """Answered otherwise it would be another text."""
    texts, reference = verifier.texts, verifier.reference
    unclaimed = {
        "TREES": (MODEL_FEATURE_TREES, lambda: trees(reference, texts, 3)[2]),
        "REJECTION_MODE": (
            MODEL_FEATURE_REJECTION_MODE,
            lambda: draws(reference, texts, 1, with_trees=False)[0],
        ),
    }
    for name, (feature, case) in unclaimed.items():
        if verifier.can(feature):
            continue
        status, reason, metadata = await refusal(verdict_on(channel, case(), size(verifier)))
        assert status is grpc.StatusCode.FAILED_PRECONDITION
        assert (reason, metadata["feature"]) == ("UNSUPPORTED_FEATURE", name)


def size(engine: Engine) -> int:
    return engine.info.vocab_size
