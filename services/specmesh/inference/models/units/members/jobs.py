"""Jobs of a unit, as words in shared memory, and the tensors that they work on."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from specmesh.inference.models.units.members.memory import Place


class JobKind(IntEnum):
    """The kind of a job; ``HOLD`` also sends tensors by pipe, the others need only words."""

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

    ``layer`` is a layer of KV store ``store``. The sequence lies in consecutive slots from ``run``
    on, or, if that is negative, in those of the shared list. Scores are multiplied by ``scale``.
    """

    store: int
    layer: int
    rows: int
    first: int
    end: int
    run: int
    scale: float


WORDS = struct.Struct("=2q6qd")
"""The kind, the number of times, the numbers, the scale."""
RESULT = struct.Struct("=qq")
"""The nanoseconds that the work took, and whether it failed."""
RESTING = WORDS.size + RESULT.size
"""The offset of a byte that says whether no job is expected soon."""
CONTROL_BYTES = RESTING + 1


@dataclass(frozen=True, slots=True)
class LayerPlaces:
    """A linear layer: weight ``[columns, features]``, bias ``[columns]``."""

    weight: Place
    bias: Place | None


@dataclass(frozen=True, slots=True)
class SharedBuffers:
    """The buffers that all units read: activations (flat), and the slots of the sequence that
    attends."""

    inputs: Place
    slots: Place


@dataclass(frozen=True, slots=True)
class ResultBuffers:
    """The buffers that one unit writes, both flat: results, and logarithms of sums in float32."""

    output: Place
    log_sums: Place


@dataclass(frozen=True, slots=True)
class KVPlace:
    """A KV store: ``[2 * layers, slots, kv_heads, head_dim]``."""

    kv: Place


Held = LayerPlaces | SharedBuffers | ResultBuffers | KVPlace
