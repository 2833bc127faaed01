"""An EAGLE-3 head as it is served: its network, an embedding, and the target's vocabulary."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from specmesh.inference.engine.kv_store import KVShape
from specmesh.inference.models.heads.eagle3.network import Attend, Eagle3Network


class Eagle3Heads:
    """A head that attends to the text: its caller keeps keys and values, one pair for each token.

    ``embed`` maps token ids to embeddings. ``guessed`` ``[n]`` are the ids of the tokens that the
    head guesses; None for all.
    """

    def __init__(
        self,
        network: Eagle3Network,
        embed: Callable[[Tensor], Tensor],
        guessed: Tensor | None,
        target_digest: str,
        dtype: torch.dtype,
    ) -> None:
        config = network.config
        self.target_digest = target_digest
        """``ModelDescription.weights_digest`` of the target that it was loaded for."""
        self.max_depth = config.max_depth
        self.layer_ids = config.layer_ids
        """The hidden states of the target that ``fuse`` takes (see ``Eagle3Config``)."""
        self.kv_shape = KVShape(1, config.num_kv_heads, config.head_dim, dtype)
        """The shape of the head's own keys and values for a token."""
        self._network = network
        self._embed = embed
        self._guessed = guessed

    @torch.inference_mode()
    def fuse(self, hidden: Tensor) -> Tensor:
        """Return the states ``[tokens, hidden]`` of tokens whose hidden states in the target are
        ``hidden``, ``[tokens, layers * target_hidden]``."""
        return self._network.fuse(hidden[None])[0]

    @torch.inference_mode()
    def contributions(self, states: Tensor) -> Tensor:
        """Return what ``states`` ``[tokens, hidden]`` contribute to the keys and values of the
        pairs with the next tokens: ``[2, tokens, kv_heads, head_dim]``."""
        contributed = self._network.contributions(states[None])[0]
        kept = self.kv_shape
        return contributed.view(-1, 2, kept.kv_heads, kept.head_dim).transpose(0, 1)

    @torch.inference_mode()
    def pairs(
        self, token_ids: Tensor, contributed: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the keys and values, each ``[1, kv_heads, tokens, head_dim]``, that ``read`` gives
        to ``attend``, without reading the tokens. ``contributed`` are the ``contributions`` of the
        states of the tokens before them."""
        flat = contributed.transpose(0, 1).flatten(1)
        return self._network.pairs(self._embed(token_ids[None]), flat[None], positions[None])

    @torch.inference_mode()
    def read(self, token_ids: Tensor, states: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Read tokens ``[tokens]`` at ``positions`` ``[tokens]``, each in the state ``[tokens,
        hidden]`` of the token before it. Returns their own states, ``[tokens, hidden]``.

        ``attend`` is called once, with one row.
        """
        embedded = self._embed(token_ids[None])
        found: Tensor = self._network(embedded, states[None], positions[None], attend)
        return found[0]

    @torch.inference_mode()
    def logits(self, states: Tensor) -> Tensor:
        """Return the logits ``[tokens, vocab]`` of the tokens after those that ``read`` returned
        ``states`` for, −inf for tokens that are never guessed."""
        guesses = self._network.logits(states[None])[0]
        if self._guessed is None:
            return guesses
        every = guesses.new_full((len(guesses), self._vocab_size), -torch.inf)
        return every.index_copy_(-1, self._guessed, guesses)

    @property
    def _vocab_size(self) -> int:
        return self._network.config.vocab_size
