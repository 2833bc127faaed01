"""One prefix and its tree in KV blocks: the tokens of the next forward pass, and their slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.engine.batch import AttentionMask, BatchPart, Copy
from specmesh.inference.engine.kv_memory import KVMemory
from specmesh.inference.model import Cancellation, ForwardRequest, ForwardSize, Logits


class _Model(Protocol):
    def forward(self, requests: Sequence[ForwardRequest]) -> list[Logits | None]: ...


class PagedTree:
    """A prefix and a tree below it in blocks: KV of the prefix, then of the scored nodes in node
    order."""

    def __init__(
        self, memory: KVMemory, chain: PrefixChain, room: int, *, counted: bool = True
    ) -> None:
        """Take blocks for the prefix ``chain``, which is the tree's own from now on, and ``room``
        nodes; raises ``NoRoom`` or ``TooLarge``. ``counted``: see ``BlockPool.open``."""
        self._memory = memory
        self._chain = chain
        self._table = memory.pool.open(self._chain, room, counted=counted)
        self._num_held = self._table.num_cached
        self._scored = EMPTY
        for source, destination, num_tokens in self._table.copies:
            slots = np.arange(num_tokens)
            memory.ordered.append(
                Copy(source * BLOCK_TOKENS + slots, destination * BLOCK_TOKENS + slots)
            )

    @property
    def num_pending_tokens(self) -> int:
        """The number of prefix tokens without KV."""
        return len(self._chain) - self._num_held

    @property
    def num_scored_nodes(self) -> int:
        """The number of leading tree nodes with KV, node 0 not counted."""
        return len(self._scored)

    def plan(self, tree: TokenTree, num_prefix_tokens: int) -> BatchPart:
        """Plan the next ``num_prefix_tokens`` of the prefix. If they complete it, the part also has
        the nodes of ``tree`` not scored yet, and asks for logits as ``SequenceState.score``
        does."""
        prefix_end = self._num_held + num_prefix_tokens
        token_ids = self._chain[self._num_held : prefix_end]
        positions = list(range(self._num_held, prefix_end))
        parents = [max(0, position - 1) for position in positions]
        nodes = range(0)
        rows = range(0)
        if prefix_end == len(self._chain):
            nodes = range(len(self._scored) + 1, len(tree) + 1)
            rows = range(max(0, num_prefix_tokens - 1), num_prefix_tokens + len(nodes))
        token_ids += [tree.token_ids[node - 1] for node in nodes]
        positions += [prefix_end + tree.depths[node] - 1 for node in nodes]
        parents += [prefix_end + tree.parents[node - 1] - 1 for node in nodes]
        first = self._num_held + len(self._scored)
        length = first + len(token_ids)
        assert length <= len(self._table.blocks) * BLOCK_TOKENS, "more nodes than room"
        return BatchPart(
            token_ids=token_ids,
            positions=positions,
            slots=[self._slot(index) for index in range(first, length)],
            parent_slots=[self._slot(index) for index in parents],
            rows=rows,
            blocks=self._table.blocks,
            length=length,
            attention_mask=self._attention_mask(tree, nodes, first, length),
        )

    def advance(self, part: BatchPart, tree: TokenTree) -> None:
        """Record that the forward pass of ``part``, planned for ``tree``, is done."""
        self._num_held = min(part.length, len(self._chain))
        if not self.num_pending_tokens:
            self._scored = tree

    def release(self) -> None:
        """Give back the blocks; what was cached before stays."""
        self._memory.pool.close(self._table, None)

    def _slot(self, index: int) -> int:
        return int(self._table.blocks[index // BLOCK_TOKENS]) * BLOCK_TOKENS + index % BLOCK_TOKENS

    def _attention_mask(
        self, tree: TokenTree, nodes: range, first: int, length: int
    ) -> AttentionMask | None:
        """Return the mask: causal for prefix tokens and chains, while tree nodes attend to the
        prefix and their own path. None if all attend to everything."""
        width = length - first
        if not nodes or tree.is_chain:
            return None if width == 1 else np.tri(width, dtype=np.bool_)
        prefix = len(self._chain)
        begin = min(first, prefix)
        attention_mask: AttentionMask = np.ones((width, length - begin), np.bool_)
        attention_mask[:, first - begin :] = np.tri(width, dtype=np.bool_)
        attention_mask[width - len(nodes) :, prefix - begin :] = False
        for row, node in enumerate(nodes, start=width - len(nodes)):
            path = [prefix - begin + ancestor - 1 for ancestor in tree.path(node)]
            attention_mask[row, path] = True
        return attention_mask


class PagedSequence(PagedTree):
    """A ``SequenceState`` in blocks."""

    def __init__(
        self,
        model: _Model,
        memory: KVMemory,
        prefix: Sequence[int],
        room: int,
        cancellation: Cancellation,
    ) -> None:
        """Take blocks for ``prefix`` and ``room`` nodes; raises ``NoRoom`` or ``TooLarge``."""
        super().__init__(memory, PrefixChain(prefix), room)
        self._model = model
        self.cancellation = cancellation
        self._hidden: Any = None
        self._is_spoilt = False
        """True once logits were not finite: then nor is the KV of the same forward pass, whose
        masked tokens are multiplied by 0, which leaves NaN as it is."""
        self.num_cached_tokens = self._num_held
        self.num_computed_tokens = 0
        self.latest_forward = ForwardSize()

    @property
    def text(self) -> PrefixChain:
        """The prefix; once it is closed, with the nodes that were kept."""
        return self._chain

    def advance(self, part: BatchPart, tree: TokenTree, *, are_finite: bool = True) -> None:
        """Record that the forward pass of ``part``, planned for ``tree``, is done, and whether its
        logits ``are_finite``."""
        self.num_computed_tokens += len(part.token_ids)
        self._is_spoilt |= not are_finite
        had_pending = self.num_pending_tokens > 0
        super().advance(part, tree)
        if had_pending and not self.num_pending_tokens and not self._is_spoilt:
            self._memory.pool.publish(self._table, self._chain)

    def keep_hidden(self, hidden: Any) -> None:
        """Keep the rows that the logits of the latest forward pass were computed from."""
        self._hidden = hidden

    def hidden_at(self, node: int) -> Any:
        """Return the hidden state that the token after ``node`` is computed from, for nodes scored
        last by a model that keeps hidden states."""
        return self._hidden[node - len(self._scored) - 1]

    def score(self, tree: TokenTree) -> Logits:
        """Return the logits of the new nodes, after as many forward passes as the prefix needs."""
        while True:
            (logits,) = self._model.forward([ForwardRequest(self, tree)])
            if logits is not None:
                return np.asarray(logits)

    def close(self, keep: Sequence[int]) -> None:
        """Release the blocks; the prefix and the path ``keep`` stay cached, unless logits were not
        finite.

        No KV is moved if the path consists of the first nodes, as in a chain.
        """
        if self.num_pending_tokens:
            self._chain.truncate(self._num_held)
        else:
            self._compact(keep)
            self._chain.append(self._scored.tokens_on(keep))
        self._memory.pool.close(self._table, None if self._is_spoilt else self._chain)

    def _compact(self, keep: Sequence[int]) -> None:
        """Move the KV of the nodes ``keep`` to the slots that directly follow the prefix."""
        prefix = len(self._chain)
        moves = [(node, index) for index, node in enumerate(keep, start=1) if node != index]
        if moves:
            sources, destinations = zip(*moves, strict=True)
            self._memory.ordered.append(
                Copy(
                    np.array([self._slot(prefix + node - 1) for node in sources]),
                    np.array([self._slot(prefix + node - 1) for node in destinations]),
                )
            )
