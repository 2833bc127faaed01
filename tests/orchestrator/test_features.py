"""What a replica of the target can't do is not asked of it: such a request is refused."""

from __future__ import annotations

import grpc
import pytest
from tests.orchestrator.answers import NUM_TOKENS, alone, collect, request
from tests.orchestrator.model import ALL_FEATURES, features_but
from tests.orchestrator.peers import Drafter, Verifier, raising

from specmesh.decoding.errors import InvalidField
from specmesh.serving.errors import error_info, invalid_field
from specmesh.v1 import model_pb2, sampling_pb2, served_model_pb2

REJECTION = {
    "temperature": 0.8,
    "seed": 11,
    "acceptance_mode": "ACCEPTANCE_MODE_REJECTION",
}
NEEDS = {
    "GRAMMARS": {"sampling": {"temperature": 0, "grammar": {"regex": "a"}}},
    "LOGIT_PROCESSING": {"sampling": {"temperature": 0, "repetition_penalty": 1.5}},
    "LOGPROBS": {"num_top_logprobs": 0},
    "REJECTION_MODE": {"sampling": REJECTION},
}
"""A request by the feature that it needs."""


class OldVerifier(Verifier):
    """A replica of the time before features: it silently leaves out what it doesn't know."""

    def __init__(self) -> None:
        super().__init__(features=[], protocol_revision=0)

    async def Verify(self, request, context):  # noqa: N802
        request.ClearField("num_top_logprobs")
        return await super().Verify(request, context)


@pytest.mark.parametrize(("feature", "fields"), NEEDS.items(), ids=list(NEEDS))
async def test_a_request_that_one_replica_could_not_serve_is_refused(
    connect, serve, feature, fields
):
    verifiers = [Verifier(), OldVerifier()]
    stub = await serve(await connect(verifiers, [Drafter()]))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await collect(stub.Generate(request(**fields)))
    info = error_info(raised.value)
    assert info is not None
    assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert (info.reason, info.metadata["feature"]) == ("UNSUPPORTED_FEATURE", feature)
    assert not any(verifier.requests for verifier in verifiers)
    # Other requests are served by both.
    assert (await collect(stub.Generate(request()))).tokens == alone(request().sampling)


async def test_a_replica_without_bonus_distributions_is_not_asked_for_any(connect, serve):
    others = [each for each in ALL_FEATURES if each != model_pb2.MODEL_FEATURE_BONUS_DISTRIBUTION]
    verifiers = [Verifier(), Verifier(features=others)]
    for verifier, other in (verifiers, verifiers[::-1]):  # so that both are asked
        verifier.faults.append(other.arrived.wait)
    stub = await serve(await connect(verifiers, [Drafter()]))
    asked = request(sampling=REJECTION, speculation={"strategy": "dsi"})
    assert len((await collect(stub.Generate(asked))).tokens) == NUM_TOKENS
    with_bonus, without = ([call.num_bonus_candidates for call in v.requests] for v in verifiers)
    assert any(with_bonus)
    assert without
    assert not any(without)


async def test_a_drafter_that_cannot_process_logits_drafts_without_that(connect, serve):
    drafter = Drafter(features=features_but(model_pb2.MODEL_FEATURE_LOGIT_PROCESSING))
    stub = await serve(await connect([Verifier()], [drafter]))
    asked = request(sampling={"temperature": 0.8, "seed": 4, "frequency_penalty": 1.5})
    assert (await collect(stub.Generate(asked))).tokens == alone(asked.sampling)
    assert drafter.requests
    for call in drafter.requests:
        assert {field.name for field, _ in call.sampling.ListFields()} <= {
            *("temperature", "seed", "acceptance_mode")
        }


@pytest.mark.parametrize("follows", [True, False])
async def test_a_drafter_gets_the_grammar_only_if_it_can_follow_one(connect, serve, follows):
    """The verifiers here follow none, so the answer is that of a request without."""
    able = ALL_FEATURES if follows else features_but(model_pb2.MODEL_FEATURE_GRAMMARS)
    drafter = Drafter(features=able)
    stub = await serve(await connect([Verifier()], [drafter]))
    asked = request(sampling={"temperature": 0.8, "seed": 4, "grammar": {"regex": "a"}})
    assert (await collect(stub.Generate(asked))).tokens == alone(
        sampling_pb2.SamplingParameters(temperature=0.8, seed=4)
    )
    assert drafter.requests
    assert {call.sampling.HasField("grammar") for call in drafter.requests} == {follows}


async def test_a_grammar_that_replicas_refuse_is_the_callers_fault(connect, serve):
    """The compiler is theirs; every other field was checked before."""
    wrong = InvalidField("sampling.grammar.regex", "unclosed group")

    verifiers = [Verifier(), Verifier()]
    for verifier in verifiers:
        (verifier.always,) = raising(wrong)
    stub = await serve(await connect(verifiers, [Drafter()]))
    asked = request(sampling={"temperature": 0, "grammar": {"regex": "("}})
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await collect(stub.Generate(asked))
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    told = invalid_field(raised.value)
    assert (told.field, told.reason) == (wrong.field, wrong.reason)


async def test_models_are_listed_with_what_every_replica_can_do(connect, serve):
    mesh = await connect([Verifier(), Verifier(features=[1, 3], protocol_revision=4)])
    stub = await serve(mesh)
    listed = await stub.ListModels(served_model_pb2.ListModelsRequest())
    (model,) = listed.models
    assert list(model.target.features) == [1, 3]
    assert model.target.protocol_revision == 1
