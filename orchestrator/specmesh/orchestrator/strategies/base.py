"""The language between strategies and their drivers: events in, commands out.

A strategy never awaits, sleeps, reads a clock or touches a socket. A driver calls ``start`` once
and ``handle`` for every event, and performs the returned commands in order before it passes in the
next event. After ``Finish`` or ``GiveUp`` it cancels every remaining task and sends no more events.

Positions count the answer's tokens from its start.

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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from specmesh.decoding.predict.acceptance_rate import MeshAcceptance
from specmesh.decoding.trees.shape import TreeShape
from specmesh.orchestrator.strategies.commands import Command
from specmesh.orchestrator.strategies.events import Capacity, Event
from specmesh.orchestrator.strategies.options import StrategyOptions


@dataclass(frozen=True, slots=True)
class Goal(StrategyOptions):
    """The goal of a strategy, with its options, which its creator has to validate.

    ``max_tokens`` is at least 1 and fits the context; ``end_of_text_ids`` is empty if they are to
    be ignored. ``seed``, any uint64, is the answer's, for predictors that guess at random.
    ``calibrated_trees`` has the best shape with 1 node, with 2 and so on, if any were calibrated.
    ``acceptance`` is what the strategy has learnt from all answers: it affects only speed.
    """

    max_tokens: int
    end_of_text_ids: frozenset[int] = frozenset()
    stop_token_ids: frozenset[int] = frozenset()
    seed: int = field(default=0, kw_only=True)
    calibrated_trees: Sequence[TreeShape] = field(default=(), kw_only=True)
    acceptance: MeshAcceptance = field(
        default_factory=MeshAcceptance, kw_only=True, compare=False, repr=False
    )


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

    now: float = 0.0
    """The time in seconds at which the event came that is being handled, by the driver's clock.
    It only serves to measure speeds."""

    @abstractmethod
    def __init__(self, goal: Goal) -> None: ...

    @property
    def explanation(self) -> str:
        """The choices that the strategy has made, for people; empty if there are none to tell."""
        return ""

    @property
    def current(self) -> type[Strategy]:
        """The strategy that decides what is drafted at the moment: this one, unless it changes
        between others."""
        return type(self)

    @abstractmethod
    def start(self, capacity: Capacity) -> Sequence[Command]:
        """Return the first commands."""

    @abstractmethod
    def handle(self, event: Event) -> Sequence[Command]:
        """Return the commands that follow from ``event``."""
