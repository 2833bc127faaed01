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
from itertools import accumulate

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain
from specmesh.decoding.simulated.hashed import SimulatedDrafter, SimulatedTarget, chained
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.model import (
    DEFAULT_ROOM_TOKENS,
    Cancellation,
    ForwardRequest,
    ForwardSize,
    Interrupted,
    Logits,
    ModelDescription,
    score_alone,
)
from specmesh.inference.models.digests import digest_of
from specmesh.inference.models.prefix_cache import PrefixCache

CACHED_TOKENS = 1 << 18
CONTEXT_TOKENS = 1 << 20

WAKE_UP_S = 0.5e-3
"""The time before a deadline at which the waiting thread first wakes."""

CHOICE_LOGITS = np.array([0, -45, -100], dtype=np.float32)
"""The logits of the first choice, the second, and every other token. At temperature 2 noise lifts
the second over the first with probability 2e-10, and one of 254 others over the second with
3e-10."""


@dataclass(frozen=True, slots=True)
class ForwardLatency:
    """The seconds of a forward pass: ``first_s`` for an uncached prefix (time to first token),
    ``each_s`` for any other, of any width; and ``token_s`` more for each uncached token of the
    prefix except its last."""

    first_s: float
    each_s: float
    token_s: float = 0.0


class SimulatedModel:
    """A ``LanguageModel`` without arithmetic; it caches the hashes after each token of a prefix."""

    max_batch = 1
    pool = None

    def __init__(
        self,
        speaker: SimulatedTarget | SimulatedDrafter,
        latency: ForwardLatency,
    ) -> None:
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
        self._processor = _Processor()

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
        """Return the logits of the one request, after the time of the forward pass."""
        return score_alone(requests)

    def find_base(self, base_length: int, digest: bytes) -> PrefixChain | None:
        """Return the base if a recent prefix begins with it, else None."""
        return self._cache.find_base(base_length, digest)


Choices = Callable[[int], tuple[int, ...]]
"""Returns the likeliest tokens, one or two, after the context with that hash."""


class SimulatedSequence:
    """A ``SequenceState`` of hashes. An interrupted ``score`` leaves it as it was."""

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
        self._clock = clock
        self._chain = PrefixChain(prefix)
        self._origin, self._shared = cache.longest(self._chain)
        self._states = array("Q", [target.start])
        """The hash after each number of prefix tokens, from 0 on."""
        if self._origin is not None:
            self._states = cache.use(self._origin).state[: self._shared + 1]
        last = self._states.pop()
        self._states.extend(accumulate(prefix[self._shared :], chained, initial=last))
        self._node_states = [self._states[-1]]
        self._tree = EMPTY
        self._num_rows = 0
        self.num_cached_tokens = min(self._shared, len(prefix) - 1)
        self.num_computed_tokens = 0
        self.latest_forward = ForwardSize()

    def score(self, tree: TokenTree) -> Logits:
        """Return the logits of the new nodes, after waiting for the time of their forward pass."""
        first_row, num_rows = self._num_rows, len(tree) + 1
        if num_rows == first_row:
            return np.empty((0, self._vocab_size), np.float32)
        seconds = self._latency.each_s
        if not first_row and self._is_cold():
            seconds = self._latency.first_s
        if not first_row:
            seconds += self._latency.token_s * self._num_uncached
        states = self._node_states[:]
        for node in range(len(states), num_rows):
            states.append(chained(states[tree.parents[node - 1]], tree.token_ids[node - 1]))
        rows = self._rows(states[first_row:])
        self._clock.pass_time(seconds)
        self._node_states, self._tree, self._num_rows = states, tree, num_rows
        new = num_rows - first_row
        self.latest_forward = ForwardSize(1, new)
        if not first_row:
            new += self._num_uncached
        self.num_computed_tokens += new
        return rows

    def hidden_at(self, node: int) -> Hidden:
        """Return the state that simulated heads begin from."""
        return Hidden(self._node_states[node], self._clock)

    def close(self, keep: Sequence[int]) -> None:
        """Cache the hashes of the prefix and of the path ``keep``."""
        if not self._num_rows:
            return
        self._chain.append(self._tree.tokens_on(keep))
        self._states.extend(self._node_states[node] for node in keep)
        self._cache.put(self._chain, self._states, self._origin, self._shared)

    @property
    def _num_uncached(self) -> int:
        return len(self._chain) - self.num_cached_tokens - 1

    def _is_cold(self) -> bool:
        """Return whether the prefix counts as not cached: less than a block of it is cached, and
        less than half of it. So prompts that only share their first letters count as different."""
        return self._shared < min(BLOCK_TOKENS, len(self._chain) / 2)

    def _rows(self, states: Sequence[int]) -> Logits:
        return logits_of([self._choices(state) for state in states], self._vocab_size)


def logits_of(choices: Sequence[tuple[int, ...]], vocab_size: int) -> Logits:
    """Return rows of logits that make ``choices`` the likeliest tokens, the first ones
    likeliest."""
    rows = np.full((len(choices), vocab_size), CHOICE_LOGITS[-1], np.float32)
    for row, tokens in enumerate(choices):
        for rank, token in enumerate(tokens):
            rows[row, token] = CHOICE_LOGITS[rank]
    return rows


@dataclass(frozen=True, slots=True)
class Hidden:
    """The state that simulated heads begin from: the hash of the context, and the clock of the
    call."""

    state: int
    clock: CallClock


@dataclass(slots=True)
class _Processor:
    """The simulated processor, which runs one forward pass at a time."""

    free_since_s: float = 0.0


class CallClock:
    """A clock for successive forward passes, each ending at an absolute time.

    The first begins when the call has arrived and the processor is free. Time spent between two
    forward passes counts as part of the second, so that delays do not add up.
    """

    def __init__(self, cancellation: Cancellation, processor: _Processor) -> None:
        self.cancellation = cancellation
        self._processor = processor
        self._ended = max(cancellation.arrived_s, processor.free_since_s)

    def pass_time(self, seconds: float) -> None:
        """Return once a forward pass of ``seconds`` that follows the one before is over.

        Returns immediately if that time has passed. If it has passed by more than another forward
        pass, the consumer was stalled, and the pass begins now. Raises ``Interrupted``.
        """
        now = time.perf_counter()
        self._ended += seconds
        if now - self._ended > seconds:
            self._ended = now + seconds
        # A core that has slept long wakes late, so it is woken a moment earlier.
        for until in (self._ended - WAKE_UP_S, self._ended):
            wait = max(0.0, until - time.perf_counter())
            if self.cancellation.wait(wait):
                self._processor.free_since_s = time.perf_counter()
                raise Interrupted
        self._processor.free_since_s = self._ended


def simulated_tokenizer(vocab_size: int) -> Tokenizer:
    """Return a tokenizer with one token for each byte of a text; ASCII decodes to itself.

    Every token decodes to something printable, so that an answer does not harm a terminal: bytes
    beyond ASCII stay in the alphabet of byte-level tokenizers. A vocabulary too small for all bytes
    lacks the rarer ones (its last token stands for them); a larger one has tokens that occur in no
    text.
    """
    # "Ġ" is the space, "Ċ" the newline, "ĉ" the tab.
    spelt = sorted(
        pre_tokenizers.ByteLevel.alphabet(), key=lambda letter: (letter not in "ĠĊ", letter)
    )
    entries = [*spelt, *(f"<{number}>" for number in range(len(spelt), vocab_size))][:vocab_size]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={entry: number for number, entry in enumerate(entries)},
            merges=[],
            unk_token=entries[-1],
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.Sequence(
        [
            *(decoders.Replace(letter, text) for letter, text in zip("ĠĊĉ", " \n\t", strict=True)),
            decoders.Fuse(),
        ]
    )
    return tokenizer
