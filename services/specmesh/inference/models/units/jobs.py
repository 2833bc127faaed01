"""What a unit is told to do, in words of shared memory, and the tensors that it works on."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from specmesh.inference.models.units.memory import Place


class JobKind(IntEnum):
    """What to do; ``HOLD`` brings tensors by pipe, the others are told by words alone."""

    NOTHING = 0
    LINEAR = 1
    ATTEND = 2
    HOLD = 3
    END = 4


class Linear(NamedTuple):
    """Columns ``first`` to ``end`` of layer ``layer`` for ``tokens`` rows of the inputs."""

    layer: int
    tokens: int
    first: int
    end: int


class Attend(NamedTuple):
    """``rows`` queries of each KV head attend to keys ``first`` to ``end`` of the sequence.

    ``layer`` is that of KV store ``store``. The sequence lies in consecutive slots from ``run`` on,
    or, if that is negative, in those of the shared list. Scores are multiplied by ``scale``.
    """

    store: int
    layer: int
    rows: int
    first: int
    end: int
    run: int
    scale: float


WORDS = struct.Struct("=2q6qd")
"""Kind, how many times, numbers, scale."""
RESULT = struct.Struct("=qq")
"""How many nanoseconds the work took, and whether it failed."""
RESTING = WORDS.size + RESULT.size
"""Where a byte says whether no job is to be expected soon."""
CONTROL_BYTES = RESTING + 1


@dataclass(frozen=True, slots=True)
class LayerPlaces:
    """A linear layer: weight ``[columns, features]``, bias ``[columns]``."""

    weight: Place
    bias: Place | None


@dataclass(frozen=True, slots=True)
class SharedBuffers:
    """What all units read: activations (flat), and the slots of the sequence that attends."""

    inputs: Place
    slots: Place


@dataclass(frozen=True, slots=True)
class ResultBuffers:
    """What one unit writes, both flat: results, and logarithms of sums in float32."""

    output: Place
    log_sums: Place


@dataclass(frozen=True, slots=True)
class KVPlace:
    """A KV store: ``[2 * layers, slots, kv_heads, head_dim]``."""

    kv: Place


Held = LayerPlaces | SharedBuffers | ResultBuffers | KVPlace
