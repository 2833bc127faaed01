"""Simulated models, whose forward passes only take a set time, and whose tokens are known in
advance.

A forward pass waits, and the tokens come from ``decoding/simulated/hashed.py``. So the real
processes, gRPC, cancellation and scheduling run at any model's speed on a small machine.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate, pairwise

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain
from specmesh.decoding.simulated.hashed import SimulatedDrafter, SimulatedTarget, chained
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.engine.engine_metrics import record_forward
from specmesh.inference.model import (
    DEFAULT_ROOM_TOKENS,
    Cancellation,
    ForwardRequest,
    ForwardSize,
    Logits,
    ModelDescription,
    SequenceState,
)
from specmesh.inference.models.context.prefix_cache import PrefixCache
from specmesh.inference.models.digests import digest_of
from specmesh.inference.models.simulated.clock import CallClock, SimulatedProcessor, pass_time
from specmesh.inference.models.simulated.rows import KeptRows, logits_of
from specmesh.inference.models.simulated.tokenizer import simulated_tokenizer

CACHED_TOKENS = 1 << 22
CONTEXT_TOKENS = 1 << 20


@dataclass(frozen=True, slots=True)
class ForwardLatency:
    """The seconds of a forward pass: ``first_s`` for an uncached prefix (time to first token),
    ``each_s`` for any other, of any width; and ``token_s`` more for each uncached token of the
    prefix except its last."""

    first_s: float
    each_s: float
    token_s: float = 0.0


class SimulatedModel:
    """A ``LanguageModel`` without arithmetic; it caches the hashes after each token of a prefix.

    Requests that share a forward pass take as long as the one that would take longest alone.
    """

    pool = None

    def __init__(
        self,
        speaker: SimulatedTarget | SimulatedDrafter,
        latency: ForwardLatency,
        max_batch: int = 1,
    ) -> None:
        self.max_batch = max_batch
        if isinstance(speaker, SimulatedTarget):
            self._target, name, context_tokens = speaker, "simulated-target", CONTEXT_TOKENS
            self._choices: Choices = lambda state: (speaker.token(state),)
        else:
            self._target, name = speaker.target, f"simulated-drafter-{speaker.salt}"
            self._choices, context_tokens = speaker.choices, 0
        self.description = ModelDescription(
            name=name,
            vocab_size=self._target.vocab_size,
            context_tokens=context_tokens,
            end_of_text_ids=(),
            tokenizer_json=simulated_tokenizer(self._target.vocab_size).to_str(),
            num_parameters=0,
            backend="simulated",
            weights_digest=digest_of(backend="simulated", speaker=asdict(speaker)),
            interruptible=True,
        )
        self._latency = latency
        self._cache: PrefixCache[array[int]] = PrefixCache(CACHED_TOKENS)
        self._processor = SimulatedProcessor()
        self._rows = KeptRows(self._target.vocab_size)

    def open(
        self,
        prefix: Sequence[int],
        cancellation: Cancellation,
        room: int = DEFAULT_ROOM_TOKENS,  # noqa: ARG002
    ) -> SimulatedSequence:
        """Open a sequence whose forward passes wait for the simulated processor."""
        clock = CallClock(cancellation, self._processor)
        return SimulatedSequence(
            self._target, self._choices, self._cache, prefix, self._latency, clock
        )

    def forward(self, requests: Sequence[ForwardRequest]) -> list[Logits | None]:
        """Return the logits of all requests, after the time of the forward pass. They are valid
        until the next."""
        asked = [(_own(each.sequence), each.tree) for each in requests]
        return list(_score(asked, self._rows.write))

    def find_base(self, base_length: int, digest: bytes) -> PrefixChain | None:
        """Return the base if a recent prefix begins with it, else None."""
        return self._cache.find_base(base_length, digest)


Choices = Callable[[int], tuple[int, ...]]
"""Returns the likeliest tokens, one or two, after the context with that hash."""


class SimulatedSequence:
    """A ``SequenceState`` of hashes. An interrupted forward pass leaves it as it was."""

    def __init__(
        self,
        target: SimulatedTarget,
        choices: Choices,
        cache: PrefixCache[array[int]],
        prefix: Sequence[int],
        latency: ForwardLatency,
        clock: CallClock,
    ) -> None:
        self.cancellation = clock.cancellation
        self._choices = choices
        self._vocab_size = target.vocab_size
        self._cache = cache
        self._latency = latency
        self.clock = clock
        self._chain = PrefixChain(prefix)
        self._origin, self._shared = cache.longest(self._chain)
        if self._origin is None:
            self._states = array("Q", [target.start])
        else:
            self._states = cache.use(self._origin).state[: self._shared + 1]
        # The hash after each number of prefix tokens, from 0 on.
        last = self._states.pop()
        self._states.extend(accumulate(prefix[self._shared :], chained, initial=last))
        self._node_states = [self._states[-1]]
        self._tree = EMPTY
        self.num_rows = 0
        self.num_cached_tokens = min(self._shared, len(prefix) - 1)
        self._num_uncached = len(prefix) - 1 - self.num_cached_tokens
        self.num_computed_tokens = 0
        self.latest_forward = ForwardSize()

    def score(self, tree: TokenTree) -> Logits:
        """Return the logits of the new nodes, after waiting for the time of their forward pass."""
        (logits,) = _score([(self, tree)], partial(logits_of, vocab_size=self._vocab_size))
        return logits

    def size_of(self, num_rows: int) -> tuple[str, int]:
        """Return the kind of the next forward pass alone (as ``kind_of`` has them) and its tokens,
        if it is of ``num_rows`` new nodes."""
        num_unread = 0 if self.num_rows else self._num_uncached
        if num_unread >= BLOCK_TOKENS:
            return "prefill", num_unread + num_rows
        return "verify" if num_rows > 1 else "decode", num_unread + num_rows

    def seconds(self) -> float:
        """Return the time that the next forward pass takes alone."""
        if self.num_rows:
            return self._latency.each_s
        each_s = self._latency.first_s if self._is_cold() else self._latency.each_s
        return each_s + self._latency.token_s * self._num_uncached

    def prepare(self, tree: TokenTree) -> tuple[list[tuple[int, ...]], list[int]]:
        """Return what the next forward pass computes: the choices after the new nodes, and the
        hashes after all nodes."""
        states = self._node_states[:]
        for node in range(len(states), len(tree) + 1):
            states.append(chained(states[tree.parents[node - 1]], tree.token_ids[node - 1]))
        return [self._choices(state) for state in states[self.num_rows :]], states

    def extend(self, tree: TokenTree, states: list[int], forward: ForwardSize) -> None:
        """Take over what ``prepare`` has computed, now that the forward pass is over."""
        new = len(states) - self.num_rows
        self.num_computed_tokens += new if self.num_rows else new + self._num_uncached
        self._node_states, self._tree = states, tree
        self.num_rows, self.latest_forward = len(states), forward

    def hidden_at(self, node: int) -> Hidden:
        """Return the state that simulated heads begin from."""
        return Hidden(self._node_states[node], self.clock)

    def close(self, keep: Sequence[int]) -> None:
        """Cache the hashes of the prefix and of the path ``keep``."""
        if not self.num_rows:
            return
        self._chain.append(self._tree.tokens_on(keep))
        self._states.extend(self._node_states[node] for node in keep)
        self._cache.put(self._chain, self._states, self._origin, self._shared)

    def _is_cold(self) -> bool:
        """Return whether the prefix counts as not cached: less than a block of it is cached, and
        less than half of it. So prompts that only share their first letters count as different."""
        return self._shared < min(BLOCK_TOKENS, len(self._chain) / 2)


def _own(sequence: SequenceState) -> SimulatedSequence:
    assert isinstance(sequence, SimulatedSequence)
    return sequence


def _score(
    requests: Sequence[tuple[SimulatedSequence, TokenTree]],
    write: Callable[[Sequence[tuple[int, ...]]], Logits],
) -> list[Logits]:
    """Return the logits of each request's new nodes, which ``write`` returns for their choices,
    after one forward pass for all that have any."""
    prepared = [sequence.prepare(tree) for sequence, tree in requests]
    asking = [
        (sequence, tree, states)
        for (sequence, tree), (choices, states) in zip(requests, prepared, strict=True)
        if choices
    ]
    rows = write([each for choices, _ in prepared for each in choices])
    if asking:
        seconds = max(sequence.seconds() for sequence, _, _ in asking)
        began = time.perf_counter()
        pass_time([sequence.clock for sequence, _, _ in asking], seconds)
        duration_ms = (time.perf_counter() - began) * 1e3
        sizes = [each.size_of(len(states) - each.num_rows) for each, _, states in asking]
        kinds = {kind for kind, _ in sizes}
        kind = next(kind for kind in ("prefill", "verify", "decode") if kind in kinds)
        record_forward(duration_ms, kind, len(asking), sum(num for _, num in sizes))
    forward = ForwardSize(len(asking), len(rows))
    for sequence, tree, states in asking:
        sequence.extend(tree, states, forward)
    ends = accumulate(len(choices) for choices, _ in prepared)
    return [rows[start:end] for start, end in pairwise([0, *ends])]


@dataclass(frozen=True, slots=True)
class Hidden:
    """The state that simulated heads begin from: the hash of the context, and the clock of the
    call."""

    state: int
    clock: CallClock
