"""The tokens after a verdict are those that a call for each would bring."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import pytest
from tests.conformance.calls import TIMEOUT_S, answers, request, request_of, verify, whole
from tests.conformance.cases import PROCESSED, Case
from tests.conformance.engines import Engine
from tests.conformance.test_exactness import cases

from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.trees.tree import EMPTY
from specmesh.mesh.v1alpha1 import verifier_pb2, verifier_pb2_grpc
from specmesh.v1.model_pb2 import MODEL_FEATURE_FURTHER_TOKENS, MODEL_FEATURE_MANY_REQUESTS

NUM_FURTHER = 9


@pytest.fixture(autouse=True)
def _claimed(verifier):
    if not verifier.can(MODEL_FEATURE_FURTHER_TOKENS):
        pytest.skip("is not claimed")


@dataclass(frozen=True, slots=True)
class Text:
    """A continuation of a prefix by the target alone."""

    prefix: tuple[int, ...]
    sampling: Sampling
    tokens: tuple[int, ...]

    @property
    def request(self) -> verifier_pb2.VerifyRequest:
        """Ask for all of them by one request."""
        num_further = len(self.tokens) - 1
        return request(whole(self.prefix), EMPTY, self.sampling, num_further_tokens=num_further)


def texts(engine: Engine) -> list[Text]:
    """Return those of the reference where a draft was right throughout."""
    found = [each for kind in ("greedy", "coupled") for each in cases(engine)[kind]]
    return [
        _said(case) for case in found if len(case.expected.accepted_nodes) == len(case.tree) > 2
    ]


def _said(case: Case) -> Text:
    return Text(case.prefix, case.sampling, (*case.tree.token_ids, case.expected.next_token))


async def tokens_of(channel, message) -> tuple[int, ...]:
    """Return what one request brings, and others where it ends early, as an orchestrator would."""
    asked, tokens = 1 + message.num_further_tokens, []
    while len(tokens) < asked:
        rest = verifier_pb2.VerifyRequest()
        rest.CopyFrom(message)
        rest.prefix.token_ids.extend(tokens)
        rest.num_further_tokens = asked - len(tokens) - 1
        tokens += [each.next_token_id async for each in answers(channel, rest)]
    return tuple(tokens)


async def test_alone(verifier, channel):
    for text in texts(verifier)[:6]:
        assert await tokens_of(channel, text.request) == text.tokens


async def test_in_company(verifier, channel):
    asked = [each for each in texts(verifier) for _ in range(2)][:24]
    told = await asyncio.gather(*(tokens_of(channel, each.request) for each in asked))
    assert told == [each.tokens for each in asked]


async def test_many_on_one_call(verifier, channel):
    if not verifier.can(MODEL_FEATURE_MANY_REQUESTS):
        pytest.skip("is not claimed")
    asked = texts(verifier)[:16]
    call = verifier_pb2_grpc.VerifierServiceStub(channel).VerifyMany(timeout=TIMEOUT_S)
    message = verifier_pb2.VerifyManyRequest()
    for number, text in enumerate(asked):
        message.requests.add(number=number).request.request.CopyFrom(text.request)
    await call.write(message)
    told: list[list[int]] = [[] for _ in asked]
    left = set(range(len(asked)))
    while left:
        for each in (await call.read()).responses:
            told[each.number].append(each.response.response.next_token_id)
            if not each.response.response.has_more:
                left.remove(each.number)
    for text, tokens in zip(asked, told, strict=True):
        assert tuple(tokens) == text.tokens[: len(tokens)]
    assert any(len(tokens) > 2 for tokens in told)
    call.cancel()


@pytest.mark.parametrize("settings", [{}, PROCESSED], ids=["plain", "processed"])
@pytest.mark.parametrize("mode", [AcceptanceMode.COUPLED, AcceptanceMode.REJECTION])
async def test_drawn_as_by_a_call_for_each(verifier, channel, mode, settings):
    """They have the same log-probabilities, too."""
    prefix = list(verifier.texts[0][:50])
    sampling = Sampling(temperature=0.9, seed=17, mode=mode, **settings)
    message = request(whole(prefix), EMPTY, sampling, num_top_logprobs=3)
    message.num_further_tokens = NUM_FURTHER
    told = [each async for each in answers(channel, message)]
    text = list(prefix)
    for each in told:
        alone = await verify(channel, request(whole(text), EMPTY, sampling, num_top_logprobs=3))
        assert each.next_token_id == alone.next_token_id
        assert each.logprobs[0].logprob == pytest.approx(alone.logprobs[0].logprob, abs=1e-3)
        assert each.logprobs[0].top_token_ids == alone.logprobs[0].top_token_ids
        text.append(each.next_token_id)
    assert [each.has_more for each in told] == [True] * (len(told) - 1) + [False]


async def test_they_end_with_the_context(verifier, channel):
    limit = verifier.info.context_tokens
    if not limit or limit > 4096:
        pytest.skip(f"a context of {limit} tokens")
    text = verifier.texts[0]
    prefix = [*text * (limit // len(text) + 1)][: limit - 3]
    message = request(whole(prefix), EMPTY, num_further_tokens=NUM_FURTHER)
    told = [each async for each in answers(channel, message)]
    assert len(told) <= 4
    assert not told[-1].has_more


async def test_by_verify_there_are_none(verifier, channel):
    case = cases(verifier)["greedy"][0]
    message = request_of(replace(case, tree=EMPTY), num_further_tokens=3)
    assert not (await verify(channel, message)).has_more
