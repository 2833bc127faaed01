"""The comparison of strategies by speed and compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from specmesh.tools.demo.repeats import repeated_share
from specmesh.tools.kit.experiment import AUTOREGRESSIVE, Run, differing_prompts


@dataclass(frozen=True, slots=True)
class StrategyFigures:
    """One strategy at one temperature; counts of tokens and calls are totals over all prompts."""

    strategy: str
    tokens_per_s: float
    """Median over the prompts."""
    ratio: float
    """Median over the prompts of the speedup: tokens per second over those of autoregressive
    decoding."""
    acceptance: float | None
    """Accepted over verified draft tokens, over all prompts; None without drafts."""
    num_output_tokens: int
    num_verify_calls: int
    num_drafted_tokens: int
    """All tokens that drafters sent, verified or not."""
    num_verified_tokens: int
    """Draft tokens in verifications that were answered."""
    num_accepted_tokens: int
    num_wasted_tokens: int
    """Draft tokens that did not become part of the answer."""
    num_target_tokens: int
    """Positions in all verifications sent to the target, including cancelled ones."""
    differing_prompts: tuple[int, ...]
    """Prompts whose answers differ from those of autoregressive decoding in any token."""

    @property
    def tokens_per_verify(self) -> float:
        """Return the output tokens per answered verification."""
        return self.num_output_tokens / self.num_verify_calls

    @property
    def identical(self) -> bool:
        """Return whether all texts equal those of autoregressive decoding; False reveals a bug."""
        return not self.differing_prompts


@dataclass(frozen=True, slots=True)
class Comparison:
    """All strategies at one temperature, by name, in the order of the runs."""

    temperature: float
    repeated_share: float
    """Share of the tokens of autoregressive decoding that repeat (see ``repeats``), over all
    prompts."""
    strategies: Mapping[str, StrategyFigures]

    @property
    def identical(self) -> bool:
        """Return whether all strategies gave the same texts."""
        return all(figures.identical for figures in self.strategies.values())


def compare(runs: Sequence[Run], strategies: Sequence[str], temperature: float) -> Comparison:
    """Summarise the runs at one temperature; each prompt must have been run with all strategies."""
    by_strategy: dict[str, dict[int, Run]] = {name: {} for name in strategies}
    for run in runs:
        if run.temperature == temperature:
            by_strategy[run.speculation.strategy][run.prompt] = run
    plain = by_strategy[AUTOREGRESSIVE]
    return Comparison(
        temperature,
        repeated_share(run.result.token_ids for run in plain.values()),
        {name: _figures(name, own, plain) for name, own in by_strategy.items()},
    )


def _figures(strategy: str, runs: Mapping[int, Run], plain: Mapping[int, Run]) -> StrategyFigures:
    stats = [run.result.stats for run in runs.values()]
    num_verified_tokens = sum(each.num_verified_tokens for each in stats)
    num_accepted_tokens = sum(each.num_accepted_tokens for each in stats)
    return StrategyFigures(
        strategy=strategy,
        tokens_per_s=median(run.tokens_per_s for run in runs.values()),
        ratio=median(run.tokens_per_s / plain[n].tokens_per_s for n, run in runs.items()),
        acceptance=num_accepted_tokens / num_verified_tokens if num_verified_tokens else None,
        num_output_tokens=sum(len(run.result.token_ids) for run in runs.values()),
        num_verify_calls=sum(each.num_verify_calls for each in stats),
        num_drafted_tokens=sum(each.num_drafted_tokens for each in stats),
        num_verified_tokens=num_verified_tokens,
        num_accepted_tokens=num_accepted_tokens,
        num_wasted_tokens=sum(each.num_wasted_tokens for each in stats),
        num_target_tokens=sum(each.num_target_tokens for each in stats),
        differing_prompts=differing_prompts(runs, plain),
    )
