"""Counts what an answer took, from the commands and events that pass by."""

from __future__ import annotations

from specmesh.orchestrator.strategies.base import Commit, Drafted, Event, Verified, Verify


class Tally:
    """Drafted, verified, accepted and wasted tokens of one request."""

    def __init__(self) -> None:
        self.num_verify_calls = 0
        """Verifications that were answered."""
        self.num_draft_tokens = 0
        """Draft tokens in those."""
        self.num_drafted_tokens = 0
        """All that drafters sent, verified or not."""
        self.num_target_tokens = 0
        """Places at which the target was asked, also by verifications that were cancelled."""
        self.num_accepted_tokens = 0
        self.num_unchecked_tokens = 0
        """Draft tokens that became part of the answer without the target's say."""
        self._trees: dict[int, int] = {}

    @property
    def num_wasted_tokens(self) -> int:
        """Draft tokens made in vain: rejected, cancelled or cut off."""
        used = self.num_accepted_tokens + self.num_unchecked_tokens
        return self.num_drafted_tokens - used

    def asked(self, command: Verify) -> None:
        """A verification goes out."""
        self._trees[command.task] = len(command.tree)
        self.num_target_tokens += len(command.tree) + 1

    def happened(self, event: Event) -> None:
        """An event reaches the strategy."""
        match event:
            case Drafted():
                self.num_drafted_tokens += len(event.token_ids)
            case Verified():
                self.num_verify_calls += 1
                self.num_draft_tokens += self._trees.pop(event.task)

    def committed(self, command: Commit) -> None:
        """Draft tokens become part of the answer."""
        self.num_accepted_tokens += command.num_accepted
        if not command.checked:
            self.num_unchecked_tokens += len(command.token_ids)
