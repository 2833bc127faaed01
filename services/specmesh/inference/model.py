"""The interface that every model implements, real or simulated."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from specmesh.decoding.own_tokens import OwnTokens
from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.engine.kv_counts import KvCounts
from specmesh.serving.templates.chat_template import ChatTemplate

Logits = npt.NDArray[np.float32]
"""``[rows, vocab]``; a row of −inf throughout means that the model has no guess."""


class ModelNotLoadable(Exception):
    """The named model cannot be loaded; the message says what was tried."""


def check_revision(name: str, revision: str | None) -> None:
    """Raise ``ModelNotLoadable`` for a ``revision`` of a folder: only the hub has revisions."""
    if revision is not None and Path(name).exists():
        raise ModelNotLoadable(f"--revision is for Hugging Face ids, but {name!r} is a folder")


class DeviceLost(Exception):
    """The device has failed and lost all that it held: no forward pass will succeed any more."""


class Interrupted(Exception):
    """A forward pass was abandoned because nobody wants its result any more."""


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """The facts that peers must know before they send requests (``ModelInfo`` on the wire).

    ``tokenizer_json`` is empty for models that work on any token ids; ``context_tokens`` is 0 for
    models without a limit. Models with equal ``weights_digest`` and ``dtype`` give the same answers
    (see ``digests.py``); ``dtype`` is empty for models without weights. ``revision`` is the Hugging
    Face commit, if known, and ``chat_template`` is None for a model without one. ``interruptible``:
    a forward pass can stop in the middle once nobody wants its result. ``heads_depth`` is the depth
    in tokens to which its heads draft, 0 for a model without heads. ``scores_trees`` is False for
    models that score only chains. ``kv_capacity_tokens`` is the capacity of the KV cache, for a
    model without a ``pool`` that reports it; 0 for no limit. ``asked_in_vain`` are sentences on
    generation settings in its files that are not applied, and ``generation_defaults`` the sampling
    parameters that they recommend, by name.
    """

    name: str
    vocab_size: int
    context_tokens: int
    end_of_text_ids: tuple[int, ...]
    tokenizer_json: str
    num_parameters: int
    backend: str
    weights_digest: str
    dtype: str = ""
    revision: str = ""
    interruptible: bool = False
    chat_template: ChatTemplate | None = None
    heads_depth: int = 0
    scores_trees: bool = True
    kv_capacity_tokens: int = 0
    asked_in_vain: tuple[str, ...] = ()
    generation_defaults: Mapping[str, float] = field(default_factory=dict)


class Cancellation:
    """An event that is set once nobody wants the result of a call any more. Hardly any call is
    waited for, and only by one thread, so that the costly part of an event is made for a wait.

    ``arrived_s`` is the time at which the call arrived, by ``time.perf_counter``.
    """

    def __init__(self) -> None:
        self.arrived_s = time.perf_counter()
        self._is_set = False
        self._awaited: threading.Event | None = None

    def set(self) -> None:
        """Record that nobody wants the result."""
        self._is_set = True
        if self._awaited is not None:
            self._awaited.set()

    def is_set(self) -> bool:
        """Return whether nobody wants the result."""
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Return whether it is set within ``seconds``."""
        if seconds <= 0:
            return self._is_set
        if self._awaited is None:
            self._awaited = threading.Event()
        # Looked at after that: who sets it then either comes first, or finds what to wake.
        return self._is_set or self._awaited.wait(seconds)


DEFAULT_ROOM_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class ForwardSize:
    """The numbers of calls that shared a forward pass, and of rows of logits that it computed for
    them. Prefix tokens do not count, since callers must not learn how much was cached."""

    num_calls: int = 0
    num_rows: int = 0


class SequenceState(Protocol):
    """One prefix and the token tree that grows below it.

    Only one thread uses it, and closes it at the end. Nodes are numbered as in ``TokenTree``.
    """

    cancellation: Cancellation

    num_cached_tokens: int
    """Prefix tokens whose state was cached when the sequence was opened."""

    num_computed_tokens: int
    """Tokens that have gone through a forward pass so far."""

    latest_forward: ForwardSize
    """The size of the latest forward pass that this sequence was part of: one object for all
    sequences of that forward pass."""

    def score(self, tree: TokenTree) -> Logits:
        """Return next-token logits after every node not scored yet, in node order, node 0 first.

        ``tree`` must begin with the nodes of earlier calls. One forward pass scores all new nodes
        (a long prefix needs more passes before it); each node attends to the prefix and its own
        ancestors. Raises ``Interrupted`` if ``cancellation`` is set and the model can stop in the
        middle of a forward pass.
        """
        ...

    def close(self, keep: Sequence[int]) -> None:
        """Close the sequence; the state of the prefix and of the path of nodes ``keep`` stays
        cached.

        Nothing is cached if no forward pass was finished.
        """
        ...


@dataclass(frozen=True, slots=True)
class ForwardRequest:
    """One sequence's part of a forward pass, which computes ``sequence.score(tree)``.

    ``own`` are tokens to find in the logits: by the model, or by the engine for all requests of a
    pass together.
    """

    sequence: SequenceState
    tree: TokenTree
    own: OwnTokens | None = None


class LanguageModel(Protocol):
    """A model that can score trees of tokens below a prefix."""

    description: ModelDescription

    max_batch: int
    """The most requests that one forward pass may serve."""

    @property
    def pool(self) -> KvCounts | None:
        """The blocks that hold its KV, for metrics; None if its KV is not in blocks."""

    def open(
        self, prefix: Sequence[int], cancellation: Cancellation, room: int = DEFAULT_ROOM_TOKENS
    ) -> SequenceState:
        """Open a sequence for ``prefix`` (at least one token), reusing what is cached of it.

        Trees of up to ``room`` tokens can be scored below it. ``cancellation`` is set, from another
        thread, once nobody wants the result any more. A model that can stop in the middle of a
        forward pass then raises ``Interrupted`` from ``score``; other models ignore it. Models that
        hold state within a budget raise ``NoRoom`` or ``TooLarge``.
        """
        ...

    def forward(self, requests: Sequence[ForwardRequest]) -> list[Logits | None]:
        """Run one forward pass for ``requests`` of different sequences; return for each what its
        ``score`` would return.

        The result is None for a request that needs another forward pass, because its prefix is long
        or the batch was full: pass it in again. Results may be valid only until the next forward
        pass. Raises ``Interrupted`` once the cancellations of all requests are set.
        """
        ...

    def find_base(self, base_length: int, digest: bytes) -> PrefixChain | None:
        """Return the first ``base_length`` tokens of a cached prefix with that digest, as a new
        chain that the caller may change; None if there is none.

        It is safe to call this from another thread than the one that scores.
        """
        ...


def score_alone(requests: Sequence[ForwardRequest]) -> list[Logits | None]:
    """Implement ``LanguageModel.forward`` for a model whose ``max_batch`` is 1."""
    (request,) = requests
    return [request.sequence.score(request.tree)]


@runtime_checkable
class ComputesElsewhere(Protocol):
    """A model whose forward passes run in processes of its own, which may die at any time."""

    def on_failure(self, tell: Callable[[str], None]) -> None:
        """Call ``tell`` with the reason, from any thread, once the model can no longer compute."""
        ...

    def close(self) -> None:
        """End those processes; no other method may be called afterwards."""
        ...
