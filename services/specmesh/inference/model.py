"""The interface that every model implements, real or simulated."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.engine.kv_counts import KvCounts
from specmesh.serving.templates.chat_template import ChatTemplate

Logits = npt.NDArray[np.float32]
"""``[rows, vocab]``; a row of −inf throughout means that the model has no guess."""


class ModelNotLoadable(Exception):
    """The named model cannot be loaded; the message says what was tried."""


MAX_REASON_CHARS = 400
_TELLING = (OSError, ValueError, RuntimeError, ImportError)
"""Errors whose text alone says what is wrong, as a rule."""


def reason_of(error: Exception) -> str:
    """The first line of what ``error`` says, with its type where the text alone says little.

    Libraries raise errors of many lines: reports, lists of all that they know, advice.
    """
    text = str(error).strip().partition("\n")[0][:MAX_REASON_CHARS]
    if not text:
        return type(error).__name__
    return text if isinstance(error, _TELLING) else f"{type(error).__name__}: {text}"


def check_revision(name: str, revision: str | None) -> None:
    """Raise ``ModelNotLoadable`` for a ``revision`` of a folder: only the hub has revisions."""
    if revision is not None and Path(name).exists():
        raise ModelNotLoadable(f"--revision is for Hugging Face ids, and {name!r} is a folder")


class DeviceLost(Exception):
    """The device has failed and lost all that it held: no forward pass will succeed any more."""


class Interrupted(Exception):
    """A forward pass was abandoned, since nobody wants its result any more."""


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What peers must know before they send requests (``ModelInfo`` on the wire).

    ``tokenizer_json`` is empty for models that work on any token ids; ``context_tokens`` is 0 for
    models without a limit. Models equal in ``weights_digest`` and ``dtype`` give the same answers,
    see ``digests.py``; ``dtype`` is empty without weights. ``revision`` is the Hugging Face commit,
    if known, and ``chat_template`` None for a model without one. ``interruptible``: a forward pass
    that nobody wants any more stops in the middle. ``heads_depth``: how many tokens deep its heads
    draft, 0 for a model without heads. ``scores_trees``: else chains alone. ``kv_capacity_tokens``:
    the most that its KV cache holds, for a model without a ``pool`` that says so; 0 for no limit.
    ``asked_in_vain``: sentences on what its files ask of answers that is not done.
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


class Cancellation(threading.Event):
    """Set once nobody wants the result of a call any more.

    ``arrived_s`` is when the call arrived, by ``time.perf_counter``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.arrived_s = time.perf_counter()


DEFAULT_ROOM_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class ForwardSize:
    """How many calls shared a forward pass, and how many rows of logits they had of it: what was
    read of prefixes does not count, since callers must not learn how much was cached."""

    num_calls: int = 0
    num_rows: int = 0


class SequenceState(Protocol):
    """One prefix and the token tree that grows below it.

    Used by one thread only, then closed. Nodes are numbered as in ``TokenTree``.
    """

    cancellation: Cancellation

    num_cached_tokens: int
    """Prefix tokens whose state was cached when the sequence was opened."""

    num_computed_tokens: int
    """Tokens that went through a forward pass so far."""

    latest_forward: ForwardSize
    """Of the latest forward pass that it was part of."""

    def score(self, tree: TokenTree) -> Logits:
        """Next-token logits after every node not scored yet, in node order, node 0 first.

        ``tree`` must begin with the nodes of earlier calls. One forward pass scores them all (a
        long prefix takes more before it), each node attending to the prefix and its own ancestors.
        Raises ``Interrupted`` if ``cancellation`` is set and the model can stop in the middle of a
        forward pass.
        """
        ...

    def close(self, keep: Sequence[int]) -> None:
        """End the sequence; what was computed for the prefix and the path of nodes ``keep`` stays
        cached.

        Nothing does if no forward pass was finished.
        """
        ...


@dataclass(frozen=True, slots=True)
class ForwardRequest:
    """One sequence's part of a forward pass, which computes ``sequence.score(tree)``."""

    sequence: SequenceState
    tree: TokenTree


class LanguageModel(Protocol):
    """A model that can score trees of tokens below a prefix."""

    description: ModelDescription

    max_batch: int
    """How many requests one forward pass may serve."""

    @property
    def pool(self) -> KvCounts | None:
        """The blocks that hold its KV, for metrics; None if it keeps none in blocks."""

    def open(
        self, prefix: Sequence[int], cancellation: Cancellation, room: int = DEFAULT_ROOM_TOKENS
    ) -> SequenceState:
        """A sequence for ``prefix`` (at least one token), on top of whatever is cached of it.

        Trees of up to ``room`` tokens can be scored below it. ``cancellation`` is set, from another
        thread, once nobody wants the result any more: a model that can stop in the middle of a
        forward pass then raises ``Interrupted`` from ``score``; others ignore it. Models that hold
        state within a budget raise ``NoRoom`` or ``TooLarge``.
        """
        ...

    def forward(self, requests: Sequence[ForwardRequest]) -> list[Logits | None]:
        """One forward pass for ``requests`` of different sequences; for each, what its ``score``
        returns.

        None for a request that needs another forward pass, because its prefix is long or the batch
        was full: pass it in again. Raises ``Interrupted`` once the cancellations of all requests
        are set.
        """
        ...

    def find_base(self, base_length: int, digest: bytes) -> PrefixChain | None:
        """The first ``base_length`` tokens of a cached prefix with that digest, if there is one: a
        new chain, which the caller may change.

        Safe to call from another thread than the one that scores.
        """
        ...


def score_alone(requests: Sequence[ForwardRequest]) -> list[Logits | None]:
    """``LanguageModel.forward`` of a model whose ``max_batch`` is 1."""
    (request,) = requests
    return [request.sequence.score(request.tree)]


@runtime_checkable
class ComputesElsewhere(Protocol):
    """A model whose forwards run in processes of its own, which may die while nobody waits for
    them."""

    def on_failure(self, tell: Callable[[str], None]) -> None:
        """Have ``tell`` called with the reason, from any thread, once it computes no more."""
        ...

    def close(self) -> None:
        """End those processes; nothing is asked of it afterwards."""
        ...
