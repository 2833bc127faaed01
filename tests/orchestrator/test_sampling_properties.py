"""Any strategy, any sampling parameters, replicas that fail: the target's own text, and the same
from an answer that is carried on."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.orchestrator.answers import PROMPT_IDS, alone, collect, request
from tests.orchestrator.model import END_OF_TEXT
from tests.orchestrator.peers import Drafter, Verifier, raising

from specmesh.orchestrator.strategies import LOSSLESS
from specmesh.serving.errors import UnavailableStatus
from specmesh.v1 import generation_pb2, sampling_pb2

NUM_TOKENS = 24
NUM_DRAWN = 6


def drawn(seed: int) -> dict[str, Any]:
    """Random sampling parameters, about half of those that there are."""
    rng = random.Random(seed)
    # Ids that answers have: the target of these tests makes all of them likely somewhere.
    tokens = [rng.randrange(1, 300) for _ in range(60)]
    any_of = {
        "top_k": rng.randrange(2, 60),
        "top_p": rng.uniform(0.3, 1),
        "min_p": rng.uniform(0, 0.2),
        "typical_p": rng.uniform(0.3, 1),
        "repetition_penalty": rng.uniform(0.5, 2),
        "presence_penalty": rng.uniform(-2, 2),
        "frequency_penalty": rng.uniform(-2, 2),
        "logit_bias": {token: rng.uniform(-9, 9) for token in tokens[:8]},
        "banned_token_ids": tokens[8:30],
        "banned_sequences": [{"token_ids": [token]} for token in tokens[30:40]],
        "min_tokens": rng.randrange(1, NUM_TOKENS),
        "num_prompt_tokens": rng.randrange(1, len(PROMPT_IDS)),
    }
    chosen = {name: value for name, value in any_of.items() if rng.random() < 0.5}
    if rng.random() < 0.3:
        chosen["allowed_token_ids"] = [token for token in tokens if token != END_OF_TEXT]
        chosen.pop("banned_token_ids", None)
    temperature = rng.choice([0.0, 0.7, 1.3])
    return {**chosen, "temperature": temperature, "seed": rng.randrange(2**53)}


def expected(sampling: dict[str, Any]) -> list[int]:
    """Return the target's tokens on its own, and the reason why they end."""
    message = sampling_pb2.SamplingParameters(**sampling)
    if "min_tokens" in sampling:
        message.end_token_ids.append(END_OF_TEXT)
    return alone(message, NUM_TOKENS)


def asked(strategy: str, sampling: dict[str, Any], **fields: Any) -> generation_pb2.GenerateRequest:
    return request(
        **{
            "sampling": sampling,
            "stopping": {"max_tokens": NUM_TOKENS},
            "speculation": {"strategy": strategy, "lookahead": 4},
            **fields,
        }
    )


def failing(seed: int) -> list[Any]:
    """Some errors among calls that go well."""
    rng = random.Random(seed)
    return [
        *raising(*[UnavailableStatus("GONE", "gone") for _ in range(rng.randrange(1, 4))]),
    ]


@pytest.mark.parametrize("seed", range(NUM_DRAWN))
@pytest.mark.parametrize("strategy", LOSSLESS)
async def test_the_text_is_the_targets_own_whatever_fails(connect, serve, strategy, seed):
    sampling = drawn(seed)
    verifiers, drafter = [Verifier(), Verifier()], Drafter()
    verifiers[seed % 2].faults += failing(seed)
    drafter.faults += failing(seed + 1)
    stub = await serve(await connect(verifiers, [drafter]))
    answer = await collect(stub.Generate(asked(strategy, sampling)))
    assert answer.tokens == expected(sampling), sampling
    # Carried on behind what a client has, without a store.
    received = {"token_ids": answer.tokens[:7]}
    rest = await collect(stub.Generate(asked(strategy, sampling, received=received)))
    assert rest.tokens == answer.tokens[7:]
