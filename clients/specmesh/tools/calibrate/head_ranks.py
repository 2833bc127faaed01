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
from specmesh.inference.models.heads.along_text import drafts_along
from specmesh.inference.models.heads.eagle3.folder import weights_file
from specmesh.inference.models.heads.registry import load_heads
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
        self.digest = hashlib.sha256(weights_file(Path(folder)).read_bytes()).hexdigest()

    def ranks(
        self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling
    ) -> AnswerRanks:
        """Return the ranks; see ``RankedGuesses``."""
        text = torch.tensor([*prompt, *tokens])
        found = np.full((len(tokens), self._heads.max_depth), UNKNOWN, dtype=np.int8)
        found[0] = MISSED
        # Row n is the draft that begins at token n + 1.
        first = len(prompt)
        for depth, logits in enumerate(drafts_along(self._heads, self._target, text, first)):
            for row, each in enumerate(logits.float().numpy()):
                number = row + 1 + depth
                found[row + 1, depth] = rank(each, sampling, first + number, tokens[number])
        return found
