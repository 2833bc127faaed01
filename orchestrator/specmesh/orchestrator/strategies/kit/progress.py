"""The progress of an answer, and where it must end."""

from __future__ import annotations

from collections.abc import Sequence

from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import Command, Commit, Finish, StopReason


class Progress:
    """The answer so far, measured against the goal."""

    def __init__(self, goal: Goal) -> None:
        self.token_ids: list[int] = []
        """All committed tokens."""
        self.ended = False
        self._goal = goal

    @property
    def remaining(self) -> int:
        """The number of tokens that the answer may still have."""
        return self._goal.max_tokens - len(self.token_ids)

    @property
    def draftable(self) -> int:
        """The position before which drafting pays: the last token comes from the target anyway."""
        return self._goal.max_tokens - 1

    def commit(
        self,
        token_ids: Sequence[int],
        num_accepted: int,
        *,
        checked: bool = True,
        recovered: bool = False,
    ) -> list[Command]:
        """Commit verified or unchecked tokens, cut where the answer ends.

        The first ``num_accepted`` were drafted; the one after them is ``recovered`` or a bonus
        token. The last command is ``Finish`` if the answer ends.
        """
        tokens = token_ids[: self.remaining]
        reason = None
        for index, token in enumerate(tokens):
            if reason := self._ends_with(token):
                tokens = tokens[: index + 1]
                break
        self.token_ids += tokens
        if reason is None and not self.remaining:
            reason = StopReason.LENGTH
        num_accepted = min(num_accepted, len(tokens))
        commit = Commit(
            tuple(tokens), num_accepted, checked, recovered and num_accepted < len(tokens)
        )
        self.ended = reason is not None
        return [commit] if reason is None else [commit, Finish(reason)]

    def _ends_with(self, token: int) -> StopReason | None:
        if token in self._goal.end_of_text_ids:
            return StopReason.END_OF_TEXT
        return StopReason.STOP if token in self._goal.stop_token_ids else None
