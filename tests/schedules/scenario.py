"""What a seed chooses before anything happens. All times are virtual seconds."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field

from tests.schedules.models import VOCAB_SIZE

from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.orchestrator.strategies import STRATEGIES

LONGEST_FAULT_S = 8.0
LAST_FAULT_S = 10.0
"""By then everything is well again, and stays so."""

KINDS = {
    "kill orchestrator": 4,
    "freeze orchestrator": 4,
    "break calls": 3,
    "proxy error": 2,
    "stall call": 2,
    "kill verifier": 2,
    "freeze verifier": 2,
    "sick verifier": 4,
    "sick drafter": 2,
    "sick confidence": 1,
    "kill drafter": 1,
    "cut": 2,
    "bad links": 2,
    "kill redis": 2,
    "freeze redis": 4,
    "late redis": 3,
    "lossy redis": 3,
    "garbage hints": 2,
    "lag and die": 4,
    "theft": 2,
    "replace verifier": 3,
    "dns away": 2,
    "damaged session": 3,
    "other template": 2,
    "small verifier": 2,
}
"""Faults, and how often each is chosen."""

OF_NAMES = {"replace verifier", "dns away", "small verifier"}
"""With one of these a mesh finds its verifiers by a name; otherwise their addresses are listed."""

ADDED = {"damaged session", "garbage hints", "other template", "small verifier"}
"""Those that came after seeds had been noted whose meaning is to stay."""


CHOSEN = ("autoregressive", "speculative", "dsi", "branch-prediction", "exhaustive", "filter")
"""The first strategies of the questions; with one more, every seed would mean another schedule."""
LATER = {0: "tree", 1: "heads", 2: "heads-and-drafter", 3: "auto"}
SHARES = 11
"""The others: of each a question in so many, by the seed that it is asked with."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong at ``at`` and is well again ``lasts`` later."""

    kind: str
    at: float
    lasts: float


@dataclass(frozen=True, slots=True)
class Question:
    """What one client asks."""

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    strategy: str
    lookahead: int | None
    asked_at: float
    leaves_at: float | None
    """When it loses interest, if it does."""

    @property
    def has_truth(self) -> bool:
        """Whether the text is known beforehand."""
        exact = STRATEGIES[self.strategy].lossless
        return exact and self.sampling.mode is not AcceptanceMode.REJECTION


@dataclass(frozen=True, slots=True)
class Scenario:
    """A mesh, its load and its faults."""

    num_orchestrators: int
    num_verifiers: int
    agreements: tuple[float, ...]
    """Of each drafter."""
    has_filter: bool
    has_store: bool
    latency_s: float
    target_s: float
    drafter_s: float
    redis_s: float
    questions: tuple[Question, ...]
    faults: tuple[Fault, ...] = field(default=())
    width: int | None = None
    """What all questions ask for; never by chance, since that would make another schedule of every
    seed."""

    @property
    def has_name(self) -> bool:
        """Whether orchestrators look up who the verifiers are."""
        return any(fault.kind in OF_NAMES for fault in self.faults)

    def has_heads(self, number: int) -> bool:
        """Whether that verifier has heads: every second one, and all where they may be replaced, or
        there could be nobody left who has any."""
        return self.has_name or number % 2 == 0


def choose_scenario(rng: random.Random, kinds: Collection[str]) -> Scenario:
    """Short answers, and faults of ``kinds`` while they come."""
    questions = tuple(_question(rng) for _ in range(rng.choice((1, 1, 1, 2))))
    target_s = rng.choice((0.005, 0.02, 0.05, 0.2))
    busy_s = target_s * max(question.max_tokens for question in questions)
    speculates = any(STRATEGIES[question.strategy].needs_drafter for question in questions)
    return Scenario(
        num_orchestrators=rng.choice((1, 2, 2, 2, 3)),
        num_verifiers=rng.choice((1, 2, 2, 3)),
        agreements=tuple(
            rng.choice((0.0, 0.5, 0.8, 1.0)) for _ in range(rng.choice((1, 1, 2)) * speculates)
        ),
        has_filter=any(STRATEGIES[question.strategy].needs_confidence for question in questions),
        has_store=rng.random() < 0.95,
        latency_s=rng.choice((0.0002, 0.001, 0.01)),
        target_s=target_s,
        drafter_s=target_s * rng.choice((0.05, 0.2, 1.0)),
        redis_s=rng.choice((0.0003, 0.002, 0.02)),
        questions=questions,
        faults=tuple(_fault(rng, busy_s, kinds) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4)))),
    )


def _question(rng: random.Random) -> Question:
    mode = rng.choice((AcceptanceMode.GREEDY, AcceptanceMode.COUPLED, AcceptanceMode.REJECTION))
    asked_at = rng.choice((0.0, rng.random() * 0.2))
    prompt = tuple(rng.randrange(1, VOCAB_SIZE) for _ in range(rng.choice((1, 3, 9, 20))))
    max_tokens = rng.randint(3, 14)
    seed = rng.getrandbits(53)
    strategy = rng.choice(CHOSEN)
    return Question(
        prompt=prompt,
        max_tokens=max_tokens,
        sampling=Sampling(
            temperature=0.0 if mode is AcceptanceMode.GREEDY else 1.0, seed=seed, mode=mode
        ),
        strategy=LATER.get(seed % SHARES, strategy),
        lookahead=rng.choice((None, None, 1, 3)),
        asked_at=asked_at,
        leaves_at=asked_at + rng.random() if rng.random() < 0.05 else None,
    )


def _fault(rng: random.Random, busy_s: float, kinds: Collection[str]) -> Fault:
    at = rng.random() * min(busy_s * 1.5, LAST_FAULT_S - LONGEST_FAULT_S)
    lasts = LONGEST_FAULT_S * 10 ** -(rng.random() * 3)
    (kind,) = rng.choices(tuple(kinds), [KINDS[kind] for kind in kinds])
    return Fault(kind, at, lasts)
