"""Counts what an answer took, from the commands and events that pass by."""

from __future__ import annotations

from specmesh.orchestrator.strategies.base import (
    Cancel,
    Commit,
    Drafted,
    Event,
    Failed,
    Verified,
    Verify,
)


class RequestStats:
    """Drafted, verified, accepted and wasted tokens of one request."""

    def __init__(self) -> None:
        self.num_verify_calls = 0
        """Verifications that were answered."""
        self.num_verified_tokens = 0
        """Draft tokens that the target has judged: in verifications that were answered, or by its
        own token at their place, without one."""
        self.num_drafted_tokens = 0
        """All that drafters sent, verified or not."""
        self.num_target_tokens = 0
        """Places at which the target was asked, also by verifications that were cancelled."""
        self.num_accepted_tokens = 0
        self.num_unchecked_tokens = 0
        """Draft tokens that became part of the answer without the target's say."""
        self._asked: dict[int, range] = {}
        """By task: the places of the answer that a verification's tokens stand at, as if they
        were a chain."""
        self._judged: set[int] = set()
        """Places not yet committed whose tokens count as judged."""
        self._length = 0

    @property
    def num_wasted_tokens(self) -> int:
        """Draft tokens made in vain: rejected, cancelled or cut off."""
        used = self.num_accepted_tokens + self.num_unchecked_tokens
        return self.num_drafted_tokens - used

    def asked(self, command: Verify) -> None:
        """A verification goes out."""
        first = self._length + len(command.path)
        self._asked[command.task] = range(first, first + len(command.tree))
        self.num_target_tokens += len(command.tree) + 1

    def cancelled(self, command: Cancel) -> None:
        """A task is of no use any more."""
        self._asked.pop(command.task, None)

    def happened(self, event: Event) -> None:
        """An event reaches the strategy."""
        match event:
            case Drafted():
                self.num_drafted_tokens += len(event.token_ids)
            case Verified():
                self.num_verify_calls += 1
                # What is committed by now was judged by whoever spoke first.
                places = [p for p in self._asked.pop(event.task) if p >= self._length]
                self.num_verified_tokens += len(places)
                self._judged.update(places)
            case Failed():
                self._asked.pop(event.task, None)

    def committed(self, command: Commit) -> None:
        """Tokens become part of the answer."""
        own = self._length + command.num_accepted
        judged = [*range(self._length, own)]
        self._length += len(command.token_ids)
        stands = own == self._length
        if not stands and any(own in places for places in self._asked.values()):
            judged.append(own)
        self.num_verified_tokens += sum(place not in self._judged for place in judged)
        self._judged = {p for p in self._judged if p >= self._length} if stands else set()
        self.num_accepted_tokens += command.num_accepted
        if not command.checked:
            self.num_unchecked_tokens += len(command.token_ids)
