"""The language between strategies and their drivers: events in, commands out.

A strategy never awaits, sleeps, reads a clock or touches a socket. A driver calls ``start``
once and ``handle`` for every event, and performs the commands returned, in order, before
it hands in the next event. After ``Finish`` or ``GiveUp`` it cancels every task left and
sends no more events.

Positions count the answer's tokens from its start. A ``path`` holds tokens that follow what
is committed when the command is given.

In rejection mode an answer has the target's distribution if its strategy keeps to one rule. How
many tokens to draft, whether to verify them, and which of several verdicts counts must not depend
on the noise at the positions in question. It may depend on everything else: on the tokens before
them, on latencies, on the distributions that are drawn from. So

- a drawn token is never left out or moved because of what it turned out to be: a drafter that is
  unsure of a token may end the draft behind it, not before it;
- of two verdicts on one position the one that accepts more is not preferred;
- a strategy whose choices do depend on drawn tokens, as branch prediction's do, drafts with noise
  of its own for each task (``kit/draft_noise.py`` does that for all of them).

``decoding/acceptance.py`` says why that is enough; ``test_strategy_rejection.py`` tries every
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
"""Drivers name drafters so; a name stays one drafter's own while others come and go."""
TaskId = int
"""Chosen by the strategy, new for every task, so that a late answer to a cancelled task
cannot be taken for another's."""


@dataclass(frozen=True, slots=True)
class Goal(StrategyOptions):
    """What a strategy works towards, and the options it is given; validated by whoever made it.

    ``max_tokens`` is at least 1 and fits the context; ``end_of_text_ids`` is empty when they
    are to be ignored. ``seed``, any uint64, is the answer's, for predictors that guess at random.
    ``calibrated_trees`` has the best shape of 1 node, of 2 and so on, if any were calibrated.
    """

    max_tokens: int
    end_of_text_ids: frozenset[int] = frozenset()
    stop_token_ids: frozenset[int] = frozenset()
    seed: int = field(default=0, kw_only=True)
    calibrated_trees: Sequence[TreeShape] = field(default=(), kw_only=True)


class StopReason(Enum):
    """Why an answer is complete."""

    END_OF_TEXT = auto()
    STOP = auto()
    LENGTH = auto()


class TokenKind(Enum):
    """How a token of an answer came about."""

    UNKNOWN = auto()
    """In an earlier part of the answer; the target checked it."""
    ACCEPTED = auto()
    """Drafted, and accepted by the target."""
    RECOVERED = auto()
    """The target's own, in place of a draft token that it rejected."""
    BONUS = auto()
    """The target's own, after a draft that it accepted whole, or without one."""
    UNCHECKED = auto()
    """Drafted; the target was not asked."""


# Commands


@dataclass(frozen=True, slots=True)
class Draft:
    """Draft ``depth`` levels below ``from_nodes`` of ``tree``, which hangs from ``path``.

    The answer comes as ``Drafted`` events, one for every ``levels_per_message`` levels, with
    the ``num_choices`` likeliest tokens at each position. ``drafter`` is the place of one in the
    latest ``Capacity.drafters``. ``depth`` is 256 at most: a drafter refuses more.

    Two ways end a draft early. With a ``stop`` the drafter itself goes no further than its whole
    chain is worth it, and no message is waited for. ``Cancel`` ends it by any other rule, at the
    price of a message for each level and of the call, which has to be opened anew.

    Below each node grows a chain, or a tree: with ``growth``, which needs a ``stop``, or of the
    given ``shape``. A drafter of an older version drafts a chain all the same.
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
    it; ``growth``, ``stop`` and ``num_choices`` as in ``Draft``, so a chain without ``growth``."""

    depth: int
    growth: TreeGrowth | None = None
    stop: DraftStop | None = None
    num_choices: int = 0


@dataclass(frozen=True, slots=True)
class Verify:
    """Check ``tree``, which hangs from ``path`` (see ``Draft``), against the target; where a
    replica is to be sent chains alone, its best chain.

    ``drafting_on`` says that a drafter may have put a token at the bonus token's position by the
    time the verdict comes, so that the verdict is to bring ``Verdict.bonus``. ``next_draft`` is for
    ``Verified.next_draft``; a replica without heads answers without.
    """

    task: TaskId
    path: tuple[int, ...]
    tree: TokenTree
    distributions: Mapping[int, Distribution] = field(default_factory=dict)
    drafting_on: bool = False
    next_draft: NextDraft | None = None


@dataclass(frozen=True, slots=True)
class Assess:
    """Ask the confidence service which draft tokens to keep, given what the drafter thought at
    the ``positions`` that follow ``path`` (see ``Draft``), one after the other.

    The answer comes as ``Assessed``, and unless it keeps all, ``Released`` some time later.
    """

    task: TaskId
    path: tuple[int, ...]
    positions: tuple[TopK, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a task; no event of it follows."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class Commit:
    """These tokens are the answer's next, for good.

    The first ``num_accepted`` are the drafter's; ``checked`` unless the target was not asked about
    any. A token after those accepted is the target's own, ``recovered`` if in place of a draft
    token that it rejected.
    """

    token_ids: tuple[int, ...]
    num_accepted: int
    checked: bool = True
    recovered: bool = False

    @property
    def kinds(self) -> tuple[TokenKind, ...]:
        """How each token came about."""
        if not self.checked:
            return (TokenKind.UNCHECKED,) * len(self.token_ids)
        own = TokenKind.RECOVERED if self.recovered else TokenKind.BONUS
        num_own = len(self.token_ids) - self.num_accepted
        return (TokenKind.ACCEPTED,) * self.num_accepted + (own,) * num_own


@dataclass(frozen=True, slots=True)
class Finish:
    """The answer is complete."""

    reason: StopReason


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The answer cannot be completed; ``failed`` is the task whose failure decided that."""

    failed: TaskId


Command = Draft | Verify | Assess | Cancel | Commit | Finish | GiveUp


# Events


@dataclass(frozen=True, slots=True)
class Drafted:
    """More nodes of a draft, numbered on from those before; ``last`` ends the task.

    A task may end with fewer levels than asked for, or none. ``distributions`` (rejection
    mode) and ``choices`` (if asked for) are by the node that the new ones hang from.
    """

    task: TaskId
    token_ids: tuple[int, ...]
    parents: tuple[int, ...]
    distributions: Mapping[int, Distribution]
    last: bool
    choices: Mapping[int, TopK] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verified:
    """The target's answer to a tree, and what its heads drafted below ``verdict.next_token``, which
    is node 0: None if nothing was asked for, or a replica without heads has answered."""

    task: TaskId
    verdict: Verdict
    next_draft: Drafted | None = None
    tried: tuple[int, ...] | None = None
    """The only nodes that the replica was sent, since it verifies chains alone; None stands for
    all."""


@dataclass(frozen=True, slots=True)
class Assessed:
    """Which of the positions asked about are kept."""

    task: TaskId
    keeps: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Released:
    """The target may be asked about what was not kept: this ends the task."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class Failed:
    """A task ended without a result, after every retry that made sense."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the mesh can do: known at the start, and told again when it changes.

    ``num_verifiers`` replicas of the target are live (speculation parallelism, SP), and the
    different ``drafters``, the preferred one first. ``target_s`` is the time of one verification,
    ``drafter_s`` that of one drafted level, in seconds; None as long as none was measured.
    ``target_token_s`` is how much longer a verification takes for each token more in it;
    ``heads_s`` the time of one level that the target's heads draft, None if not known or without
    any, ``heads_depth`` how many they draft at most, 0 without any. ``target_s`` is without them.
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
        """What it takes to draft a token and to verify it with others, as a share of the time of
        a verification; None as long as it isn't known."""
        if not self.target_s or self.drafter_s is None:
            return None
        return (self.drafter_s + self.target_token_s) / self.target_s

    @property
    def token_cost(self) -> float:
        """How much longer each token makes a verification, as a share of its time."""
        return self.target_token_s / self.target_s if self.target_s else 0.0


Event = Drafted | Verified | Assessed | Released | Failed | Capacity


class Strategy(ABC):
    """How to reach a goal (see the module's docstring), and what a strategy says of itself."""

    needs_drafter: ClassVar[bool] = True
    """Whether a mesh that can have no drafter must refuse it."""
    asks_drafter: ClassVar[bool] = True
    """Whether it has a drafter draft, if there is one."""
    needs_confidence: ClassVar[bool] = False
    """Whether it asks the confidence service."""
    needs_heads: ClassVar[bool] = False
    """Whether it is pointless if no replica of the target has heads."""
    lossless: ClassVar[bool] = True
    """Whether its answers are the target's own. One whose answers aren't is never a default."""
    options: ClassVar[frozenset[str]] = frozenset({"lookahead"})
    """The fields of ``SpeculationOptions`` that mean something to it (see ``options.py``)."""

    @abstractmethod
    def __init__(self, goal: Goal) -> None: ...

    @abstractmethod
    def start(self, capacity: Capacity) -> Sequence[Command]:
        """The first commands."""

    @abstractmethod
    def handle(self, event: Event) -> Sequence[Command]:
        """What to do now that ``event`` happened."""
