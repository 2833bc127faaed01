"""What a fleet and its workers say to each other, over pipes."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass, field
from typing import IO

from specmesh.load.generators.generator import Chunks, WorkloadPart
from specmesh.load.transports.observation import Observation
from specmesh.load.transports.transport import ServerAddress
from specmesh.load.workload.plan import Workload

LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a worker is to do; it answers Ready or CannotConnect."""

    workload: Workload
    door: ServerAddress
    part: WorkloadPart


@dataclass(frozen=True, slots=True)
class Ready:
    """It is connected."""


@dataclass(frozen=True, slots=True)
class Start:
    """Begin when the monotonic clock shows ``epoch_s``."""

    epoch_s: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Cancel what is under way, and say what there is."""


@dataclass(frozen=True, slots=True)
class WorkerBroken:
    """The worker can't go on; ``reason`` is as of a failed request."""

    reason: str
    message: str


@dataclass(slots=True)
class WorkerProgress:
    """What happened since the one before, for the live view, at ``at_s`` from the start. ``cpu_s``
    is the processor time of the process so far."""

    at_s: float
    cpu_s: float
    num_ended: int = 0
    num_tokens: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    num_under_way: int = 0
    ttfts_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """The last message: all that was seen."""

    observations: list[Observation]
    chunks: Chunks


Message = Assignment | Ready | Start | Stop | WorkerBroken | WorkerProgress | WorkerResult


def packed(message: Message) -> bytes:
    """With its length before it. A pickle, for processes of one user and version."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def unpacked(data: bytes) -> Message:
    """The message in ``data``, which has no length before it."""
    message: Message = pickle.loads(data)  # noqa: S301 - written by our own process
    return message


def read(stream: IO[bytes]) -> Message | None:
    """The next message; None at the end of the stream."""
    length = stream.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        return None
    return unpacked(stream.read(int.from_bytes(length, "big")))
