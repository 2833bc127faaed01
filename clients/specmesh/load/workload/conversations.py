"""The conversations to send, of one or several turns: random, or read from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Protocol

from specmesh.load.workload.draws import drawn_for
from specmesh.load.workload.lengths import ConstantLength, Length
from specmesh.load.workload.trace_files import MOONCAKE_BLOCK_TOKENS, TraceEntry

_WORDS = """
the of and to in is you that it he was for on are as with his they at be this have from or
one had by word but not what all were we when your can said there use an each which she do
how their if will up other about out many then them these so some her would make like him
into time has look two more write go see number no way could people my than first water been
call who oil its now find long down day did get come made may part
"""
WORDS = tuple(_WORDS.split())
"""Short, common words: most tokenizers have a single token for each with its leading space."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a conversation. ``num_output_tokens`` limits its answer; None leaves the limit
    to the workload."""

    text: str
    num_output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """The turns of a conversation; each is sent with all previous turns and their answers, and in
    a chat behind the ``system`` messages."""

    turns: tuple[Turn, ...]
    system: tuple[str, ...] = ()
    num_left_out: int = 0
    """Number of further system messages, which are not at the beginning and never sent."""


class Conversations(Protocol):
    """A source of conversations."""

    kind: ClassVar[str]
    """The name of the class in reports."""

    def conversation(self, number: int, seed: int, words_per_token: float) -> Conversation:
        """Return the conversation of a number, always the same for equal arguments."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthetic:
    """Conversations of random words, so that prompts share a beginning only on purpose.

    Each conversation begins with one of ``prefix_groups`` prefixes of ``prefix_tokens`` tokens.
    Lengths are in tokens; the actual ones vary slightly with the words drawn.
    """

    kind: ClassVar[str] = "synthetic"

    prompt_tokens: Length
    turns: Length = ConstantLength(1)  # noqa: RUF009 - it is frozen
    prefix_groups: int = 0
    prefix_tokens: int = 0

    def conversation(self, number: int, seed: int, words_per_token: float) -> Conversation:
        """Return a conversation whose first turn begins with a prefix, if there are prefixes."""
        rng = drawn_for(seed, "conversation", number)
        begins_with = ""
        if self.prefix_groups:
            group = rng.randrange(self.prefix_groups)
            prefix = drawn_for(seed, "prefix", group)
            begins_with = text_of(self.prefix_tokens, prefix, words_per_token) + " "
        texts = [
            text_of(self.prompt_tokens.draw(rng), rng, words_per_token)
            for _ in range(self.turns.draw(rng))
        ]
        return Conversation((Turn(begins_with + texts[0]), *map(Turn, texts[1:])))


@dataclass(frozen=True, slots=True)
class Listed:
    """The conversations of a file in order, starting over after the last."""

    kind: ClassVar[str] = "listed"

    conversations: Sequence[Conversation]

    def conversation(
        self,
        number: int,
        seed: int,  # noqa: ARG002
        words_per_token: float,  # noqa: ARG002
    ) -> Conversation:
        """Return the conversation at position ``number``, modulo their count."""
        return self.conversations[number % len(self.conversations)]


@dataclass(frozen=True, slots=True)
class RecordedPrompts:
    """Random prompts with the lengths of a trace, sharing the prefixes that its blocks describe."""

    kind: ClassVar[str] = "recorded"

    entries: Sequence[TraceEntry]

    def conversation(self, number: int, seed: int, words_per_token: float) -> Conversation:
        """Return the prompt of entry ``number``, starting over after the last."""
        entry = self.entries[number % len(self.entries)]
        if not entry.blocks:
            rng = drawn_for(seed, "conversation", number)
            text = text_of(entry.num_prompt_tokens, rng, words_per_token)
        else:
            text = " ".join(
                text_of(num_tokens, drawn_for(seed, "block", block), words_per_token)
                for block, num_tokens in _blocks(entry)
            )
        return Conversation((Turn(text, entry.num_output_tokens),))


def _blocks(entry: TraceEntry) -> list[tuple[int, int]]:
    """Return the blocks of a prompt with their token counts; the last may be shorter."""
    left = entry.num_prompt_tokens
    found = []
    for block in entry.blocks:
        if left > 0:
            found.append((block, min(left, MOONCAKE_BLOCK_TOKENS)))
            left -= MOONCAKE_BLOCK_TOKENS
    return found


def text_of(num_tokens: int, rng: Random, words_per_token: float) -> str:
    """Return random words that make about ``num_tokens`` tokens; at least one word."""
    return " ".join(rng.choices(WORDS, k=max(1, round(num_tokens * words_per_token))))
