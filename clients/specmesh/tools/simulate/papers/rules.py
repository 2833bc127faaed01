"""The strategies' times by the papers' counting rules, from the positions where the drafter is
right.

With common random numbers the target has one text for all algorithms, and the drafter is right or
wrong at each of its positions. That pattern determines every algorithm's time: rules over it choose
the lookaheads to run on the virtual clock, and the two must agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specmesh.decoding.simulated.hashed import SimulatedDrafter


@dataclass(frozen=True, slots=True)
class Forwards:
    """Numbers of forwards of each model, none of which overlap."""

    drafter: int
    target: int

    def seconds(self, drafter_s: float, target_s: float) -> float:
        """Return their total time in seconds."""
        return self.drafter * drafter_s + self.target * target_s


def agreements(
    drafter: SimulatedDrafter, prompt: Sequence[int], num_tokens: int
) -> tuple[bool, ...]:
    """Return whether the drafter's first choice is the target's token, ``[num_tokens]``."""
    target = drafter.target
    state = target.after(target.start, prompt)
    agree = []
    for _ in range(num_tokens):
        token = target.token(state)
        agree.append(drafter.choices(state)[0] == token)
        state = target.after(state, (token,))
    return tuple(agree)


def speculative_forwards(agree: Sequence[bool], lookahead: int) -> Forwards:
    """Return the forwards of speculative inference (DSI, Appendix F.4).

    The published loop charges ``lookahead`` drafter forwards and one of the target for each
    iteration. Here an iteration drafts up to the last token but one, because the last is the
    target's; that only shortens drafts that would overshoot the end.
    """
    position = drafted = rounds = 0
    while position < len(agree):
        depth = min(lookahead, len(agree) - 1 - position)
        accepted = 0
        while accepted < depth and agree[position + accepted]:
            accepted += 1
        position += accepted + 1
        drafted += depth
        rounds += 1
    return Forwards(drafted, rounds)


def ideal_dsi_seconds(agree: Sequence[bool], drafter_s: float, target_s: float) -> float:
    """Return the least time of DSI with one drafter: a target forward per rejection and one at the
    end.

    This is Proposition 1 before the expectation is taken: one verification per token, none of which
    waits.
    """
    hidden = sum(agree[:-1])
    return hidden * drafter_s + (len(agree) - hidden) * target_s


def dsi_seconds(agree: Sequence[bool], lookahead: int, drafter_s: float, target_s: float) -> float:
    """Return DSI's time where Equation 1 holds and ``lookahead`` tokens are drafted in less than T.

    Between two rejections a verification is sent every ``lookahead`` tokens, beginning with one of
    no draft tokens, and never waits. The first one that covers a wrong token rejects it. It may
    take longer at the very end: the last block is shorter, so it is sent sooner after the previous
    one than Equation 1 assumes, and may find no free replica.
    """
    return sum(
        min(-(-right // lookahead) * lookahead, room) * drafter_s + target_s
        for right, room in _segments(agree)
    )


def slow_draft_bound_seconds(agree: Sequence[bool], drafter_s: float, target_s: float) -> float:
    """Return the least time of DSI with lookaheads that take T or longer to draft.

    The first verification with draft tokens is then sent at the earliest T after a rejection,
    unless the answer's end is drafted sooner.
    """
    return sum(
        target_s + (max(right * drafter_s, min(target_s, room * drafter_s)) if right else 0.0)
        for right, room in _segments(agree)
    )


def _segments(agree: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield for each stretch between rejections the number of right draft tokens, and of those that
    fit."""
    position = 0
    while position < len(agree):
        room = right = len(agree) - 1 - position
        for ahead in range(room):
            if not agree[position + ahead]:
                right = ahead
                break
        yield right, room
        position += right + 1
