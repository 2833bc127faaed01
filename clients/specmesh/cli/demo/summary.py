"""What the runs say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from specmesh.cli.demo.measure import AUTOREGRESSIVE, SPECULATIVE, Run


@dataclass(frozen=True, slots=True)
class Figures:
    """One strategy at one temperature, over all prompts."""

    strategy: str
    tokens_per_s: float
    """Median over the prompts."""
    acceptance: float | None
    """Accepted over verified draft tokens, all prompts together; None without drafts."""
    num_verify_calls: int
    tokens_per_verify: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both strategies at one temperature."""

    temperature: float
    autoregressive: Figures
    speculative: Figures
    speedup: float
    """Median over the prompts of speculative over autoregressive tokens per second."""
    differing_prompts: tuple[int, ...]
    """Prompts whose answers are not the same, token by token; empty unless there is a bug."""


def compare(runs: Sequence[Run], temperature: float) -> Comparison:
    """Sum up the runs at one temperature; each prompt must have been run with both."""
    at_temperature = [run for run in runs if run.temperature == temperature]
    plain = {run.prompt: run for run in at_temperature if run.strategy == AUTOREGRESSIVE}
    spec = {run.prompt: run for run in at_temperature if run.strategy == SPECULATIVE}
    return Comparison(
        temperature=temperature,
        autoregressive=_figures(list(plain.values())),
        speculative=_figures(list(spec.values())),
        speedup=median(spec[n].tokens_per_s / plain[n].tokens_per_s for n in plain),
        differing_prompts=tuple(
            n for n in plain if plain[n].result.token_ids != spec[n].result.token_ids
        ),
    )


def _figures(runs: Sequence[Run]) -> Figures:
    stats = [run.result.stats for run in runs]
    num_draft_tokens = sum(each.num_draft_tokens for each in stats)
    num_accepted_tokens = sum(each.num_accepted_tokens for each in stats)
    num_verify_calls = sum(each.num_verify_calls for each in stats)
    return Figures(
        strategy=runs[0].strategy,
        tokens_per_s=median(run.tokens_per_s for run in runs),
        acceptance=num_accepted_tokens / num_draft_tokens if num_draft_tokens else None,
        num_verify_calls=num_verify_calls,
        tokens_per_verify=sum(len(run.result.token_ids) for run in runs) / num_verify_calls,
    )
