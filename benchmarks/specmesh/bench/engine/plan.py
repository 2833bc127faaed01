"""What is measured."""

from __future__ import annotations

from dataclasses import dataclass

PROMPT_TOKENS = (16, 256)
"""Length of the prompts, shortest and longest."""

WIDTHS = (1, 2, 4, 8, 16, 32, 64)
"""Tokens that go through the forward of a verification: the prefix's last one and the drafts."""
WIDTH_PREFIX_TOKENS = 128

SESSIONS = 16
COMMON_TOKENS = 256
OWN_TOKENS = 16
"""Of the sessions that begin with one system prompt."""

_FEWEST_ANSWERS = 8


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """What the user asked for.

    ``streams`` says how many at once, 1 first; all of it is done ``rounds`` times: figures
    are the fastest round's, ratios the median over all turns. ``num_tokens`` is the length of
    every answer.
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
        """More than streams: every stream goes on with another prompt."""
        return max(_FEWEST_ANSWERS, 2 * num_streams)

    def turns(self, num_streams: int) -> list[slice]:
        """Which of the answers are made before it is the other program's turn.

        One stream's are made one after the other anyway. More streams are left to end when
        they end: to wait for the last of them would cost what continuous batching saves.
        """
        count = self.num_answers(num_streams)
        length = 1 if num_streams == 1 else count
        return [slice(first, first + length) for first in range(0, count, length)]

    @property
    def num_context_tokens(self) -> int:
        """What the model must be able to hold."""
        return max(
            PROMPT_TOKENS[1] + self.num_tokens,
            WIDTH_PREFIX_TOKENS + WIDTHS[-1],
            COMMON_TOKENS + OWN_TOKENS + 1,
        )
