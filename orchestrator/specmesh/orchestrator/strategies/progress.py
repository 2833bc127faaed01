"""What every strategy shares: how far the answer is, and where it must end."""

from __future__ import annotations

from collections.abc import Sequence

from specmesh.orchestrator.strategies.base import Command, Commit, Finish, FinishReason, Goal


class Progress:
    """Counts committed tokens against the goal."""

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._num_tokens = 0

    @property
    def remaining(self) -> int:
        """How many more tokens the answer may have."""
        return self._goal.max_tokens - self._num_tokens

    def commit(self, accepted: Sequence[int], next_token: int) -> list[Command]:
        """Commit a verified path and the target's own token, cut where the answer ends.

        The last command is ``Finish`` if it does.
        """
        tokens = [*accepted, next_token][: self.remaining]
        reason = None
        for index, token in enumerate(tokens):
            if reason := self._ends_with(token):
                tokens = tokens[: index + 1]
                break
        self._num_tokens += len(tokens)
        if reason is None and not self.remaining:
            reason = FinishReason.LENGTH
        commit = Commit(tuple(tokens), min(len(accepted), len(tokens)))
        return [commit] if reason is None else [commit, Finish(reason)]

    def _ends_with(self, token: int) -> FinishReason | None:
        if token in self._goal.end_of_text_ids:
            return FinishReason.END_OF_TEXT
        return FinishReason.STOP if token in self._goal.stop_token_ids else None
