"""The text that a model writes to learn from, in shards, each of which is a file.

A shard is a function of (seed, shard), so a stopped run continues with the next one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specmesh.training.progress import StepsDone
from specmesh.training.tokenizer import Tokens


@dataclass(frozen=True, slots=True)
class Shards:
    """``number`` shards in ``folder``, each of them rows of tokens."""

    folder: Path
    number: int

    def write(self, make: Callable[[int], Tokens]) -> Iterator[StepsDone]:
        """Write what ``make`` returns for the number of each missing shard; a step is a shard."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for shard in range(self.number):
            path = self._path(shard)
            if not path.exists():
                part = path.with_suffix(".part")
                with part.open("wb") as file:
                    np.save(file, make(shard))
                os.replace(part, path)
            yield StepsDone(shard + 1)

    @property
    def complete(self) -> bool:
        """Return whether no shard is missing."""
        return all(self._path(shard).exists() for shard in range(self.number))

    def read(self) -> Tokens:
        """Return the rows of all shards."""
        return np.concatenate([np.load(self._path(shard)) for shard in range(self.number)])

    def _path(self, shard: int) -> Path:
        return self.folder / f"{shard:05}.npy"
