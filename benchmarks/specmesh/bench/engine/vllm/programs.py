"""The programs: vLLM as it decodes by itself, vLLM as our verifier uses it, and our engine.

Each is kept in its own process between its turns.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import grpc
import torch

from specmesh.bench.engine.plan import EnginePlan
from specmesh.bench.engine.vllm.sessions import NUM_TEXT_TOKENS, WARM_UP, Ask, session
from specmesh.decoding.acceptance import verify
from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.model import Cancellation, ForwardRequest, LanguageModel, ModelNotLoadable
from specmesh.mesh.v1alpha1.tokens_pb2 import Prefix
from specmesh.mesh.v1alpha1.verifier_pb2 import VerifyRequest
from specmesh.mesh.v1alpha1.verifier_pb2_grpc import VerifierServiceStub
from specmesh.serving.codec.wire import write_sampling, write_tree

GREEDY = Sampling(temperature=0, mode=AcceptanceMode.GREEDY)
CALL_SECONDS = 60.0
CACHE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class SessionsLoad:
    """The load of a program: sessions that begin with ``num_prompt_tokens`` of each of
    ``texts``."""

    plan: EnginePlan
    texts: list[list[int]]
    num_prompt_tokens: list[int]


class EngineProgram(Protocol):
    """A program that computes rounds for concurrent sessions."""

    def times_ms(self, num_sessions: int, num_draft_tokens: int, num_rounds: int) -> list[float]:
        """Return the times of the next rounds, without the first ones of all, which warm up."""
        ...


class _Rounds:
    """The sessions of a program, by their number and their draft tokens."""

    def __init__(self, load: SessionsLoad) -> None:
        self._load = load
        self._rounds: dict[tuple[int, int], Iterator[tuple[Ask, ...]]] = {}

    def times_ms(self, num_sessions: int, num_draft_tokens: int, num_rounds: int) -> list[float]:
        """Return the times of rounds, as ``EngineProgram`` describes."""
        key = (num_sessions, num_draft_tokens)
        if key not in self._rounds:
            starts = list(zip(self._load.texts, self._load.num_prompt_tokens, strict=True))
            self._rounds[key] = zip(
                *(
                    session(text, length, num_draft_tokens, (number, num_draft_tokens))
                    for number, (text, length) in enumerate(starts[:num_sessions])
                ),
                strict=True,
            )
            for asked in islice(self._rounds[key], WARM_UP):
                self._verify(asked)
        return [self._verify(asked) for asked in islice(self._rounds[key], num_rounds)]

    @abstractmethod
    def _verify(self, asked: Sequence[Ask]) -> float:
        """Verify all of them together; return the time in milliseconds."""


class Verifying(_Rounds):
    """Verifications as on the thread of a verifier's engine: from tokens to verdicts, without
    gRPC."""

    def __init__(self, load: SessionsLoad, model: LanguageModel) -> None:
        super().__init__(load)
        self._model = model

    def _verify(self, asked: Sequence[Ask]) -> float:
        chains = [PrefixChain(each.prefix) for each in asked]  # Calls name most of it by digest.
        trees = [_tree(each) for each in asked]
        began = time.perf_counter()
        sequences = [
            self._model.open(chain, Cancellation(), len(tree))
            for chain, tree in zip(chains, trees, strict=True)
        ]
        waiting = dict(enumerate(map(ForwardRequest, sequences, trees)))
        while waiting:
            results = zip(list(waiting), self._model.forward(list(waiting.values())), strict=True)
            for number, logits in results:
                if logits is not None:
                    del waiting[number]
                    verify(trees[number], logits, GREEDY, len(chains[number]))
                    sequences[number].close(range(1, asked[number].num_kept + 1))
        return (time.perf_counter() - began) * 1e3


class Calling(_Rounds):
    """Verifications as callers get them from a verifier over gRPC, with one call per session."""

    def __init__(self, load: SessionsLoad, address: str) -> None:
        super().__init__(load)
        self._stub = VerifierServiceStub(grpc.insecure_channel(address))

    def _verify(self, asked: Sequence[Ask]) -> float:
        requests = [
            VerifyRequest(
                prefix=Prefix(token_ids=each.prefix),
                tree=write_tree(_tree(each)),
                sampling=write_sampling(GREEDY),
            )
            for each in asked
        ]
        began = time.perf_counter()
        calls = [self._stub.Verify.future(request, timeout=CALL_SECONDS) for request in requests]
        for call in calls:
            call.result()
        return (time.perf_counter() - began) * 1e3


def _tree(ask: Ask) -> TokenTree:
    return TokenTree.chain(ask.draft) if ask.draft else EMPTY


class Decoding:
    """vLLM alone: a step of its engine core greedily gives each session its next token."""

    def __init__(self, load: SessionsLoad) -> None:
        from vllm.v1.engine.core import EngineCore
        from vllm.v1.executor.abstract import Executor

        from specmesh.inference.models.vllm.options import engine_config

        self._load = load
        config = engine_config(_options(load.plan))
        self._core = EngineCore(config, Executor.get_class(config), log_stats=False)
        self._num_begun = 0

    def times_ms(self, num_sessions: int, num_draft_tokens: int, num_rounds: int) -> list[float]:
        """Return the times of rounds, as ``EngineProgram`` describes; a step has no draft
        tokens."""
        assert not num_draft_tokens
        if num_sessions != self._num_begun:
            self._begin(num_sessions)
        return [self._step() for _ in range(num_rounds)]

    def _begin(self, num_sessions: int) -> None:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        scheduler = self._core.scheduler
        self._core.abort_requests(list(scheduler.requests))
        self._num_begun = num_sessions
        params = SamplingParams(temperature=0, max_tokens=NUM_TEXT_TOKENS, ignore_eos=True)
        prompts = zip(self._load.texts, self._load.num_prompt_tokens, strict=True)
        for number, (text, length) in enumerate(list(prompts)[:num_sessions]):
            name = f"{num_sessions}, {number}"
            hasher = self._core.request_block_hasher
            self._core.add_request(Request(name, text[:length], params, None, block_hasher=hasher))
        while any(request.num_output_tokens < WARM_UP for request in scheduler.requests.values()):
            self._step()
        if len(scheduler.running) < num_sessions:
            raise ModelNotLoadable(
                f"vLLM decodes {len(scheduler.running)} of {num_sessions} sessions at a time: "
                "there is too little memory for the KV of so many --streams"
            )

    def _step(self) -> float:
        began = time.perf_counter()
        self._core.step()
        return (time.perf_counter() - began) * 1e3


_program: list[EngineProgram] = []  # The program of this process.


def start_decoding(load: SessionsLoad) -> None:
    """Make this process run vLLM alone."""
    _use(load.plan)
    _program.append(Decoding(load))


def start_vllm(load: SessionsLoad) -> None:
    """Make this process verify with vLLM."""
    from specmesh.inference.models.vllm.model import VllmModel

    plan = load.plan
    _use(plan)
    model = VllmModel.load(
        plan.model,
        dtype=plan.dtype,
        device=plan.device,
        num_threads=plan.threads,
        cache_bytes=CACHE_BYTES,
        tensor_parallel=1,
        chat_template=None,
    )
    _program.append(Verifying(load, model))


def start_ours(load: SessionsLoad) -> None:
    """Make this process verify with our engine."""
    from specmesh.inference.models.transformers_model import TransformersModel

    plan = load.plan
    _use(plan)
    model = TransformersModel.load(
        plan.model, dtype=plan.dtype, device=plan.device, cache_bytes=CACHE_BYTES
    )
    _program.append(Verifying(load, model))


def _use(plan: EnginePlan) -> None:
    logging.disable(logging.WARNING)  # vLLM logs a lot as it loads.
    torch.set_num_threads(plan.threads)


def start_calls(load: SessionsLoad, address: str) -> None:
    """Make this process call the verifier at ``address``."""
    _program.append(Calling(load, address))


def turn(num_sessions: int, num_draft_tokens: int, num_rounds: int) -> list[float]:
    """Run rounds of this process's program; return the milliseconds of each."""
    return _program[0].times_ms(num_sessions, num_draft_tokens, num_rounds)


def _options(plan: EnginePlan) -> Any:
    """Return vLLM's options, as the verifier sets them."""
    from specmesh.inference.models.vllm.model import CHUNK_TOKENS, batch_on, step_tokens_on
    from specmesh.inference.models.vllm.options import CoreOptions

    device_type = torch.device(plan.device).type
    return CoreOptions(
        model=plan.model,
        dtype=plan.dtype,
        device_type=device_type,
        context_tokens=NUM_TEXT_TOKENS,
        cache_bytes=CACHE_BYTES,
        max_batch=batch_on(device_type),
        step_tokens=step_tokens_on(device_type),
        chunk_tokens=CHUNK_TOKENS,
        tensor_parallel=1,
        num_threads=plan.threads,
    )
