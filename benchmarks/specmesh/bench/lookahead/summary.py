"""What the runs say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from specmesh.bench.strategies.measure import AUTOREGRESSIVE, Run


@dataclass(frozen=True, slots=True)
class Figures:
    """Speculative decoding with one lookahead at one temperature."""

    lookahead: int | None
    """Tokens of every draft; None is the one that adapts."""
    tokens_per_s: float
    """All tokens over all the time."""
    median_tokens_per_s: float
    """Over the prompts."""
    speedup: float
    """Of ``tokens_per_s`` over that of autoregressive decoding."""
    drafted_per_verify: float
    accepted_per_verify: float
    differing_prompts: tuple[int, ...]
    """Prompts whose answers are not those of autoregressive decoding, token by token."""


@dataclass(frozen=True, slots=True)
class Contest:
    """All lookaheads at one temperature."""

    temperature: float
    autoregressive_tokens_per_s: float
    fixed: Sequence[Figures]
    adaptive: Figures

    @property
    def best_fixed(self) -> Figures:
        """The fastest of them: chosen with hindsight, on the very runs that it is judged by."""
        return max(self.fixed, key=lambda figures: figures.tokens_per_s)

    @property
    def ratio(self) -> float:
        """How many times as fast as the best fixed lookahead the one that adapts is."""
        return self.adaptive.tokens_per_s / self.best_fixed.tokens_per_s

    @property
    def identical(self) -> bool:
        """Whether all texts are those of autoregressive decoding; False shows a bug."""
        return not any(each.differing_prompts for each in (*self.fixed, self.adaptive))


def contest(runs: Sequence[Run], lookaheads: Sequence[int], temperature: float) -> Contest:
    """Sum up the runs at one temperature; each prompt must have been run with all."""
    there = [run for run in runs if run.temperature == temperature]
    plain = [run for run in there if run.strategy == AUTOREGRESSIVE]
    by_lookahead = {
        lookahead: _figures(
            lookahead,
            [r for r in there if r.strategy != AUTOREGRESSIVE and r.lookahead == lookahead],
            plain,
        )
        for lookahead in (*lookaheads, None)
    }
    return Contest(
        temperature,
        _tokens_per_s(plain),
        [by_lookahead[lookahead] for lookahead in lookaheads],
        by_lookahead[None],
    )


def _figures(lookahead: int | None, runs: Sequence[Run], plain: Sequence[Run]) -> Figures:
    stats = [run.result.stats for run in runs]
    num_verify_calls = sum(each.num_verify_calls for each in stats)
    said = {run.prompt: run.result.token_ids for run in plain}
    return Figures(
        lookahead=lookahead,
        tokens_per_s=_tokens_per_s(runs),
        median_tokens_per_s=median(run.tokens_per_s for run in runs),
        speedup=_tokens_per_s(runs) / _tokens_per_s(plain),
        drafted_per_verify=sum(each.num_drafted_tokens for each in stats) / num_verify_calls,
        accepted_per_verify=sum(each.num_accepted_tokens for each in stats) / num_verify_calls,
        differing_prompts=tuple(
            run.prompt for run in runs if run.result.token_ids != said[run.prompt]
        ),
    )


def _tokens_per_s(runs: Sequence[Run]) -> float:
    return sum(len(run.result.token_ids) for run in runs) / sum(run.seconds for run in runs)
