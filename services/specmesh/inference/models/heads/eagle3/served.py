"""An EAGLE-3 head as it is served: its network, an embedding, and the target's vocabulary."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from specmesh.inference.engine.kv_store import KVShape
from specmesh.inference.models.heads.eagle3.network import Attend, Eagle3Network
from specmesh.inference.models.heads.eagle3.served_layer import ServedLayer


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
        self._layer = ServedLayer(network)
        self._embed = embed
        self._guessed = guessed

    @torch.inference_mode()
    def fuse(self, hidden: Tensor) -> Tensor:
        """Return the states ``[tokens, hidden]`` of tokens whose hidden states in the target are
        ``hidden``, ``[tokens, layers * target_hidden]``."""
        return self._layer.fuse(hidden[None])[0]

    @torch.inference_mode()
    def halves(self, token_ids: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return the halves of keys and values, each ``[tokens, 2 * kv_heads * head_dim]``, that
        ``token_ids`` ``[tokens]`` contribute to their own pairs, and ``states`` ``[tokens,
        hidden]`` to the pairs of the tokens after them."""
        of_tokens, of_states = self._layer.halves(self._embed(token_ids[None]), states[None])
        return of_tokens[0], of_states[0]

    @torch.inference_mode()
    def pairs(self, halves: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values ``[1, kv_heads, tokens, head_dim]`` that ``read`` gives to
        ``attend``, of pairs whose two ``halves`` were added."""
        return self._layer.pairs(halves[None], positions[None])

    @torch.inference_mode()
    def read(self, token_ids: Tensor, states: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Read tokens ``[tokens]`` at ``positions`` ``[tokens]``, each in the state ``[tokens,
        hidden]`` of the token before it. Returns their own states, ``[tokens, hidden]``.

        ``attend`` is called once, with one row.
        """
        embedded = self._embed(token_ids[None])
        found: Tensor = self._layer(embedded, states[None], positions[None], attend)
        return found[0]

    @torch.inference_mode()
    def logits(self, states: Tensor) -> Tensor:
        """Return the logits ``[tokens, vocab]`` of the tokens after those that ``read`` returned
        ``states`` for, −inf for tokens that are never guessed."""
        guesses = self._layer.logits(states[None])[0]
        if self._guessed is None:
            return guesses
        every = guesses.new_full((len(guesses), self._vocab_size), -torch.inf)
        return every.index_copy_(-1, self._guessed, guesses)

    @property
    def _vocab_size(self) -> int:
        return self._layer.config.vocab_size
