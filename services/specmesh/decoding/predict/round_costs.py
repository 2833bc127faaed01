"""The times by which strategies decide how much to draft for a round."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """The times of one round in seconds.

    A verification takes ``target_s`` as drafts usually are, and ``alone_s`` if no call has any
    draft tokens. Drafting another level takes ``level_s`` of this answer's time. One more draft
    token takes ``token_s`` in its verification: the sum of the times by which it delays this answer
    and all others that wait for the same replica.
    """

    target_s: float
    level_s: float
    token_s: float
    alone_s: float
