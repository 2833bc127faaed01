"""What is asked: conversations of one turn or several, made up or taken from files."""

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
"""Short and common, so that most tokenizers have a token for each, with the space before it."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a conversation. ``num_output_tokens`` limits its answer; None leaves that to
    the workload."""

    text: str
    num_output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns, of which each is sent with all before it and their answers."""

    turns: tuple[Turn, ...]


class Conversations(Protocol):
    """Where they come from."""

    kind: ClassVar[str]
    """The name of the class in reports."""

    def conversation(self, number: int, seed: int, words_per_token: float) -> Conversation:
        """That of a number, the same whenever it is asked for."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthetic:
    """Made of random words, so that no two prompts begin alike unless they are to.

    ``prefix_groups`` is how many different prefixes of ``prefix_tokens`` there are, of which each
    conversation begins with one; lengths are in tokens, met to within the variation of the words.
    """

    kind: ClassVar[str] = "synthetic"

    prompt_tokens: Length
    turns: Length = ConstantLength(1)  # noqa: RUF009 - it is frozen
    prefix_groups: int = 0
    prefix_tokens: int = 0

    def conversation(self, number: int, seed: int, words_per_token: float) -> Conversation:
        """One with a prefix, if there are any, in its first turn."""
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
    """Those of a file in its order, from the first again after the last."""

    kind: ClassVar[str] = "listed"

    conversations: Sequence[Conversation]

    def conversation(
        self,
        number: int,
        seed: int,  # noqa: ARG002
        words_per_token: float,  # noqa: ARG002
    ) -> Conversation:
        """The one whose turn it is."""
        return self.conversations[number % len(self.conversations)]


@dataclass(frozen=True, slots=True)
class RecordedPrompts:
    """Prompts as long as those of a trace, with the prefixes that its blocks say they share."""

    kind: ClassVar[str] = "recorded"

    entries: Sequence[TraceEntry]

    def conversation(self, number: int, seed: int, words_per_token: float) -> Conversation:
        """The one of the entry ``number``, from the first again after the last."""
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
    """The blocks of a prompt with their tokens: the last may be cut short."""
    left = entry.num_prompt_tokens
    found = []
    for block in entry.blocks:
        if left > 0:
            found.append((block, min(left, MOONCAKE_BLOCK_TOKENS)))
            left -= MOONCAKE_BLOCK_TOKENS
    return found


def text_of(num_tokens: int, rng: Random, words_per_token: float) -> str:
    """Random words that make about ``num_tokens`` tokens; at least one."""
    return " ".join(rng.choices(WORDS, k=max(1, round(num_tokens * words_per_token))))
