"""The conclusions from the runs: quality and speed by threshold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specmesh.bench.filter.fidelity import Answers, Fidelity, JudgedTexts
from specmesh.bench.filter.sweep import FilterSetting, setting_of
from specmesh.tools.kit.experiment import Run, tokens_per_s

SHARE = 0.4
"""Kept share at which the quality is stated."""


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """The figures of one setting over all prompts.

    ``text_agreement`` is the share of positions with the same token as the target's own text; one
    differing token may shift all that follow.
    """

    scorer: str
    threshold: float
    kept_share: float
    """Share of output tokens that the target did not verify."""
    tokens_per_s: float
    agreement: float
    """Share of tokens that the target would have chosen, given the preceding ones."""
    target_loglik: float
    """Mean log-probability of a token by the target, in nats."""
    text_agreement: float


@dataclass(frozen=True, slots=True)
class Margin:
    """The quality where ``SHARE`` of the tokens are kept: 0 is the drafter's, 1 the target's.

    It is interpolated between the nearest points.
    """

    scorer: str
    agreement: float
    target_loglik: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The points by scorer and threshold, beside the target alone on the same prompts."""

    points: Sequence[SweepPoint]
    margins: Sequence[Margin]
    target_tokens_per_s: float
    end_points_exact: bool
    """True if threshold minus infinity gave the drafter's own texts, and infinity the target's."""


def answers_of(runs: Sequence[Run], setting: FilterSetting | None) -> Answers:
    """Return the answers of one setting, by prompt."""
    own = sorted((run for run in runs if setting_of(run) == setting), key=lambda run: run.prompt)
    return [run.result.token_ids for run in own]


def threshold_for(runs: Sequence[Run], scorer: str, share: float) -> float:
    """Return the threshold of ``scorer`` that keeps ``share``, interpolated between finite ones."""
    by_share: dict[float, float] = {}
    for setting in set(map(setting_of, runs)):
        if setting is not None and setting.scorer == scorer and math.isfinite(setting.threshold):
            by_share[kept_share(runs, setting)] = setting.threshold
    return at_share(sorted(by_share.items()), share)


def kept_share(runs: Sequence[Run], setting: FilterSetting) -> float:
    """Return the share of the tokens of all answers that the target did not verify."""
    results = [run.result for run in runs if setting_of(run) == setting]
    return sum(len(each.unchecked) for each in results) / sum(
        len(each.token_ids) for each in results
    )


def summarise(
    runs: Sequence[Run], settings: Sequence[FilterSetting], judged: JudgedTexts
) -> Summary:
    """Summarise the runs; ``judged`` has the fidelities of ``settings``, in order."""
    points = [
        _point(runs, setting, fidelity)
        for setting, fidelity in zip(settings, judged.fidelities, strict=True)
    ]
    ends = {-math.inf: judged.drafter_answers, math.inf: answers_of(runs, None)}
    scorers = dict.fromkeys(setting.scorer for setting in settings)
    return Summary(
        points=points,
        margins=[_margin([each for each in points if each.scorer == name]) for name in scorers],
        target_tokens_per_s=tokens_per_s([run for run in runs if setting_of(run) is None]),
        end_points_exact=all(
            list(map(list, answers_of(runs, each))) == list(map(list, ends[each.threshold]))
            for each in settings
            if each.threshold in ends
        ),
    )


def at_share(values: Sequence[tuple[float, float]], share: float) -> float:
    """Return the value at ``share``, interpolated between ordered pairs (share, value).

    Beyond the first and the last pair it is theirs.
    """
    for (below, first), (above, second) in itertools.pairwise(values):
        if below <= share < above:
            weight = (share - below) / (above - below)
            return (1 - weight) * first + weight * second
    return values[0][1] if share < values[0][0] else values[-1][1]


def _margin(points: Sequence[SweepPoint]) -> Margin:
    ordered = sorted(points, key=lambda point: point.kept_share)

    def part(value: Callable[[SweepPoint], float]) -> float:
        target, drafter = value(ordered[0]), value(ordered[-1])
        found = at_share([(point.kept_share, value(point)) for point in ordered], SHARE)
        return (found - drafter) / (target - drafter) if target != drafter else math.nan

    return Margin(
        scorer=points[0].scorer,
        agreement=part(lambda point: point.agreement),
        target_loglik=part(lambda point: point.target_loglik),
    )


def _point(runs: Sequence[Run], setting: FilterSetting, fidelity: Fidelity) -> SweepPoint:
    own = [run for run in runs if setting_of(run) == setting]
    num_tokens = sum(len(run.result.token_ids) for run in own)
    texts = zip(answers_of(runs, setting), answers_of(runs, None), strict=True)
    num_same = sum(
        token == other for ours, theirs in texts for token, other in zip(ours, theirs, strict=True)
    )
    return SweepPoint(
        scorer=setting.scorer,
        threshold=setting.threshold,
        kept_share=kept_share(runs, setting),
        tokens_per_s=tokens_per_s(own),
        agreement=fidelity.agreement,
        target_loglik=fidelity.log_probability,
        text_agreement=num_same / num_tokens,
    )
