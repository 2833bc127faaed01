"""The schedule of faults; a seed gives the same one on any machine.

Faults are far enough apart for a mesh to recover. At most one orchestrator and all but one of the
verifiers are unreachable at a time, so that answers can always be continued; Redis is back within
seconds.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

SOONEST_S = 2.0
LATEST_S = 4.0
"""Bounds of the time between two faults."""

CLIENT, REDIS, REPLICAS = "client", "redis", "replicas"
_MOST_TRIES = 50
_SHORTEST_S = 0.2


class FaultKind(StrEnum):
    """The kinds of faults of a process, or of a link between two."""

    KILL = "kill"
    """SIGKILL; restarted after ``lasts_s``."""
    TERM = "term"
    """SIGTERM: it drains and ends; restarted ``lasts_s`` after its end."""
    STOP = "stop"
    """SIGSTOP, then SIGCONT after ``lasts_s``."""
    SLOW = "slow"
    """SIGSTOP and SIGCONT in turns, so that it runs a fifth of the time."""
    CUT = "cut"
    """All connections are reset; new ones are accepted."""
    REFUSE = "refuse"
    """All connections are reset, including new ones."""
    HOLE = "hole"
    """Nothing passes; afterwards all held-back data does, as after retransmission by TCP."""
    DEAF = "deaf"
    """Requests pass, replies don't, and at the end connections are reset: requests were carried out
    without their senders knowing."""
    DELAY = "delay"
    """Everything takes 20 to 300 ms longer, each way."""
    LOSS = "loss"
    """One piece of data in twenty is 200 ms late, and so is all that follows it."""


PROCESS_KINDS: tuple[FaultKind, ...] = (
    FaultKind.KILL,
    FaultKind.TERM,
    FaultKind.STOP,
    FaultKind.SLOW,
)
LINK_KINDS: tuple[FaultKind, ...] = (
    FaultKind.CUT,
    FaultKind.REFUSE,
    FaultKind.HOLE,
    FaultKind.DEAF,
    FaultKind.DELAY,
    FaultKind.LOSS,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. ``victim`` is a process or a link; ``at_s`` counts from the beginning of the
    phase."""

    at_s: float
    kind: FaultKind
    victim: str
    lasts_s: float
    delay_s: float = 0.0
    """Delay of each piece of data, for Kind.DELAY."""

    def __str__(self) -> str:
        return f"{self.kind} {self.victim}"


@dataclass(frozen=True, slots=True)
class MeshShape:
    """The number of processes of each role, in addition to one Redis."""

    orchestrators: int = 2
    verifiers: int = 3
    drafters: int = 2
    confidence: int = 2

    def names(self, role: str) -> tuple[str, ...]:
        """Return the names of the processes of a role."""
        counts = {
            "orchestrator": self.orchestrators,
            "verifier": self.verifiers,
            "drafter": self.drafters,
            "confidence": self.confidence,
        }
        return tuple(f"{role}-{number}" for number in range(counts[role]))

    @property
    def links(self) -> tuple[str, ...]:
        """Return the names of all links, ``FROM>TO``."""
        orchestrators = self.names("orchestrator")
        replicas = [n for role in ("verifier", "drafter", "confidence") for n in self.names(role)]
        return (
            *(link(CLIENT, name) for name in orchestrators),
            *(link(name, REDIS) for name in orchestrators),
            *(link(name, replica) for name in orchestrators for replica in replicas),
            link(REPLICAS, REDIS),
        )

    @property
    def most_out(self) -> Mapping[str, int]:
        """Return how many of each role may be unreachable at the same time."""
        return {
            "orchestrator": 1,
            "verifier": self.verifiers - 1,
            "drafter": self.drafters,
            "confidence": self.confidence,
            REDIS: 1,
        }


def link(source: str, destination: str) -> str:
    """Return the name of the link on which ``source`` calls ``destination``."""
    return f"{source}>{destination}"


def ends(name: str) -> tuple[str, str]:
    """Return the two ends of a link."""
    source, _, destination = name.partition(">")
    return source, destination


def is_link(victim: str) -> bool:
    """Return whether ``victim`` is a link, not a process."""
    return ">" in victim


def role_of(process: str) -> str:
    """Return the role of a process: ``verifier`` for ``verifier-1``."""
    return process.rpartition("-")[0] or process


def schedule(seed: int, duration_s: float, shape: MeshShape) -> tuple[Fault, ...]:
    """Return the faults of ``duration_s`` seconds, in order; all of them end within that time."""
    return tuple(_faults(random.Random(f"faults {seed}"), duration_s, shape))  # noqa: S311


def _faults(rng: random.Random, duration_s: float, shape: MeshShape) -> Iterator[Fault]:
    out_until: dict[str, float] = {}
    at_s = rng.uniform(1, SOONEST_S)
    while at_s < duration_s:
        for _ in range(_MOST_TRIES):
            fault = _draw(rng, at_s, shape)
            out = [name for name, until_s in out_until.items() if until_s > at_s]
            back_s = at_s + fault.lasts_s + _recovery_s(fault.kind)
            if back_s < duration_s and may_go(fault, out, shape):
                out_until[out_of_reach(fault.victim)] = back_s
                yield fault
                break
        at_s += rng.uniform(SOONEST_S, LATEST_S)


def _draw(rng: random.Random, at_s: float, shape: MeshShape) -> Fault:
    role = rng.choices(
        ("orchestrator", "verifier", "drafter", "confidence", REDIS, "link"),
        weights=(5, 5, 2, 2, 3, 8),
    )[0]
    if role == "link":
        victim, kind = _draw_link(rng, shape), rng.choice(LINK_KINDS)
    else:
        victim = REDIS if role == REDIS else rng.choice(shape.names(role))
        kind = rng.choice(PROCESS_KINDS)
    return Fault(
        at_s=round(at_s, 3),
        kind=kind,
        victim=victim,
        lasts_s=round(_length_s(rng, kind, out_of_reach(victim)), 3),
        delay_s=round(rng.uniform(0.02, 0.3), 3) if kind is FaultKind.DELAY else 0.0,
    )


def _draw_link(rng: random.Random, shape: MeshShape) -> str:
    """Draw a link. Each pair of roles is equally likely, regardless of its number of links."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for name in shape.links:
        source, destination = ends(name)
        kinds.setdefault((role_of(source), role_of(destination)), []).append(name)
    return rng.choice(rng.choice(list(kinds.values())))


def _length_s(rng: random.Random, kind: FaultKind, out: str) -> float:
    """Draw the duration of the fault; it is shorter for Redis, of which there is only one."""
    longest_s = 4.0 if out == REDIS else 8.0
    if kind is FaultKind.CUT:
        return 0.0
    if kind in {FaultKind.KILL, FaultKind.TERM}:
        return rng.uniform(0.0, longest_s)
    # Every order of magnitude is equally likely, because most timeouts outlast short faults.
    factor: float = (longest_s / _SHORTEST_S) ** rng.random()
    return _SHORTEST_S * factor


def _recovery_s(kind: FaultKind) -> float:
    """Return roughly how long the victim then takes to serve again."""
    return {FaultKind.KILL: 4.0, FaultKind.TERM: 7.0}.get(kind, 1.0)


def out_of_reach(victim: str) -> str:
    """Return the process that others can't reach during a fault of ``victim``."""
    if not is_link(victim):
        return victim
    return ends(victim)[1]


def may_go(fault: Fault, out: Collection[str], shape: MeshShape) -> bool:
    """Return whether ``fault`` leaves enough processes when those in ``out`` are already
    unreachable."""
    victim = out_of_reach(fault.victim)
    role = role_of(victim)
    num_out = sum(role_of(name) == role for name in out)
    return victim not in out and num_out < shape.most_out[role]
