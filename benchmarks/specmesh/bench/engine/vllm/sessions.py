"""Sessions as a verifier sees them: each call begins a few tokens after the previous one, at any
place in a block of the KV cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from specmesh.bench.engine.plan import PROMPT_TOKENS

NUM_DRAFT_TOKENS = (0, 1, 2, 4, 8, 16)
ROUNDS = dict.fromkeys(NUM_DRAFT_TOKENS, 40) | {0: 160}
"""Number of timed verifications of each session, by its draft tokens. Without draft tokens, which
are compared with vLLM's own steps, there are more, so that each place in a block occurs several
times, and slow moments of the machine even out."""
WARM_UP = 2
"""Number of verifications before those; the first reads the prompt."""

NUM_TEXT_TOKENS = PROMPT_TOKENS[1] + max(
    (WARM_UP + rounds) * (drafted + 1) for drafted, rounds in ROUNDS.items()
)
"""Maximum length of a session."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A draft below a prefix; the session continues with its first ``num_kept`` tokens, regardless
    of the verdict."""

    prefix: list[int]
    draft: list[int]
    num_kept: int


def session(
    text: Sequence[int], num_prompt_tokens: int, num_draft_tokens: int, seed: Sequence[int]
) -> Iterator[Ask]:
    """Yield verifications along ``text``; a random part of each draft is kept."""
    random = np.random.default_rng(seed)
    length = num_prompt_tokens
    for _ in range(WARM_UP + ROUNDS[num_draft_tokens]):
        num_kept = int(random.integers(0, num_draft_tokens, endpoint=True))
        right = list(text[length : length + num_kept])
        wrong = [text[0]] * (num_draft_tokens - num_kept)
        yield Ask(list(text[:length]), right + wrong, num_kept)
        length += num_kept + 1
