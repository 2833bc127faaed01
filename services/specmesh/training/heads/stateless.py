"""Heads without a memory of the text, in training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from specmesh.inference.models.heads.folder import HeadsConfig, save_heads
from specmesh.inference.models.heads.seen import Seen, look
from specmesh.inference.models.heads.target_ends import TargetEnds
from specmesh.training.heads.trainee import HeadsGuess


class StatelessTrainee:
    """A ``Trainee``: a network between the target's own first and last layers."""

    def __init__(self, config: HeadsConfig, target: Any, guessed: Tensor | None) -> None:
        self.network = config.network()
        self.guessed = guessed
        self.name = f"{config.kind}-{config.inner_size}"
        self._config = config
        self._target = target
        self._ends = TargetEnds(target, guessed)

    def start(self, token_ids: Tensor) -> None:
        """Implement ``Trainee``."""
        self.network.start(self.look(token_ids).hidden.flatten(0, 1))

    def look(self, token_ids: Tensor) -> Seen:
        """Implement ``Trainee``."""
        return look(self._target, token_ids)

    def unroll(self, seen: Seen, depth: int) -> Iterator[HeadsGuess]:
        """Implement ``Trainee``."""
        starts = seen.token_ids.shape[1] - depth
        states = seen.hidden[:, :starts]
        embedded = self._ends.embed(seen.token_ids)
        for number in range(depth):
            first = number + 1
            features, states = self.network(states, embedded[:, first : first + starts], number)
            yield HeadsGuess(self._ends.guesses(features), first)

    def save(self, folder: Path) -> None:
        """Implement ``Trainee``."""
        save_heads(self._config, self.network, self.guessed, folder)
