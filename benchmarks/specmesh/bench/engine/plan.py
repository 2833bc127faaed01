"""The plan of ``specmesh bench engine``."""

from __future__ import annotations

from dataclasses import dataclass

PROMPT_TOKENS = (16, 256)
"""Lengths of the shortest and the longest prompt."""

WIDTHS = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of tokens in the forward of a verification: the prefix's last one and the draft
tokens."""
WIDTH_PREFIX_TOKENS = 128

SESSIONS = 16
COMMON_TOKENS = 256
OWN_TOKENS = 16
"""The number of sessions with one system prompt, its length, and the length of the rest."""

_FEWEST_ANSWERS = 8


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """The user's options.

    ``streams`` are the numbers of concurrent streams, 1 first. Everything is measured ``rounds``
    times: figures are those of the fastest round, ratios the median over all turns. ``num_tokens``
    is the length of every answer.
    """

    model: str
    dtype: str
    device: str
    threads: int
    streams: tuple[int, ...]
    num_tokens: int
    rounds: int
    seed: int

    def num_answers(self, num_streams: int) -> int:
        """Return the number of answers: more than streams, so that every stream continues with
        another prompt."""
        return max(_FEWEST_ANSWERS, 2 * num_streams)

    def turns(self, num_streams: int) -> list[slice]:
        """Return the answers of each turn; programs take turns.

        With one stream each answer is a turn. With more all answers are one turn, because waiting
        more often for the slowest stream would cost what continuous batching saves.
        """
        count = self.num_answers(num_streams)
        length = 1 if num_streams == 1 else count
        return [slice(first, first + length) for first in range(0, count, length)]

    @property
    def num_context_tokens(self) -> int:
        """Return the context length that the model must have."""
        return max(
            PROMPT_TOKENS[1] + self.num_tokens,
            WIDTH_PREFIX_TOKENS + WIDTHS[-1],
            COMMON_TOKENS + OWN_TOKENS + 1,
        )
