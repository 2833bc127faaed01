"""The acceptance of ways of decoding on a mesh's own drafter and heads, measured on more and more
answers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Self

from specmesh.cli.local.process import StartError
from specmesh.serving.templates.tokenizers import for_whole_texts
from specmesh.tools.profile.measure.replicas import Replica, Replicas
from specmesh.tools.profile.replay import Text, answers, rounds_of
from specmesh.tools.profile.rounds import (
    Drafting,
    ProfiledAcceptance,
    ProfiledRound,
    Way,
    mean_round,
)

AT_ONCE = 32
"""Number of answers along which drafts are made concurrently."""


class Acceptances:
    """The rounds of ways of decoding along the target's answers to one prompt after the other."""

    def __init__(
        self,
        replicas: Replicas,
        prompts: Sequence[Sequence[int]],
        num_tokens: int,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        self._replicas = replicas
        self._prompts = prompts
        self._num_tokens = num_tokens
        self._seed = seed
        self._say = say
        self._next = 0
        self._rounds: defaultdict[tuple[Way, float], list[ProfiledRound]] = defaultdict(list)

    @classmethod
    async def on(
        cls,
        replicas: Replicas,
        texts: Sequence[str],
        num_tokens: int,
        seed: int,
        say: Callable[[str], None],
    ) -> Self:
        """Create it for prompts with these ``texts``. Raises StartError if the target has no
        tokenizer."""
        return cls(replicas, await _tokenized(replicas.verifier, texts), num_tokens, seed, say)

    @property
    def num_prompts(self) -> int:
        """Return how many prompts were used, each with every requested way."""
        return self._next

    @property
    def exhausted(self) -> bool:
        """Return whether all prompts were used."""
        return self._next >= len(self._prompts)

    async def measure(self, ways: Mapping[float, Collection[Way]]) -> None:
        """Draft along answers to the next prompts, by these ``ways`` at each temperature. Raises
        StartError."""
        prompts = self._prompts[self._next : self._next + AT_ONCE]
        seed = self._seed + self._next
        for temperature, candidates in ways.items():
            self._say(f"acceptance at temperature {temperature:g}: answers {self._next + 1} and on")
            texts = await answers(self._replicas, prompts, temperature, self._num_tokens, seed)
            # Heads and drafter don't wait for each other.
            of_heads = [way for way in candidates if way.drafting is Drafting.HEADS]
            others = [way for way in candidates if way.drafting is Drafting.DRAFTER]
            await asyncio.gather(
                *(self._replay(own, texts, temperature) for own in (of_heads, others))
            )
        self._next += len(prompts)

    async def _replay(
        self, ways: Collection[Way], texts: Sequence[Text], temperature: float
    ) -> None:
        for way in ways:
            self._rounds[way, temperature] += await rounds_of(self._replicas, way, texts)

    def means(self) -> list[ProfiledAcceptance]:
        """Return the mean round of each way and temperature so far."""
        return [mean_round(*each, own) for each, own in self._rounds.items()]


async def _tokenized(replica: Replica, texts: Sequence[str]) -> list[list[int]]:
    from tokenizers import Tokenizer

    text = await replica.tokenizer()
    if not text:
        raise StartError(f"the target at {replica.address} has no tokenizer to read prompts with")
    tokenizer = for_whole_texts(Tokenizer.from_str(text))
    return [tokenizer.encode(each).ids for each in texts]
