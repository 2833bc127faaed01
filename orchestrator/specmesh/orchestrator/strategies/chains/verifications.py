"""The verifications that are in flight at the same time, each of a part of a chain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.strategies.chains.chain import Chain
from specmesh.orchestrator.strategies.commands import Cancel, TaskId
from specmesh.orchestrator.strategies.events import DrafterName, Verified


@dataclass(slots=True)
class InFlightVerification:
    """A verification of ``tokens[start - origin:]``, which assumes the tokens before them.

    The first of ``tokens`` has position ``origin``, the number of tokens committed when it was
    sent. Its verdict gives the tokens at positions ``start`` to ``end``, both included. ``tree``
    has the verified tokens and possibly second choices beside them.
    """

    drafter: DrafterName
    """The drafter whose chain it verifies."""
    origin: int
    start: int
    tokens: tuple[int, ...]
    tree: TokenTree
    answer: Verified | None = None
    """None until there is a verdict."""
    decodes_on: bool = False
    """The target was asked for further tokens after its verdict's."""

    @property
    def end(self) -> int:
        """The position after the tokens it verifies, where a bonus token goes."""
        return self.origin + len(self.tokens)

    def assumed(self, position: int) -> tuple[int, ...]:
        """Return its tokens from ``position`` on, whether it verifies them or not."""
        return self.tokens[position - self.origin :]

    def goes_on_after(self, text: Sequence[int]) -> bool:
        """Return whether its verdict gives a token after ``text``, the answer so far. If ``text``
        contains one of its second choices, the choice replaces the tokens from there on."""
        since = tuple(text[self.origin :])
        path = self.tokens[: self.start - self.origin]
        if since[: len(path)] != path[: len(since)]:
            return False
        node = 0
        for token in since[len(path) :]:
            child = self.tree.child_with(node, token)
            if child is None:
                return False
            node = child
        if since != self.tokens[: len(since)]:
            self.tokens = since
        return True

    def asks_after(self, position: int, tokens: tuple[int, ...]) -> bool:
        """Return whether it verifies a draft token after ``tokens``, the first at ``position``."""
        at = position + len(tokens)
        return self.start <= at < self.end and self.assumed(position)[: len(tokens)] == tokens

    def accepted(self) -> tuple[int, ...]:
        """Return the tokens from ``start`` on that the target accepts; needs a verdict."""
        assert self.answer is not None
        return self.tree.tokens_on(self.answer.verdict.accepted_nodes)


class Verifications:
    """The verifications of one answer, by task, the earliest first, until their tokens are
    committed. ``position`` is always that of the answer's next token."""

    def __init__(self) -> None:
        self._by_task: dict[TaskId, InFlightVerification] = {}

    def __setitem__(self, task: TaskId, check: InFlightVerification) -> None:
        self._by_task[task] = check

    def __iter__(self) -> Iterator[InFlightVerification]:
        return iter(self._by_task.values())

    def get(self, task: TaskId) -> InFlightVerification | None:
        """Return the verification of ``task``, if there is one."""
        return self._by_task.get(task)

    def pop(self, task: TaskId) -> InFlightVerification | None:
        """Remove and return the verification of ``task``, if there is one."""
        return self._by_task.pop(task, None)

    def current(self, position: int) -> InFlightVerification | None:
        """Return the current verifier: the verification that covers ``position``."""
        return next((check for check in self if check.start <= position), None)

    def pop_verdict(self, position: int) -> tuple[TaskId, InFlightVerification, Verified] | None:
        """Remove and return a verification that covers ``position`` and has its verdict, and that,
        if there is one."""
        for task, check in self._by_task.items():
            if check.start <= position and check.answer is not None:
                return task, self._by_task.pop(task), check.answer
        return None

    @property
    def decodes_on(self) -> bool:
        """True if the target was asked to decode on by one of them."""
        return any(check.decodes_on for check in self)

    def cut_off(self) -> list[Cancel]:
        """Remove those by which the target decodes on, and return the commands to cancel them."""
        tasks = [task for task, check in self._by_task.items() if check.decodes_on]
        for task in tasks:
            del self._by_task[task]
        return [Cancel(task) for task in tasks]

    @property
    def num_running(self) -> int:
        """Number of verifications without a verdict, each of which occupies a replica."""
        return sum(1 for check in self if check.answer is None)

    def verified_up_to(self, chain: Chain, position: int) -> int:
        """Return the position up to which the chain's tokens are being verified, by any chain.

        In rejection mode only this chain's own verifications count. If one were sent only because
        two drafters drew different tokens, then which of two verdicts comes first would depend on
        the noise that these verdicts depend on (see the rule in ``base.py``).
        """
        shared = not chain.distributions
        ends = [
            check.end
            for check in self
            if (shared or check.drafter == chain.drafter)
            and check.assumed(position) == chain.between(position, check.end)
        ]
        return max(ends, default=position)

    def terminate(self, text: Sequence[int]) -> list[Cancel]:
        """Remove those that assumed other tokens than ``text``, the answer so far, and return the
        commands to cancel those that run."""
        refuted = {
            task: check for task, check in self._by_task.items() if not check.goes_on_after(text)
        }
        for task in refuted:
            del self._by_task[task]
        return [Cancel(task) for task, check in refuted.items() if check.answer is None]
