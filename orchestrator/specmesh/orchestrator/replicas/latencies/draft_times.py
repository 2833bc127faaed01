"""The time that drafting takes, by the levels of a draft and the tokens of a level."""

from __future__ import annotations

from specmesh.decoding.predict.forward_times import ForwardTimes
from specmesh.orchestrator.replicas.latencies.sliding import RunningMedian


class DraftTimes:
    """Learns what a level takes, and what each of its tokens adds.

    Heads and drafters compute a row for each token of a level, and choose the tokens below it one
    by one: on a small CPU a level of three tokens takes twice as long as one of a single token. A
    GPU computes them at once.
    """

    def __init__(self) -> None:
        self._levels = ForwardTimes()
        self._reading_s = RunningMedian()
        self._is_known = False

    def add(self, num_levels: int, num_nodes: int, seconds: float) -> None:
        """Record that ``num_levels`` (at least 1) with ``num_nodes`` in all took ``seconds``."""
        self._levels.add(num_nodes / num_levels, seconds / num_levels)
        self._is_known = True

    def add_with_prefix(self, num_levels: int, num_nodes: int, seconds: float) -> None:
        """Record levels, as in ``add``, for which much of a prefix was read first. What that takes
        is learnt once it is known what levels do."""
        if self._is_known:
            drafting_s = num_levels * self._levels.at(num_nodes / num_levels)
            self._reading_s.add(max(0.0, seconds - drafting_s))

    @property
    def reading_s(self) -> float:
        """The seconds that it usually takes to read a prefix which is new to the drafter, mostly a
        whole prompt; 0 until one was read."""
        return self._reading_s.value or 0.0

    @property
    def level_s(self) -> float | None:
        """The seconds of a level with one token, rounded to hide small changes; None until one was
        drafted."""
        return float(f"{self._levels.at(1):.1e}") if self._is_known else None

    @property
    def sibling_s(self) -> float:
        """The seconds that each further token adds to a level, rounded; 0 until levels of different
        widths were drafted."""
        return float(f"{self._levels.row_s:.1e}")
