"""The states of answers: what one allows depends on nothing that it has been through."""

import gc
import json
import random
import time
import weakref

import numpy as np
import pytest
from tests.inference.grammar.vocabularies import Small, shipped_vocabulary, tokens_in

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.grammar import Grammar, GrammarKind
from specmesh.inference.grammar.answer_mask import AnswerMask, DraftMask
from specmesh.inference.grammar.states import NEAR_TOKENS, GrammarState, RecentStates


def ebnf(source):
    return Grammar(GrammarKind.EBNF, source)


def schema(value):
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(value))


NESTED = ebnf('start: "a" b*\nb: "b" | "(" b ")"')
GRAMMARS = {
    "nested": NESTED,
    "balanced": ebnf('start: s\ns: ("(" s ")")* "x"?'),
    "words": ebnf('start: "if" " " n ":" | "import" " " n | "in" "t" n\nn: /[a-z]+/'),
    "sums": ebnf('start: e\ne: t ("+" t)*\nt: /[0-9]+/ | "(" e ")"'),
    "query": ebnf(
        'start: "select " c ("," " "? c)* " from " c\nc: /[a-z]+/ | d\nd: "count(" c ")"'
    ),
    "ignored": ebnf('start: s+\ns: "a" "b" | "(" s ")" | "c"\n%ignore / +/'),
    "counted": ebnf('start: s+ "."\ns[max_tokens=3]: /[a-z]+/ " "'),
    "call": ebnf('start: "f" "(" j ")"\nj: %json {"type": "array", "items": {"enum": ["b", 1]}}'),
    "object": Grammar(GrammarKind.JSON_OBJECT),
    "arrays": schema(
        {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}, "maxItems": 3}
    ),
    "either": schema(
        {
            "anyOf": [
                {"properties": {"a": {"type": "string"}}, "required": ["a"], "type": "object"},
                {"properties": {"a": {"type": "null"}, "b": {}}, "type": "object"},
            ]
        }
    ),
    "short strings": schema({"type": "array", "items": {"type": "string", "maxLength": 3}}),
    "expression": Grammar(GrammarKind.REGEX, "(ab|a){1,8}c?"),
}


def allowed(compiled, tokens):
    fresh = GrammarState(compiled)
    fresh.move_to(list(tokens))
    return fresh.allowed()


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_state_that_has_gone_back_and_forth_allows_what_a_new_one_does(name):
    compiled = shipped_vocabulary()[0].compile(GRAMMARS[name])
    rng = random.Random(name)
    for _ in range(100):
        travelled, texts = GrammarState(compiled), [[]]
        for _ in range(12):
            text = rng.choice(texts)
            text = text[: rng.randint(max(0, len(text) - 4), len(text))]
            travelled.move_to(text)
            bits = travelled.allowed()
            assert np.array_equal(bits, allowed(compiled, text)), text
            for _ in range(rng.randint(1, 3)):
                choices = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
                text = [*text, int(rng.choice(choices))]
                bits = allowed(compiled, text)
            texts.append(text)


def test_the_mask_of_a_request_does_not_depend_on_other_requests():
    vocabulary, tokenizer = shipped_vocabulary()
    compiled, states = vocabulary.compile(NESTED), RecentStates()
    a, bracket, ab, bb = (tokenizer.token_to_id(text) for text in ("a", "(", "ab", "bb"))
    AnswerMask(compiled, states, [ab]).allowed(())
    found = tokens_in(AnswerMask(compiled, states, [a, bracket]).allowed(()))
    assert found == tokens_in(allowed(compiled, [a, bracket]))
    assert bb not in found


def test_an_answer_that_was_too_complex_fails_at_once_again():
    """Also for other requests that begin so, and for drafts, which then go on without the mask."""
    vocabulary, tokenizer = shipped_vocabulary()
    compiled, states = vocabulary.compile(ebnf('start: start start | "a" | ""')), RecentStates()
    answer = tokenizer.encode("a" * 6000, add_special_tokens=False).ids
    began = time.thread_time()
    with pytest.raises(InvalidField, match="is too complex behind") as first:
        AnswerMask(compiled, states, answer).allowed(())
    took_s = time.thread_time() - began
    began = time.thread_time()
    for path in ((), (5,), (5, 6)):
        with pytest.raises(InvalidField) as again:
            AnswerMask(compiled, states, answer).allowed(path)
        assert again.value.reason == first.value.reason
        assert DraftMask(compiled, states, answer).allowed(path).all()
    assert time.thread_time() - began < took_s / 10
    assert AnswerMask(compiled, states, answer[:1]).allowed(()).any()


@pytest.mark.parametrize("num_shared", [0, 7900])
def test_a_state_is_found_among_many_in_little_time(num_shared):
    compiled = shipped_vocabulary()[0].compile(Grammar(GrammarKind.REGEX, "(.|\n)*"))
    states, rng = RecentStates(), random.Random(3)
    begun = [rng.randrange(300, 3000) for _ in range(num_shared)]
    answers = [begun + [rng.randrange(300, 3000) for _ in range(8000 - num_shared)]]
    answers += [
        begun + [rng.randrange(300, 3000) for _ in range(8000 - num_shared)] for _ in range(255)
    ]
    found = []
    for answer in answers:
        found.append(states.near(compiled, answer))
        found[-1].tokens = list(answer)  # as if it had matched them
    longer = [[*answer, 7, 8] for answer in answers]
    began = time.thread_time()
    assert [states.near(compiled, answer) for answer in longer] == found
    assert (time.thread_time() - began) / len(answers) < 2e-3


def test_only_the_latest_states_are_kept():
    compiled = shipped_vocabulary()[0].compile(Grammar(GrammarKind.REGEX, "(.|\n)*"))
    states = RecentStates(most=2)
    answers = [[at] * NEAR_TOKENS for at in range(300, 303)]
    found = []
    for answer in answers:
        found.append(states.near(compiled, answer))
        found[-1].move_to(answer)
    assert [states.near(compiled, answer) for answer in answers[1:]] == found[1:]
    assert states.near(compiled, answers[0]) is not found[0]


def test_states_of_long_answers_count_for_more():
    compiled = shipped_vocabulary()[0].compile(Grammar(GrammarKind.REGEX, "(.|\n)*"))
    states = RecentStates(most_tokens=4 * NEAR_TOKENS)
    answers = [[at] * length for at, length in ((300, 128), (301, 64), (302, 64), (303, 128))]
    found = []
    for answer in answers:
        found.append(states.near(compiled, answer))
        found[-1].move_to(answer)
    assert [states.near(compiled, answer) for answer in answers[1:]] == found[1:]
    assert states.near(compiled, answers[0]) is not found[0]


def test_states_keep_no_more_grammars_in_memory_than_they_may():
    states = RecentStates(most_grammars=2)
    grammars = [
        shipped_vocabulary()[0].compile(Grammar(GrammarKind.REGEX, f"a{{{n}}}")) for n in (1, 2, 3)
    ]
    found = [states.near(each, []) for each in (grammars[0], *grammars)]
    assert found[0] is found[1]
    assert [states.near(each, []) for each in grammars[1:]] == found[2:]
    kept = weakref.ref(grammars.pop(0))
    del found
    gc.collect()
    assert kept() is None


def test_the_state_of_one_very_long_answer_is_kept():
    compiled = shipped_vocabulary()[0].compile(Grammar(GrammarKind.REGEX, "(.|\n)*"))
    states, answer = RecentStates(most_tokens=NEAR_TOKENS), [300] * (4 * NEAR_TOKENS)
    found = states.near(compiled, answer)
    found.move_to(answer)
    assert states.near(compiled, answer) is found


@pytest.mark.parametrize("rest", ["", ' "b"', ' "b"?'])
def test_an_end_of_text_that_is_named_ends_the_text_whatever_follows_it(rest):
    small = Small()
    state = GrammarState(small.vocabulary.compile(ebnf(f'start: "a" <|end|>{rest}')))
    letter = small.texts.index(b"a")
    for tokens in ([letter], [letter, small.end]):
        state.move_to(tokens)
        assert tokens_in(state.allowed()) == {small.end}
