"""The wait of a verification while the replica reads a long prefix of another caller."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import grpc
import numpy as np
import torch

from specmesh.bench.engine.vllm.programs import CALL_SECONDS, GREEDY, SessionsLoad
from specmesh.decoding.prefix import SALT_BYTES
from specmesh.mesh.v1alpha1.tokens_pb2 import Prefix
from specmesh.mesh.v1alpha1.verifier_pb2 import VerifyRequest, VerifyResponse
from specmesh.mesh.v1alpha1.verifier_pb2_grpc import VerifierServiceStub
from specmesh.serving.codec.wire import write_sampling

_NUM_STEPS = 2
"""Number of maximal steps that the prefix takes, if the texts are that long."""
_SHORT_TOKENS = 64
_NUM_WAITS = 80
_NUM_ALONE = 20


@dataclass(frozen=True, slots=True)
class PrefixWaits:
    """The milliseconds, over gRPC, of verifications without draft that arrive at any time while a
    new prefix of ``num_prefix_tokens`` is read."""

    num_prefix_tokens: int
    step_ms: float
    """Median time of the longest step."""
    alone_ms: float
    """Median time of a verification while nothing else is computed."""
    queued_ms: float
    """Median time until its own forward begins."""
    longest_queued_ms: float
    answered_ms: float
    """Median time until it is answered."""
    longest_answered_ms: float


def measure_waits(load: SessionsLoad, address: str) -> PrefixWaits:
    """Measure the verifier at ``address``, which must be idle otherwise."""
    from specmesh.inference.models.vllm.model import step_tokens_on

    size = step_tokens_on(torch.device(load.plan.device).type)
    calls = _Asking(address, load.texts[0], _NUM_STEPS * size)
    alone = [calls.verify()[1] for _ in range(_NUM_ALONE)]
    steps = [calls.read(size) for _ in range(_NUM_ALONE)]
    step_ms = median(steps)
    reading_ms = median(calls.read(calls.num_prefix_tokens) for _ in range(_NUM_ALONE))
    rng = np.random.default_rng(load.plan.seed)
    waits = [calls.wait(rng.uniform(0, reading_ms)) for _ in range(_NUM_WAITS)]
    queued, answered = zip(*waits, strict=True)
    return PrefixWaits(
        num_prefix_tokens=calls.num_prefix_tokens,
        step_ms=step_ms,
        alone_ms=median(alone),
        queued_ms=median(queued),
        longest_queued_ms=max(queued),
        answered_ms=median(answered),
        longest_answered_ms=max(answered),
    )


class _Asking:
    """A session, and prefixes of other callers, nothing of which is cached."""

    def __init__(self, address: str, text: Sequence[int], num_prefix_tokens: int) -> None:
        self._stub = VerifierServiceStub(grpc.insecure_channel(address))
        self._text = text
        self.num_prefix_tokens = min(num_prefix_tokens, len(text))

    def verify(self) -> tuple[float, float]:
        """Verify for the session; return how long it was queued, and how long it took."""
        request = _request(Prefix(token_ids=self._text[:_SHORT_TOKENS]))
        began = time.perf_counter()
        response = self._stub.Verify(request, timeout=CALL_SECONDS)
        return response.cost.queue_ms, (time.perf_counter() - began) * 1e3

    def read(self, num_tokens: int) -> float:
        """Return the time to read a new prefix of ``num_tokens``."""
        response: VerifyResponse = self._begin(num_tokens).result()
        return response.cost.forward_ms

    def wait(self, after_ms: float) -> tuple[float, float]:
        """Return the times of ``verify``, called ``after_ms`` after a new prefix has come."""
        reading = self._begin(self.num_prefix_tokens)
        time.sleep(after_ms / 1e3)
        found = self.verify()
        reading.result()
        return found

    def _begin(self, num_tokens: int) -> Any:
        prefix = Prefix(token_ids=self._text[:num_tokens], salt=os.urandom(SALT_BYTES))
        return self._stub.Verify.future(_request(prefix), timeout=CALL_SECONDS)


def _request(prefix: Prefix) -> VerifyRequest:
    return VerifyRequest(prefix=prefix, sampling=write_sampling(GREEDY))
