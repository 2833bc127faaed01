"""The choice of draft tokens to keep: scores against a threshold, which may depend on recent
scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specmesh.decoding.drafting import TopK
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.predict.confidence import CALIBRATED, SCORERS, Scorer
from specmesh.decoding.predict.thresholds import FilterOptions, RecentScores, Rule


@dataclass(frozen=True, slots=True)
class Assessment:
    """Decisions on consecutive draft tokens: first the kept ones, then a run of escalated ones.

    Tokens after that run have a score, but are not decided on: the target's verdict may end the
    draft before them.
    """

    scorer: str
    scores: tuple[float, ...]
    threshold: float

    @property
    def keeps(self) -> tuple[bool, ...]:
        """Tell for each token if its score is above the threshold."""
        return tuple(score > self.threshold for score in self.scores)

    @property
    def num_kept(self) -> int:
        """The number of leading tokens that are kept."""
        return _leading(self.keeps, value=True)

    @property
    def num_escalated(self) -> int:
        """The number of tokens after those that are escalated to the target."""
        return _leading(self.keeps[self.num_kept :], value=False)


class Assessor:
    """The scorers, and the recent scores of each over all sessions of this process."""

    def __init__(self, scorer: str, rule: Rule, calibration: Scorer | None) -> None:
        """Use ``scorer`` and ``rule`` for requests that name none.

        Raises ``InvalidField`` for a scorer that is unknown, or lacks its calibration.
        """
        self._scorers: Mapping[str, Scorer] = (
            SCORERS if calibration is None else {**SCORERS, CALIBRATED: calibration}
        )
        self._recent = {name: RecentScores() for name in self._scorers}
        self._check(scorer)
        self._scorer = scorer
        self._rule = rule

    def assess(self, positions: Sequence[TopK], options: FilterOptions, load: float) -> Assessment:
        """Decide on draft tokens, and remember the scores of those that were decided on.

        ``positions`` are the drafter's choices at each token's position; ``load`` is that of the
        target, from 0 (idle) to 1 (busy). Raises ``InvalidField`` for a scorer that is unknown, or
        lacks its calibration.
        """
        name = options.scorer or self._scorer
        self._check(name)
        score, recent = self._scorers[name], self._recent[name]
        threshold = recent.threshold(options.rule or self._rule, load)
        assessment = Assessment(name, tuple(map(score, positions)), threshold)
        for decided in assessment.scores[: assessment.num_kept + assessment.num_escalated]:
            recent.add(decided)
        return assessment

    def _check(self, name: str) -> None:
        if name not in self._scorers:
            missing = (
                "this service has no calibration"
                if name == CALIBRATED
                else f"must be one of {', '.join(self._scorers)}"
            )
            raise InvalidField("scorer", missing)


def _leading(values: Sequence[bool], *, value: bool) -> int:
    """Count the leading elements of ``values`` that are ``value``."""
    return next((n for n, each in enumerate(values) if each is not value), len(values))
