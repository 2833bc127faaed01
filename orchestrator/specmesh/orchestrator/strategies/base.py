"""The language between strategies and their drivers: events in, commands out.

A strategy never awaits, sleeps, reads a clock or touches a socket. A driver calls ``start``
once and ``handle`` for every event, and performs the commands returned, in order, before
it hands in the next event. After ``Finish`` or ``GiveUp`` it cancels every task left and
sends no more events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.tree import TokenTree

TaskId = int
"""Chosen by the strategy, new for every task, so that a late answer to a cancelled task
cannot be taken for another's."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a strategy works towards, validated by whoever made it.

    ``max_tokens`` is at least 1 and fits the context; ``end_of_text_ids`` is empty when they
    are to be ignored; ``lookahead`` is the number of draft tokens a verification covers.
    """

    max_tokens: int
    end_of_text_ids: frozenset[int] = frozenset()
    stop_token_ids: frozenset[int] = frozenset()
    lookahead: int = 4


class FinishReason(Enum):
    """Why an answer is complete."""

    END_OF_TEXT = auto()
    STOP = auto()
    LENGTH = auto()


# Commands


@dataclass(frozen=True, slots=True)
class Draft:
    """Draft ``depth`` tokens below ``path``: tokens that follow what is committed by now.

    The answer comes as ``Drafted`` events, one for every ``levels_per_message`` levels.
    """

    task: TaskId
    path: tuple[int, ...]
    depth: int
    levels_per_message: int


@dataclass(frozen=True, slots=True)
class Verify:
    """Check ``tree``, which hangs from ``path`` (see ``Draft``), against the target."""

    task: TaskId
    path: tuple[int, ...]
    tree: TokenTree
    distributions: Mapping[int, Distribution] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a task; no event of it follows."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class Commit:
    """These tokens are the answer's next, for good.

    ``num_accepted`` of them are the drafter's.
    """

    token_ids: tuple[int, ...]
    num_accepted: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The answer is complete."""

    reason: FinishReason


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The answer cannot be completed; ``failed`` is the task whose failure decided that."""

    failed: TaskId


Command = Draft | Verify | Cancel | Commit | Finish | GiveUp


# Events


@dataclass(frozen=True, slots=True)
class Drafted:
    """More nodes of a draft, numbered on from those before; ``last`` ends the task.

    A task may end with fewer levels than asked for, or none.
    """

    task: TaskId
    token_ids: tuple[int, ...]
    parents: tuple[int, ...]
    distributions: Mapping[int, Distribution]
    last: bool


@dataclass(frozen=True, slots=True)
class Verified:
    """The target's answer to a tree."""

    task: TaskId
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Failed:
    """A task ended without a result, after every retry that made sense."""

    task: TaskId


Event = Drafted | Verified | Failed


class Strategy(Protocol):
    """How to reach a goal (see the module's docstring)."""

    def start(self) -> Sequence[Command]:
        """The first commands."""
        ...

    def handle(self, event: Event) -> Sequence[Command]:
        """What to do now that ``event`` happened."""
        ...
