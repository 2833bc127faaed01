"""What the streams ask, and how their readers behave: drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from specmesh.client import AcceptanceMode, Filter

FILTER = "filter"
STRATEGIES = ("autoregressive", "speculative", "dsi", "branch-prediction", "exhaustive", FILTER)

SURE_TEMPERATURE = 0.8
"""At it the simulated target's token is certain, whatever the mode."""
DRAWING_TEMPERATURE = 15.0
"""At it its token has three quarters of the probability."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request and its reader, who leaves after ``cancel_after`` tokens, or doesn't read for
    ``stall_s`` seconds after ``stall_after``."""

    prompt: str | tuple[int, ...]
    strategy: str
    temperature: float
    mode: AcceptanceMode
    seed: int
    max_tokens: int
    lookahead: int | None = None
    threshold: float | None = None
    stop_token_ids: tuple[int, ...] = ()
    cancel_after: int | None = None
    stall_after: int | None = None
    stall_s: float = 0.0

    @property
    def mode_name(self) -> str:
        """``greedy``, ``coupled`` or ``rejection``."""
        return "greedy" if self.temperature == 0 else self.mode.value

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of ``Client.generate``."""
        filtered = self.strategy == FILTER
        return {
            "strategy": self.strategy,
            "temperature": self.temperature,
            "acceptance_mode": self.mode,
            "seed": self.seed,
            "max_tokens": self.max_tokens,
            "lookahead": self.lookahead,
            "stop_token_ids": self.stop_token_ids,
            "ignore_end_of_text": True,
            "filter": Filter(threshold=self.threshold) if filtered else None,
        }


def draw(rng: random.Random, vocab_size: int) -> Ask:
    """A request to a simulated model with ``vocab_size`` tokens."""
    prompt = tuple(rng.randrange(vocab_size) for _ in range(_magnitude(rng, 1, 300)))
    return behaving(
        rng,
        Ask(
            prompt=prompt,
            strategy=rng.choice(STRATEGIES),
            temperature=rng.choice((0.0, SURE_TEMPERATURE, DRAWING_TEMPERATURE)),
            mode=rng.choice(list(AcceptanceMode)),
            seed=rng.getrandbits(64),
            max_tokens=_magnitude(rng, 16, 800),
            lookahead=rng.choice((None, None, 1, 4, 8)),
            # Of the simulated drafter's scores, which are 0 or nearly so at the first two.
            threshold=rng.choice((None, -0.5, 0.5)),
            stop_token_ids=(rng.randrange(vocab_size),) if rng.random() < 0.1 else (),  # noqa: PLR2004
        ),
    )


def behaving(rng: random.Random, ask: Ask) -> Ask:
    """Three readers in four read to the end; of the others half leave, half stall."""
    somewhere = rng.randrange(ask.max_tokens)
    match rng.randrange(8):
        case 0:
            return replace(ask, cancel_after=somewhere)
        case 1:
            return replace(ask, stall_after=somewhere, stall_s=rng.uniform(0.5, 5.0))
    return ask


def _magnitude(rng: random.Random, least: int, most: int) -> int:
    """As likely short as long, by orders of magnitude."""
    factor: float = (most / least) ** rng.random()
    return round(least * factor)
