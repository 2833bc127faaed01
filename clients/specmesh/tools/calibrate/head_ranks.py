"""The ranks of the target's tokens among the choices of heads."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.replay import MISSED, UNKNOWN, AnswerRanks
from specmesh.inference.models.digests import digest_of_weights
from specmesh.inference.models.heads.folder import WEIGHTS, load_heads
from specmesh.inference.models.heads.seen import look
from specmesh.inference.models.loading import read_model
from specmesh.tools.calibrate.ranks import rank


class HeadGuesses:
    """``RankedGuesses`` of heads, whose choices also depend on where the draft began.

    A draft begins below a token of the target's own, so none begins at the first token of an
    answer, which counts as missed.
    """

    def __init__(self, folder: str, target: str) -> None:
        """Load the heads. Raises ``ModelNotLoadable``, also if they belong to another target."""
        plain = read_model(target, "float32", "cpu", None)
        self._target = plain.model
        digest = digest_of_weights(plain.model, plain.config, wanted=True)
        self._heads = load_heads(folder, plain.model, digest)
        self.digest = hashlib.sha256((Path(folder) / WEIGHTS).read_bytes()).hexdigest()

    def ranks(
        self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling
    ) -> AnswerRanks:
        """Return the ranks; see ``RankedGuesses``."""
        text = torch.tensor([*prompt, *tokens])
        found = np.full((len(tokens), self._heads.max_depth), UNKNOWN, dtype=np.int8)
        found[0] = MISSED
        # Row n is the draft that begins at token n + 1. The token before that one
        # is the target's own, chosen from the hidden state of the one before.
        first = len(prompt)
        hidden = look(self._target, text[None]).hidden[0, first - 1 : -2]
        states = self._heads.begin(hidden)
        for depth in range(min(self._heads.max_depth, len(tokens) - 1)):
            count = len(tokens) - 1 - depth
            read = text[first + depth : first + depth + count]
            logits, states = self._heads.step(states[:count], read, torch.full((count,), depth))
            for row, each in enumerate(logits.float().numpy()):
                number = row + 1 + depth
                found[row + 1, depth] = rank(each, sampling, first + number, tokens[number])
        return found
