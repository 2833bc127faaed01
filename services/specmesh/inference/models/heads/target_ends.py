"""The target's first and last layers, which heads share instead of learning their own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from specmesh.inference.model import ModelNotLoadable


class TargetEnds(nn.Module):
    """The embedding and the output layer of ``target``, a model as transformers loads it.

    With ``guessed``, token ids ``[n]``, heads guess only these: the output layer takes most of the
    time of a small target's heads, and few tokens make up most of any text. Create it before layers
    of the target are packed, since it copies rows of the output layer. Raises ``ModelNotLoadable``
    for a model without such layers.
    """

    guessed: Tensor | None

    def __init__(self, target: Any, guessed: Tensor | None = None) -> None:
        super().__init__()
        embedding, output = target.get_input_embeddings(), target.get_output_embeddings()
        if embedding is None or output is None:
            raise ModelNotLoadable(f"{type(target).__name__} has no output layer for heads to use")
        self.embedding_size: int = embedding.weight.shape[1]
        self.vocab_size, self.hidden_size = output.weight.shape
        # Looked up in each call, since the output layer may be packed meanwhile. They are the
        # target's: not modules of this one, which is moved, packed and trained without them.
        self._embedding_of_target = target.get_input_embeddings
        self._output_of_target = target.get_output_embeddings
        self.register_buffer("guessed", guessed, persistent=False)
        self.rows = None if guessed is None else _rows(output, guessed)

    def embed(self, token_ids: Tensor) -> Tensor:
        """Embed ``[...]`` to ``[..., embedding]``, the input of the target's first layer."""
        found: Tensor = self._embedding_of_target()(token_ids)
        return found

    def guesses(self, features: Tensor) -> Tensor:
        """Return the logits of the guessed tokens: map ``[..., hidden]`` to ``[..., n]``."""
        output = self._output_of_target() if self.rows is None else self.rows
        logits: Tensor = output(features)
        return logits

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits of all tokens ``[..., vocab]``, −inf for tokens that are never
        guessed."""
        guesses = self.guesses(features)
        if self.guessed is None:
            return guesses
        every = guesses.new_full((*guesses.shape[:-1], self.vocab_size), -torch.inf)
        return every.index_copy_(-1, self.guessed, guesses)


def _rows(output: Any, guessed: Tensor) -> nn.Linear:
    """Return the part of a linear layer ``output`` that computes the outputs ``guessed``."""
    weight = output.weight.detach()[guessed]
    bias = getattr(output, "bias", None)
    rows = nn.Linear(weight.shape[1], len(guessed), bias is not None, device="meta")
    rows.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        rows.bias = nn.Parameter(bias.detach()[guessed], requires_grad=False)
    return rows
