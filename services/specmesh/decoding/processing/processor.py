"""Logit processing: the logits that a request's tokens are chosen from, as a pure function of the
tokens before a position and of the model's own logits there.

Drafter, heads and verifier process their logits in the same way, node by node of a tree, so a draft
token has the chances that the target gives it, and the text under speculation is the target's own.
The steps follow vLLM's order: bias, bans, penalties. A grammar comes next, and warping last
(``sampling.kept``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.processing.bans import Bans
from specmesh.decoding.processing.masks import TokenMask, only, only_one
from specmesh.decoding.processing.penalties import Penalties
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import TokenTree

Logits = NDArray[np.floating[Any]]


class LogitProcessor:
    """Processes the logits of one request behind ``prefix``, which must not change meanwhile, with
    the ``mask`` of the request's grammar. A drafter that has none for it drafts without."""

    def __init__(
        self, sampling: Sampling, prefix: Sequence[int], mask: TokenMask | None = None
    ) -> None:
        self._sampling = sampling
        self._prefix = prefix
        self._mask = mask
        self.prefix_length = len(prefix)
        self.changes_logits = sampling.changes_logits
        self.may_force = mask is not None
        """True if the grammar may leave a single token somewhere."""

    def row(self, logits: Logits, path: Sequence[int] = ()) -> Logits:
        """Return the processed ``logits`` ``[vocab]`` behind the prefix and then ``path``: the same
        array if the request changes nothing, else a new one.

        A token that must not be chosen gets minus infinity. Ids outside the row are ignored: a
        drafter may have fewer tokens than its target.
        """
        if not self.changes_logits:
            return logits
        processed = logits.copy()
        biased, bias = self._bias
        within = biased < logits.size
        processed[biased[within]] += bias[within]
        self._bans.apply(processed, path)
        if self._sampling.penalises:
            self._penalties.apply(processed, path)
        return self._masked(processed, logits, path)

    def rows(
        self, logits: Logits, tree: TokenTree, path: Sequence[int] = ()
    ) -> Logits | ProcessedRows:
        """Return the rows ``[len(tree) + 1, vocab]`` after the nodes of ``tree``, which hangs from
        the prefix and then ``path``, each processed when it is read."""
        return ProcessedRows(self, logits, tree, path) if self.changes_logits else logits

    def forced(self, path: Sequence[int] = ()) -> int | None:
        """Return the token that comes behind the prefix and then ``path`` whatever the logits are,
        since the grammar allows no other; None if logits decide."""
        return None if self._mask is None else only_one(self._mask.allowed(path))

    def _masked(self, processed: Logits, logits: Logits, path: Sequence[int]) -> Logits:
        """Return what the grammar leaves of ``processed``, or else of ``logits``: where bans leave
        no token that the grammar allows, they are not heeded."""
        if self._mask is None:
            return processed
        allowed = self._mask.allowed(path)
        kept = only(allowed, processed)
        return only(allowed, logits) if kept.max() == -np.inf else kept

    @cached_property
    def _bias(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The tokens with a bias, and their biases."""
        bias = dict(self._sampling.logit_bias)
        return np.array(list(bias), np.int64), np.array(list(bias.values()), np.float32)

    @cached_property
    def _bans(self) -> Bans:
        return Bans(self._sampling, self._prefix)

    @cached_property
    def _penalties(self) -> Penalties:
        return Penalties(self._sampling, np.asarray(self._prefix, np.int64))


class ProcessedRows:
    """The processed logits after each node of a tree. A verdict reads few of them."""

    def __init__(
        self, processor: LogitProcessor, logits: Logits, tree: TokenTree, path: Sequence[int]
    ) -> None:
        self._path = path
        self._processor = processor
        self._logits = logits
        self._tree = tree
        self.shape = logits.shape

    def __len__(self) -> int:
        return len(self._logits)

    def __getitem__(self, node: int) -> Logits:
        """Return the row after ``node``."""
        path = self._tree.tokens_on(self._tree.path(node))
        return self._processor.row(self._logits[node], (*self._path, *path))
