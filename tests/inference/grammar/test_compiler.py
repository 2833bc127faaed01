"""The compiler of grammars, and those who wait for it."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter

import pytest
from tests.inference.grammar.vocabularies import description_of, shipped_vocabulary

import specmesh.inference.grammar.compiler as compiler_room
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.grammar import Grammar, GrammarKind
from specmesh.decoding.sampling import Sampling
from specmesh.inference.grammar.compiler import MAX_COMPILED
from specmesh.inference.grammar.grammars import Grammars
from specmesh.inference.grammar.vocabulary import Vocabulary
from specmesh.serving.errors import ResourceExhaustedStatus

BAD = Grammar(GrammarKind.REGEX, "(a")


class Counting(Vocabulary):
    """Counts what it compiles, each in ``pause_s``."""

    pause_s = 0.0

    def compile(self, grammar):
        self.compiled[grammar] += 1
        time.sleep(self.pause_s)
        return super().compile(grammar)


@pytest.fixture
def counting():
    _, tokenizer = shipped_vocabulary()
    vocabulary = Counting.of(description_of(tokenizer.to_str(), tokenizer.get_vocab_size(), 0))
    vocabulary.compiled = Counter()
    grammars = Grammars(vocabulary)
    yield vocabulary, grammars
    grammars.close()


def choice(number):
    return Sampling(grammar=Grammar.of_choices([f"number {number}"]))


async def test_a_grammar_is_compiled_once_for_many_calls(counting):
    vocabulary, grammars = counting
    vocabulary.pause_s = 0.01
    await asyncio.gather(*(grammars.mask(choice(at % 3), []) for at in range(30)))
    with pytest.raises(InvalidField):
        await grammars.mask(Sampling(grammar=BAD), [])
    with pytest.raises(InvalidField):
        await grammars.mask(Sampling(grammar=BAD), [])
    assert set(vocabulary.compiled.values()) == {1}
    assert len(vocabulary.compiled) == 4


async def test_only_the_latest_grammars_are_kept(counting):
    vocabulary, grammars = counting
    for at in (*range(MAX_COMPILED), 0, MAX_COMPILED, 0, 1):
        await grammars.mask(choice(at), [])
    again = {
        g.grammar for g in map(choice, range(MAX_COMPILED)) if vocabulary.compiled[g.grammar] > 1
    }
    assert again == {choice(1).grammar}


async def test_a_compiler_that_takes_too_long_is_not_waited_for(counting, monkeypatch):
    vocabulary, grammars = counting
    monkeypatch.setattr(compiler_room, "COMPILE_SECONDS", 0.05)
    vocabulary.pause_s = 0.3
    with pytest.raises(ResourceExhaustedStatus, match="1 grammars wait") as raised:
        await grammars.mask(choice(1), [])
    assert raised.value.reason == "COMPILER_BUSY"
    assert raised.value.retry_after_s > 0
    assert await grammars.draft_mask(choice(1), []) is None
    await asyncio.sleep(0.4)
    assert await grammars.mask(choice(1), [])  # it is ready by now
    assert vocabulary.compiled == {choice(1).grammar: 1}


async def test_what_nobody_waits_for_any_more_is_not_compiled(counting, monkeypatch):
    vocabulary, grammars = counting
    monkeypatch.setattr(compiler_room, "COMPILE_SECONDS", 0.05)
    vocabulary.pause_s = 0.2
    refused = await asyncio.gather(
        *(grammars.mask(choice(at), []) for at in (1, 2, 3, 2)), return_exceptions=True
    )
    assert [type(each) for each in refused] == [ResourceExhaustedStatus] * 4
    await asyncio.sleep(0.3)
    assert vocabulary.compiled == {choice(1).grammar: 1}
    monkeypatch.setattr(compiler_room, "COMPILE_SECONDS", 5)
    assert await grammars.mask(choice(2), [])


async def test_a_compiler_does_not_hold_up_the_event_loop(counting):
    vocabulary, grammars = counting
    vocabulary.pause_s = 0.2
    waiting = asyncio.create_task(grammars.mask(choice(1), []))
    began = time.perf_counter()
    await asyncio.sleep(0.02)
    assert time.perf_counter() - began < 0.15
    await waiting


async def test_what_callers_leave_is_not_compiled(counting):
    vocabulary, grammars = counting
    vocabulary.pause_s = 0.1
    calls = [asyncio.create_task(grammars.mask(choice(at), [])) for at in range(20)]
    other = asyncio.create_task(grammars.mask(choice(7), []))
    await asyncio.sleep(0.02)
    for call in calls:
        call.cancel()
    assert await other
    assert set(vocabulary.compiled) == {choice(0).grammar, choice(7).grammar}


async def test_a_queue_that_is_full_refuses_others_for_a_while(counting, monkeypatch):
    """It says that the compiler is busy, and nothing about a grammar that isn't at fault."""
    vocabulary, grammars = counting
    monkeypatch.setattr(compiler_room, "MAX_WAITING", 2)
    vocabulary.pause_s = 0.05
    calls = [asyncio.create_task(grammars.mask(choice(at), [])) for at in range(3)]
    await asyncio.sleep(0.01)
    with pytest.raises(ResourceExhaustedStatus, match="3 grammars wait") as raised:
        await grammars.mask(choice(3), [])
    assert raised.value.reason == "COMPILER_BUSY"
    assert all(await asyncio.gather(*calls))
    assert await grammars.mask(choice(3), [])


async def test_short_grammars_do_not_wait_for_long_ones(counting):
    vocabulary, grammars = counting
    vocabulary.pause_s = 0.02
    texts = ["first", *("long " * 50 + str(at) for at in range(5)), "short"]
    calls = [Sampling(grammar=Grammar.of_choices([text])) for text in texts]
    assert all(await asyncio.gather(*(grammars.mask(call, []) for call in calls)))
    assert list(vocabulary.compiled)[:2] == [calls[0].grammar, calls[-1].grammar]


async def test_each_caller_waits_as_long_as_any_other(counting, monkeypatch):
    vocabulary, grammars = counting
    monkeypatch.setattr(compiler_room, "COMPILE_SECONDS", 0.3)
    vocabulary.pause_s = 0.4
    first = asyncio.create_task(grammars.mask(choice(1), []))
    early = asyncio.create_task(grammars.mask(choice(2), []))
    await asyncio.sleep(0.2)
    vocabulary.pause_s = 0.0
    late = asyncio.create_task(grammars.mask(choice(2), []))
    for each in (first, early):
        with pytest.raises(ResourceExhaustedStatus):
            await each
    assert await late


async def test_a_draft_does_not_wait_long_for_a_grammar(counting):
    vocabulary, grammars = counting
    assert await grammars.draft_mask(choice(1), [])
    vocabulary.pause_s = 0.3
    began = time.perf_counter()
    assert await grammars.draft_mask(choice(2), []) is None
    assert time.perf_counter() - began < 0.2
    await asyncio.sleep(0.3)
    assert await grammars.draft_mask(choice(2), [])


def multiples(*numbers):
    each = [{"type": "integer", "multipleOf": number} for number in numbers]
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps({"allOf": each}))


@pytest.mark.parametrize(
    "grammar",
    [
        multiples(97, 89, 83),
        multiples(100003),
        multiples(0.7001, 0.9001),
        Grammar(GrammarKind.EBNF, f"start: %json {multiples(97, 89, 83).text}"),
        Grammar(GrammarKind.JSON_SCHEMA, '{"type": "integer", "multiple\\u004ff": 716539}'),
    ],
)
def test_a_grammar_that_would_take_seconds_to_compile_is_refused_at_once(grammar):
    began = time.thread_time()
    with pytest.raises(InvalidField, match="multipleOf must be at most 10000"):
        shipped_vocabulary()[0].compile(grammar)
    assert time.thread_time() - began < 0.1


@pytest.mark.parametrize("numbers", [(9973,), (8, 12), (0.01, 0.25, 25), (1000, 0.1)])
def test_multiples_that_are_small_together_are_taken(numbers):
    assert shipped_vocabulary()[0].compile(multiples(*numbers))
