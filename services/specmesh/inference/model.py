"""The interface every model hides behind, real or not."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.tree import TokenTree
from specmesh.inference.engine.blocks import BlockPool

Logits = npt.NDArray[np.float32]
"""``[rows, vocab]``; a row of −inf throughout means that the model has no guess."""


class ModelNotLoadable(Exception):
    """The named model cannot be loaded; the message says what was tried."""


class DeviceLost(Exception):
    """What computes is gone, and with it all that it held: no forward will ever succeed."""


class Interrupted(Exception):
    """A forward was left unfinished, since nobody wants its result any more."""


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What peers must know before they send work (``ModelInfo`` on the wire).

    ``tokenizer_json`` is empty for models that work on any token ids; ``context_tokens`` is
    0 for models without a limit. Models with one ``weights_digest`` and one ``dtype`` say the
    same, see ``digests.py``; without weights there is no number type. ``revision`` is the
    Hugging Face commit, if known.
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


class Cancellation(threading.Event):
    """Set once nobody wants the result of a call any more.

    ``arrived_s`` is when the call came, by ``time.perf_counter``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.arrived_s = time.perf_counter()


DEFAULT_ROOM_TOKENS = 1024


class SequenceState(Protocol):
    """One prefix and the token tree that grows below it.

    Used from one thread only, then closed. Nodes are numbered as in ``TokenTree``.
    """

    cancellation: Cancellation

    num_cached_tokens: int
    """Prefix tokens whose state was held already when the sequence was opened."""

    num_computed_tokens: int
    """Tokens that went through a forward so far."""

    def score(self, tree: TokenTree) -> Logits:
        """Next-token logits after every node not scored yet, in node order, node 0 first.

        ``tree`` must begin with the nodes of earlier calls. One forward for all of them (and
        for a long prefix more before it), each node seeing the prefix and its own ancestors.
        Raises ``Interrupted`` if the model can stop in the middle of a forward and was told to.
        """
        ...

    def close(self, keep: Sequence[int]) -> None:
        """End; what was computed for the prefix and the path of nodes ``keep`` stays cached.

        Nothing does if no forward was finished.
        """
        ...


@dataclass(frozen=True, slots=True)
class ForwardRequest:
    """One sequence's part of a forward: what ``sequence.score(tree)`` would answer."""

    sequence: SequenceState
    tree: TokenTree


class LanguageModel(Protocol):
    """A model that can score trees of tokens below a prefix."""

    description: ModelDescription

    max_batch: int
    """How many asks one forward may hold."""

    @property
    def pool(self) -> BlockPool | None:
        """The blocks that hold its state, for figures; None if it keeps none in blocks."""

    def open(
        self, prefix: Sequence[int], cancellation: Cancellation, room: int = DEFAULT_ROOM_TOKENS
    ) -> SequenceState:
        """A sequence for ``prefix`` (at least one token), on top of whatever is cached of it.

        Trees of up to ``room`` tokens can be scored below it. ``cancellation`` is set, from
        another thread, once nobody wants the result any more: a model that can stop in the
        middle of a forward then raises ``Interrupted`` from ``score``. The others don't look.
        Models that hold state within a budget raise ``NoRoom`` or ``TooLarge``.
        """
        ...

    def forward(self, asks: Sequence[ForwardRequest]) -> list[Logits | None]:
        """One forward for ``asks`` of different sequences; of each what its ``score`` returns.

        None for an ask whose prefix is longer than what goes through one forward: it is to be
        asked again. Raises ``Interrupted`` once all the asks' cancellations are set.
        """
        ...

    def find_base(self, base_length: int, digest: bytes) -> PrefixChain | None:
        """The first ``base_length`` tokens of a cached prefix with that digest, if there is one:
        a chain that is the caller's own.

        Safe to call from another thread than the one that scores.
        """
        ...


def score_alone(asks: Sequence[ForwardRequest]) -> list[Logits | None]:
    """The forward of a model whose ``max_batch`` is 1."""
    (ask,) = asks
    return [ask.sequence.score(ask.tree)]
