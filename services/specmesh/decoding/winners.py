"""The winners of the races of several rows, found together: those that ``race.winner`` finds.

Much of what a race takes is the cost of many short calls, the more so where the processor has done
other work since the last race. Here rows share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.maxima import JointMaxima
from specmesh.decoding.noise import BLOCK_STRIDE, BlockNoise, Purpose
from specmesh.decoding.race import LEAST, floors_of_blocks
from specmesh.decoding.sampling import AcceptanceMode, Sampling


@dataclass(slots=True)
class OwnTokens:
    """The tokens with the highest scores after the nodes of a tree below a prefix of ``position``
    tokens: of their logits if ``greedy``, else with the noise of coupled mode.

    ``found`` are those, by node, that were found together with other requests' or by the device
    that computed the logits. There need not be any: a verification finds them by itself.
    """

    greedy: bool
    temperature: float
    seed: int
    position: int
    found: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, sampling: Sampling, position: int) -> OwnTokens | None:
        """Return what to find for a request; None where it would not help, because other logits
        than the model's count, or few of them, or the draft counts as well."""
        greedy = sampling.mode is AcceptanceMode.GREEDY
        if sampling.changes_logits or sampling.mode is AcceptanceMode.REJECTION:
            return None
        if not greedy and not sampling.cuts_at_most_nucleus:
            return None
        return cls(greedy, sampling.temperature, sampling.seed, position)

    def below(self, node: int, depth: int) -> OwnTokens:
        """Return the same for a tree below ``node``, which is ``depth`` tokens below the prefix:
        what was found after ``node`` is found after that tree's node 0."""
        found = {0: self.found[node]} if node in self.found else {}
        return OwnTokens(self.greedy, self.temperature, self.seed, self.position + depth, found)


def find_together(asked: Sequence[OwnTokens], rows: Sequence[NDArray[np.floating[Any]]]) -> None:
    """Find the tokens after node 0 of those ``asked`` for, in coupled mode, each in one of ``rows``
    ``[vocab]``, the model's logits: the lower id on ties, and none in a row without a finite
    maximum."""
    with np.errstate(invalid="ignore"):  # of rows without a finite maximum
        _find(asked, rows)


def _find(asked: Sequence[OwnTokens], rows: Sequence[NDArray[np.floating[Any]]]) -> None:
    maxima = JointMaxima(rows)
    size, num_blocks = rows[0].size, maxima.blocks.shape[1]
    streams = [(each.seed, each.position) for each in asked]
    noise = BlockNoise.of_streams(streams, Purpose.COUPLED, num_blocks)
    temperatures = np.array([[each.temperature] for each in asked])
    peaks = maxima.blocks.max(axis=1, keepdims=True).astype(np.float64)
    won = np.empty(noise.winners.shape)
    for number, (row, ids) in enumerate(zip(rows, noise.winners, strict=True)):
        won[number] = row.take(ids, mode="clip")
    won -= peaks
    won /= temperatures
    last = slice(-BLOCK_STRIDE, None)  # Only these blocks can be incomplete.
    np.copyto(won[:, last], -np.inf, where=noise.winners[:, last] >= size)
    won += noise.highest
    thresholds = np.maximum(won.max(axis=1, keepdims=True), LEAST)
    floors = floors_of_blocks(peaks, temperatures, thresholds, noise, maxima.blocks.dtype)
    able = (maxima.blocks >= floors).ravel().nonzero()[0]
    numbers, tokens, logits = maxima.tokens_of_blocks(
        able // num_blocks, able % num_blocks, floors.take(able)
    )
    scores = logits.astype(np.float64)
    scores -= peaks.take(numbers)
    scores /= temperatures.take(numbers)
    scores += noise.at(tokens, numbers)
    ends = numbers.searchsorted(np.arange(len(rows)), side="right").tolist()
    for each, peak, start, end in zip(asked, peaks.ravel(), [0, *ends], ends, strict=False):
        if np.isfinite(peak):
            each.found[0] = int(tokens[start + int(scores[start:end].argmax())])
