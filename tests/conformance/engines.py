"""Engines behind Verify or Draft, known by their address alone, and what each must say."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, cycle, islice
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.conformance.cases import Tokens
from tokenizers import Tokenizer

from specmesh import models
from specmesh.decoding.simulated.hashed import SimulatedDrafter, SimulatedTarget
from specmesh.inference.model import LanguageModel
from specmesh.inference.models.simulated.model import ForwardLatency, SimulatedModel
from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.mesh.v1alpha1 import model_service_pb2, model_service_pb2_grpc
from specmesh.v1 import model_pb2

SERVICES = {
    role: f"specmesh.mesh.v1alpha1.{role.capitalize()}Service" for role in ("verifier", "drafter")
}
NUM_TEXTS = 8
TEXT_TOKENS = 300
ANSWER_SECONDS = 60.0

FEW_CASES = 34
"""For engines that other tests try as well."""
ALL_CASES = 500


@dataclass(frozen=True, slots=True, eq=False)
class Engine:
    """A process that serves a model, and the same model as a reference.

    ``texts`` are what it may have to read; of random cases it gets ``num_cases``.
    """

    address: str
    info: model_pb2.ModelInfo
    reference: LanguageModel
    texts: Sequence[Tokens]
    num_cases: int

    def can(self, feature: model_pb2.ModelFeature.ValueType) -> bool:
        """Whether it says so."""
        return feature in self.info.features

    def text_of(self, length: int) -> Tokens:
        """A text of so many tokens, or of as many as its context holds."""
        limit = min(length, self.info.context_tokens or length)
        return tuple(islice(chain.from_iterable(cycle(self.texts)), limit))


def engine_at(
    address: str, role: str, reference: LanguageModel, num_cases: int = ALL_CASES
) -> Engine:
    """What serves ``role`` at ``address``."""
    with grpc.insecure_channel(address) as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        asked = model_service_pb2.GetModelRequest()
        info = stub.GetModel(asked, timeout=ANSWER_SECONDS).model
        pieces = stub.GetTokenizer(model_service_pb2.GetTokenizerRequest(), timeout=ANSWER_SECONDS)
        tokenizer_json = b"".join(piece.data for piece in pieces)
    assert info.dtype in {"", "float32"}, "equality is for float32: serve the model in that"
    assert info.vocab_size == reference.description.vocab_size, (
        f"{info.name!r} has {info.vocab_size} tokens, the reference "
        f"{reference.description.vocab_size}: --model names the folder of the model it serves"
    )
    return Engine(address, info, reference, _texts(info, tokenizer_json), num_cases)


@cache
def load(folder: Path) -> TransformersModel:
    """The reference: our own engine, one token at a time."""
    return TransformersModel.load(str(folder), dtype="float32", device="cpu")


@cache
def simulated(role: str) -> SimulatedModel:
    """What a simulated model of the default settings says."""
    target = SimulatedTarget()
    speaker = target if role == "verifier" else SimulatedDrafter(target, acceptance=0.8)
    return SimulatedModel(speaker, ForwardLatency(0, 0))


@cache
def roles_at(address: str) -> frozenset[str]:
    """Which roles are served there, by the health that orchestrators watch; waits for the first,
    and ends the run if none comes."""
    until = time.monotonic() + ANSWER_SECONDS
    with grpc.insecure_channel(address) as channel:
        while time.monotonic() < until:
            if roles := frozenset(role for role in SERVICES if _serves(channel, role)):
                return roles
            time.sleep(0.2)
    pytest.exit(f"nothing at {address} says that it serves Verify or Draft", returncode=2)


def _serves(channel: grpc.Channel, role: str) -> bool:
    request = health_pb2.HealthCheckRequest(service=SERVICES[role])
    stub = health_pb2_grpc.HealthStub(channel)
    try:
        health = stub.Check(request, timeout=ANSWER_SECONDS)
    except grpc.RpcError:
        return False
    return bool(health.status == health_pb2.HealthCheckResponse.SERVING)


def _texts(info: model_pb2.ModelInfo, tokenizer_json: bytes) -> list[Tokens]:
    """Texts as its own tokenizer reads them; of a model that works on any ids, random ones."""
    length = min(TEXT_TOKENS, info.context_tokens // 2 or TEXT_TOKENS)
    number = NUM_TEXTS * length
    if tokenizer_json:
        text = "\n\n".join(prompt.text for prompt in models.heldout_prompts())
        tokens = Tokenizer.from_str(tokenizer_json.decode()).encode(text).ids
    else:
        tokens = np.random.default_rng(3).integers(0, info.vocab_size, number).tolist()
    assert len(tokens) >= number
    return [tuple(tokens[start : start + length]) for start in range(0, number, length)]
