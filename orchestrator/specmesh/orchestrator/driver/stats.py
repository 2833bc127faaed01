"""Counts the tokens and calls of an answer from its strategy's commands and events."""

from __future__ import annotations

from specmesh.orchestrator.strategies.commands import Cancel, Commit, Verify
from specmesh.orchestrator.strategies.events import Drafted, Event, Failed, Verified


class RequestStats:
    """Drafted, verified, accepted and wasted tokens of one request."""

    def __init__(self) -> None:
        self.num_verify_calls = 0
        """Verifications that were answered."""
        self.num_verified_tokens = 0
        """Draft tokens that the target has judged, either in an answered verification or by its own
        token at their position. A chain counts the same with second choices as without."""
        self.num_drafted_tokens = 0
        """All tokens that drafters sent, verified or not, and the second choices of
        verifications."""
        self.num_target_tokens = 0
        """Positions that the target was asked for, cancelled verifications included."""
        self.num_accepted_tokens = 0
        self.num_unchecked_tokens = 0
        """Draft tokens that were committed without a check by the target."""
        self.explanation = ""
        """The strategy's latest explanation of its choices."""
        self._positions: dict[int, range] = {}
        """Positions in the answer of each verification's draft tokens, as if they were a chain, by
        task. A second choice shares the position of a token of the chain."""
        self._counted: set[int] = set()
        """Uncommitted positions whose draft tokens are counted as verified."""
        self._length = 0

    @property
    def num_committed_tokens(self) -> int:
        """All tokens of the answer."""
        return self._length

    @property
    def num_wasted_tokens(self) -> int:
        """Draft tokens drafted in vain: rejected, cancelled or cut off."""
        used = self.num_accepted_tokens + self.num_unchecked_tokens
        return self.num_drafted_tokens - used

    def sent(self, command: Verify) -> None:
        """Count a verification that is sent."""
        first = self._length + len(command.path)
        num_others = len(command.tree) - command.num_second_choices
        self._positions[command.task] = range(first, first + num_others)
        self.num_drafted_tokens += command.num_second_choices
        self.num_target_tokens += len(command.tree) + 1

    def goes_on(self, verified: Verified) -> None:
        """Count the further token with which a task goes on after one that was ``verified``."""
        self._positions[verified.task] = range(0)
        self.num_target_tokens += 1

    def cancelled(self, command: Cancel) -> None:
        """Forget a task that is cancelled."""
        self._positions.pop(command.task, None)

    def handled(self, event: Event) -> None:
        """Count an event that reaches the strategy."""
        match event:
            case Drafted():
                self.num_drafted_tokens += len(event.token_ids)
            case Verified():
                self.num_verify_calls += 1 + len(event.collected)
                self.num_target_tokens += len(event.collected)
                if event.next_draft is not None:
                    self.num_drafted_tokens += len(event.next_draft.token_ids)
                # Positions committed in the meantime were counted when they were committed.
                positions = [p for p in self._positions.pop(event.task) if p >= self._length]
                self.num_verified_tokens += len(positions)
                self._counted.update(positions)
            case Failed():
                self._positions.pop(event.task, None)

    def committed(self, command: Commit) -> None:
        """Count tokens that are committed."""
        end = self._length + command.num_accepted
        judged = [*range(self._length, end)]
        self._length += len(command.token_ids)
        all_accepted = end == self._length
        if not all_accepted and any(end in positions for positions in self._positions.values()):
            judged.append(end)
        self.num_verified_tokens += sum([position not in self._counted for position in judged])
        self._counted = {p for p in self._counted if p >= self._length} if all_accepted else set()
        self.num_accepted_tokens += command.num_accepted
        if not command.checked:
            self.num_unchecked_tokens += len(command.token_ids)
