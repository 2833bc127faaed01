"""The candidates for the choices of a completion: ``best_of`` are generated, ``n`` are returned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specmesh.client import GenerationResult


def likeliest(
    results: Sequence[GenerationResult], num_candidates: int, n: int, *, keep_logprobs: bool
) -> list[GenerationResult]:
    """Return the ``n`` best candidates of each prompt, the best first: those of the highest
    log-probability per token, as OpenAI defines it, under the target's own distribution. They have
    log-probabilities of their own only if the caller has asked for some."""
    chosen = [
        each
        for start in range(0, len(results), num_candidates)
        for each in sorted(results[start : start + num_candidates], key=_mean_logprob)[-n:][::-1]
    ]
    return chosen if keep_logprobs else [replace(each, logprobs=()) for each in chosen]


def _mean_logprob(result: GenerationResult) -> float:
    """Return the log-probability per token; the least of all for an answer of none."""
    logprobs = [each.chosen.logprob for each in result.logprobs]
    return sum(logprobs) / len(logprobs) if logprobs else float("-inf")
