"""The language between strategies and their drivers: events in, commands out.

A strategy never awaits, sleeps, reads a clock or touches a socket. A driver calls ``start`` once
and ``handle`` for every event, and performs the returned commands in order before it passes in the
next event. After ``Finish`` or ``GiveUp`` it cancels every remaining task and sends no more events.

Positions count the answer's tokens from its start. A ``path`` holds the tokens between those that
are committed when the command is issued and the command's own.

In rejection mode an answer has the target's distribution if its strategy keeps to one rule. The
number of tokens to draft, whether to verify them, and which of several verdicts counts must not
depend on the noise at the positions in question. They may depend on everything else: on the tokens
before them, on latencies, on the distributions that are drawn from. Therefore

- a drawn token is never left out or moved because of its value: a drafter that is unsure of a token
  may end the draft after it, not before it;
- of two verdicts on one position, the one that accepts more is not preferred;
- a strategy whose choices do depend on drawn tokens, as those of branch prediction do, drafts with
  noise of its own for each task (``kit/draft_noise.py`` does that for all strategies).

``decoding/acceptance.py`` explains why that is enough; ``test_strategy_rejection.py`` tests every
lossless strategy of the registry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import ClassVar

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.drafting import TopK
from specmesh.decoding.predict.lookahead import DraftStop
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.trees.growth import TreeGrowth
from specmesh.decoding.trees.shape import TreeShape
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.orchestrator.strategies.options import StrategyOptions

DrafterName = str | int
"""The driver's name of a drafter, which keeps it while other drafters come and go."""
TaskId = int
"""Chosen by the strategy, new for every task, so that a late answer to a cancelled task cannot be
mistaken for that of another."""


@dataclass(frozen=True, slots=True)
class Goal(StrategyOptions):
    """The goal of a strategy, with its options, which its creator has to validate.

    ``max_tokens`` is at least 1 and fits the context; ``end_of_text_ids`` is empty if they are to
    be ignored. ``seed``, any uint64, is the answer's, for predictors that guess at random.
    ``calibrated_trees`` has the best shape with 1 node, with 2 and so on, if any were calibrated.
    """

    max_tokens: int
    end_of_text_ids: frozenset[int] = frozenset()
    stop_token_ids: frozenset[int] = frozenset()
    seed: int = field(default=0, kw_only=True)
    calibrated_trees: Sequence[TreeShape] = field(default=(), kw_only=True)


class StopReason(Enum):
    """The reason why an answer is complete."""

    END_OF_TEXT = auto()
    STOP = auto()
    LENGTH = auto()


class TokenKind(Enum):
    """The origin of an answer's token."""

    UNKNOWN = auto()
    """Part of an earlier stretch of the answer, checked by the target."""
    ACCEPTED = auto()
    """Drafted, and accepted by the target."""
    RECOVERED = auto()
    """The target's own token, in place of a draft token that it rejected."""
    BONUS = auto()
    """The target's own token, after a fully accepted draft or without one."""
    UNCHECKED = auto()
    """Drafted, and not checked by the target."""


# Commands


@dataclass(frozen=True, slots=True)
class Draft:
    """Draft ``depth`` levels below ``from_nodes`` of ``tree``, whose root follows ``path``.

    The result arrives as ``Drafted`` events, one for every ``levels_per_message`` levels, with the
    ``num_choices`` likeliest tokens at each position. ``drafter`` is an index into the latest
    ``Capacity.drafters``. ``depth`` is at most 256: drafters refuse more.

    A draft can end early in two ways. With a ``stop``, the drafter itself ends it once its tokens
    are too unlikely to be all accepted, and no extra message is needed. ``Cancel`` ends it by any
    other rule, at the price of one message per level and of the call, which has to be reopened.

    A chain grows below each node, or a tree: with ``growth``, which needs a ``stop``, or of the
    given ``shape``. A drafter of an older version drafts a chain in any case.
    """

    task: TaskId
    path: tuple[int, ...]
    depth: int
    levels_per_message: int = 1
    tree: TokenTree = EMPTY
    from_nodes: tuple[int, ...] = (0,)
    num_choices: int = 0
    drafter: int = 0
    stop: DraftStop | None = None
    growth: TreeGrowth | None = None
    shape: TreeShape | None = None


@dataclass(frozen=True, slots=True)
class NextDraft:
    """Draft ``depth`` levels below a verdict's next token, with the heads of the replica that gives
    it. ``growth``, ``stop`` and ``num_choices`` are as in ``Draft``: without ``growth``, a chain.
    """

    depth: int
    growth: TreeGrowth | None = None
    stop: DraftStop | None = None
    num_choices: int = 0


@dataclass(frozen=True, slots=True)
class Verify:
    """Check ``tree``, whose root follows ``path`` (see ``Draft``), against the target. A replica
    that only verifies chains is sent the tree's best chain.

    ``drafting_on`` says that a drafter may have drafted a token at the bonus token's position when
    the verdict arrives, so that the verdict should contain ``Verdict.bonus``. ``next_draft``
    requests ``Verified.next_draft``, which replicas without heads omit.
    """

    task: TaskId
    path: tuple[int, ...]
    tree: TokenTree
    distributions: Mapping[int, Distribution] = field(default_factory=dict)
    drafting_on: bool = False
    next_draft: NextDraft | None = None


@dataclass(frozen=True, slots=True)
class Assess:
    """Ask the confidence service which draft tokens to keep, given the drafter's likeliest tokens
    at the consecutive ``positions`` that follow ``path`` (see ``Draft``).

    The result arrives as ``Assessed`` and, unless all tokens are kept, ``Released`` later.
    """

    task: TaskId
    path: tuple[int, ...]
    positions: tuple[TopK, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a task, which then has no more events."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class Commit:
    """Append tokens to the answer, irrevocably.

    The first ``num_accepted`` are the drafter's. ``checked`` is False if the target checked none of
    the tokens. A token after the accepted ones is the target's own, ``recovered`` if it replaces a
    draft token that the target rejected.
    """

    token_ids: tuple[int, ...]
    num_accepted: int
    checked: bool = True
    recovered: bool = False

    @property
    def kinds(self) -> tuple[TokenKind, ...]:
        """The kind of each token."""
        if not self.checked:
            return (TokenKind.UNCHECKED,) * len(self.token_ids)
        own = TokenKind.RECOVERED if self.recovered else TokenKind.BONUS
        num_own = len(self.token_ids) - self.num_accepted
        return (TokenKind.ACCEPTED,) * self.num_accepted + (own,) * num_own


@dataclass(frozen=True, slots=True)
class Finish:
    """Complete the answer."""

    reason: StopReason


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End an answer that cannot be completed; ``failed`` is the task whose failure decided that."""

    failed: TaskId


Command = Draft | Verify | Assess | Cancel | Commit | Finish | GiveUp


# Events


@dataclass(frozen=True, slots=True)
class Drafted:
    """More nodes of a draft, numbered on from the previous ones; ``last`` ends the task.

    A task may end with fewer levels than requested, or none. ``distributions`` (rejection mode) and
    ``choices`` (if requested) are keyed by the parent of the new nodes.
    """

    task: TaskId
    token_ids: tuple[int, ...]
    parents: tuple[int, ...]
    distributions: Mapping[int, Distribution]
    last: bool
    choices: Mapping[int, TopK] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verified:
    """The target's verdict on a tree, and what its heads drafted below ``verdict.next_token``,
    which is node 0; None if no draft was requested or the replica has no heads."""

    task: TaskId
    verdict: Verdict
    next_draft: Drafted | None = None
    tried: tuple[int, ...] | None = None
    """The only nodes that were sent to the replica, if it verifies chains only; None means all."""


@dataclass(frozen=True, slots=True)
class Assessed:
    """The decisions whether to keep each of the assessed positions."""

    task: TaskId
    keeps: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Released:
    """The target may now verify the tokens that were not kept; this ends the task."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class Failed:
    """A task ended without a result, after every sensible retry."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of the mesh: known at the start, and sent again when it changes.

    ``num_verifiers`` is the number of live target replicas (speculation parallelism, SP);
    ``drafters`` are the different drafters, the preferred one first. ``target_s`` is the time of
    one verification, heads excluded, and ``drafter_s`` that of one drafted level, in seconds; None
    until measured. ``target_token_s`` is the time that each additional token adds to a
    verification. ``heads_s`` is the time of one level that the target's heads draft, None if it is
    unknown or there are no heads; ``heads_depth`` the most levels that they draft, 0 without heads.
    """

    num_verifiers: int = 1
    drafters: tuple[DrafterName, ...] = (0,)
    target_s: float | None = None
    drafter_s: float | None = None
    target_token_s: float = 0.0
    heads_s: float | None = None
    heads_depth: int = 0

    @property
    def draft_cost(self) -> float | None:
        """The cost of drafting a token and verifying it among others, as a share of the time of a
        verification; None until it is known."""
        if not self.target_s or self.drafter_s is None:
            return None
        return (self.drafter_s + self.target_token_s) / self.target_s

    @property
    def token_cost(self) -> float:
        """The time that each token adds to a verification, as a share of a verification's time."""
        return self.target_token_s / self.target_s if self.target_s else 0.0


Event = Drafted | Verified | Assessed | Released | Failed | Capacity


class Strategy(ABC):
    """A way to reach a goal (see the module's docstring), with the properties of the strategy."""

    needs_drafter: ClassVar[bool] = True
    """True if a mesh that can have no drafter must refuse this strategy."""
    asks_drafter: ClassVar[bool] = True
    """True if a drafter drafts, if there is one."""
    needs_confidence: ClassVar[bool] = False
    """True if the confidence service is used."""
    needs_heads: ClassVar[bool] = False
    """True if the strategy is pointless if no replica of the target has heads."""
    lossless: ClassVar[bool] = True
    """True if the answers are the target's own. A strategy that is not lossless is never a default.
    """
    options: ClassVar[frozenset[str]] = frozenset({"lookahead"})
    """The fields of ``SpeculationOptions`` that apply to the strategy (see ``options.py``)."""

    @abstractmethod
    def __init__(self, goal: Goal) -> None: ...

    @abstractmethod
    def start(self, capacity: Capacity) -> Sequence[Command]:
        """Return the first commands."""

    @abstractmethod
    def handle(self, event: Event) -> Sequence[Command]:
        """Return the commands that follow from ``event``."""
