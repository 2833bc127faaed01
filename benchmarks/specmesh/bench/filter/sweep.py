"""The runs of the same prompts with every threshold and with the target alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specmesh.client import Filter
from specmesh.tools.kit.experiment import (
    AUTOREGRESSIVE,
    FILTER,
    GREEDY,
    Experiment,
    Run,
    Speculation,
)


@dataclass(frozen=True, slots=True)
class FilterSetting:
    """A filter that keeps the tokens that ``scorer`` scores above ``threshold``."""

    scorer: str
    threshold: float


def speculation(setting: FilterSetting | None) -> Speculation:
    """Return the strategy with this filter; None means the target alone."""
    if setting is None:
        return Speculation(AUTOREGRESSIVE)
    return Speculation(FILTER, filter=Filter(setting.scorer, setting.threshold))


def setting_of(run: Run) -> FilterSetting | None:
    """Return the filter of a run; None means the target alone."""
    chosen = run.speculation.filter
    if chosen is None:
        return None
    assert chosen.threshold is not None
    return FilterSetting(chosen.scorer, chosen.threshold)


def sweep(prompts: Sequence[str], settings: Sequence[FilterSetting], num_tokens: int) -> Experiment:
    """Return the experiment: every prompt with the target alone and with every setting,
    greedily."""
    return Experiment(
        prompts=prompts,
        speculations=[speculation(each) for each in (None, *settings)],
        temperatures=(GREEDY,),
        num_tokens=num_tokens,
    )
