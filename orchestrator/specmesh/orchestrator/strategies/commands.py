"""The commands of strategies to their drivers.

A ``path`` holds the tokens between those that are committed when the command is issued and the
command's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from specmesh.decoding.drafting import TopK
from specmesh.decoding.predict.lookahead import DraftStop
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.trees.growth import TreeGrowth
from specmesh.decoding.trees.shape import TreeShape
from specmesh.decoding.trees.tree import EMPTY, TokenTree

TaskId = int
"""Chosen by the strategy, new for every task, so that a late answer to a cancelled task cannot be
mistaken for that of another."""


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

    ``num_further`` asks for up to that many further tokens behind an empty tree, without a
    ``next_draft``: each comes as one more ``Verified``, with the verdict on an empty tree behind
    all tokens before it. The strategy commits each, or cancels the task. With ``may_wait`` the
    replica may collect several, which then come with one ``Verified``: only for a strategy that has
    no other verification beside this one and cancels it for no other reason than its verdict.

    The last ``num_second_choices`` nodes stand beside a chain of the others. No draft brought them:
    they are guesses at the token that replaces one of the chain.
    """

    task: TaskId
    path: tuple[int, ...]
    tree: TokenTree
    distributions: Mapping[int, Distribution] = field(default_factory=dict)
    drafting_on: bool = False
    next_draft: NextDraft | None = None
    num_further: int = 0
    may_wait: bool = False
    num_second_choices: int = 0


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
    """End an answer that cannot be completed; ``failed`` is the task whose failure decided that, in
    response to its ``Failed`` event."""

    failed: TaskId


Command = Draft | Verify | Assess | Cancel | Commit | Finish | GiveUp
