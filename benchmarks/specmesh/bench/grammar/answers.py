"""Answers to schemas on a mesh: with their grammars and without, alone and speculated."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from specmesh.bench.grammar.schemas import Schema
from specmesh.client import AsyncClient, FinishReason, GenerationResult, Grammar
from specmesh.tools.kit.experiment import AUTOREGRESSIVE, SEED


@dataclass(frozen=True, slots=True)
class SchemaAnswer:
    """An answer to schema ``number``, with its grammar unless it is ``free``."""

    number: int
    strategy: str
    temperature: float
    free: bool
    result: GenerationResult
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRuns:
    """Every schema at every temperature with both strategies, with its grammar and free of it."""

    schemas: Sequence[Schema]
    prompts: Sequence[str]
    """The beginnings of texts, in turn; each goes on with the name of a value."""
    strategy: str
    temperatures: Sequence[float]
    num_tokens: int

    @property
    def number(self) -> int:
        """The number of answers."""
        return 4 * len(self.schemas) * len(self.temperatures)

    async def answers(
        self, client: AsyncClient, advance: Callable[[], None]
    ) -> AsyncIterator[SchemaAnswer]:
        """Yield the answers. The strategies take turns in going first."""
        for number, schema in enumerate(self.schemas):
            strategies = (AUTOREGRESSIVE, self.strategy)
            for temperature in self.temperatures:
                for free in (False, True):
                    for strategy in strategies[:: 1 if number % 2 else -1]:
                        yield await self._answer(
                            client, number, schema, strategy, temperature, free
                        )
                        advance()

    async def _answer(
        self,
        client: AsyncClient,
        number: int,
        schema: Schema,
        strategy: str,
        temperature: float,
        free: bool,
    ) -> SchemaAnswer:
        began = time.perf_counter()
        stream = client.generate(
            f"{self.prompts[number % len(self.prompts)]}\n\n{schema['title'].upper()} = ",
            strategy=strategy,
            temperature=temperature,
            seed=SEED + number,
            max_tokens=self.num_tokens,
            ignore_end_of_text=free,
            grammar=None if free else Grammar(json_schema=schema),
        )
        await stream
        seconds = time.perf_counter() - began
        return SchemaAnswer(number, strategy, temperature, free, stream.result, seconds)


@dataclass(frozen=True, slots=True)
class SchemaFigures:
    """The figures of all answers to a schema: how many ended by themselves, how many of these are
    valid, whether speculation left every text as it was, and, with grammars and without, its speed
    over that of the target alone, in tokens per second, and the draft tokens that a verification
    accepted."""

    num_answers: int
    num_ended: int
    num_valid: int
    identical: bool
    speedup: float
    speedup_without: float
    accepted_per_verify: float
    accepted_per_verify_without: float

    @property
    def valid(self) -> bool:
        """True if every answer that ended by itself is valid under its schema."""
        return self.num_valid == self.num_ended > 0


def figures_of(answers: Sequence[SchemaAnswer], schemas: Sequence[Schema]) -> SchemaFigures:
    """Return the figures of all ``answers``."""
    held = [each for each in answers if not each.free]
    free = [each for each in answers if each.free]
    ended = [each for each in held if each.result.finish_reason is FinishReason.END_OF_TEXT]
    texts: dict[tuple[int, float, bool], set[Sequence[int]]] = {}
    for each in answers:
        key = each.number, each.temperature, each.free
        texts.setdefault(key, set()).add(tuple(each.result.token_ids))
    return SchemaFigures(
        num_answers=len(held),
        num_ended=len(ended),
        num_valid=sum(is_valid(each.result.text, schemas[each.number]) for each in ended),
        identical=all(len(found) == 1 for found in texts.values()),
        speedup=_speedup(held),
        speedup_without=_speedup(free),
        accepted_per_verify=_accepted_per_verify(held),
        accepted_per_verify_without=_accepted_per_verify(free),
    )


def is_valid(text: str, schema: Schema) -> bool:
    """Return whether ``text`` is JSON that is valid under ``schema``, formats included."""
    try:
        value = json.loads(text)
    except ValueError:
        return False
    from jsonschema import Draft202012Validator

    formats = Draft202012Validator.FORMAT_CHECKER
    return bool(Draft202012Validator(schema, format_checker=formats).is_valid(value))


def _speedup(answers: Sequence[SchemaAnswer]) -> float:
    alone = [each for each in answers if each.strategy == AUTOREGRESSIVE]
    return _tokens_per_s([each for each in answers if each not in alone]) / _tokens_per_s(alone)


def _accepted_per_verify(answers: Sequence[SchemaAnswer]) -> float:
    stats = [each.result.stats for each in answers if each.strategy != AUTOREGRESSIVE]
    accepted = sum(each.num_accepted_tokens for each in stats)
    return accepted / sum(each.num_verify_calls for each in stats)


def _tokens_per_s(answers: Sequence[SchemaAnswer]) -> float:
    return sum(len(each.result.token_ids) for each in answers) / sum(
        each.seconds for each in answers
    )
