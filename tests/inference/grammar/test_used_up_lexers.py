"""Answers of a grammar share a lexer that they can use up: each still depends on itself alone."""

import json

import numpy as np
import pytest
from tests.inference.grammar.vocabularies import shipped_vocabulary, tokens_in

import specmesh.inference.grammar.vocabulary as vocabulary_room
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.grammar import Grammar, GrammarKind
from specmesh.inference.grammar.answer_mask import AnswerMask, DraftMask
from specmesh.inference.grammar.states import GrammarState, RecentStates
from specmesh.inference.grammar.vocabulary import CompiledGrammar

WORDS = "the quick brown fox jumps over the lazy dog and " * 20
END = 0


@pytest.fixture
def compile_within(monkeypatch):
    """Compile an object of strings of at most such lengths, with a lexer of so many states."""

    def compiled(num_states, *lengths):
        properties = {
            f"p{at}": {"type": "string", "maxLength": length} for at, length in enumerate(lengths)
        }
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        monkeypatch.setattr(vocabulary_room, "MAX_LEXER_STATES", num_states)
        grammar = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))
        return shipped_vocabulary()[0].compile(grammar)

    return compiled


def tokens_of(*texts):
    text = json.dumps({f"p{at}": text for at, text in enumerate(texts)})
    return shipped_vocabulary()[1].encode(text, add_special_tokens=False).ids


def allowed_behind(state, tokens):
    state.move_to(tokens)
    return state.allowed()


def follow(compiled, states, answer):
    """Take an answer token by token, each of which must be allowed; return how far it got."""
    for at, token in enumerate(answer):
        try:
            allowed = tokens_in(AnswerMask(compiled, states, answer[:at]).allowed(()))
        except InvalidField:
            return at
        assert token in allowed
        assert END not in allowed
    assert tokens_in(AnswerMask(compiled, states, answer).allowed(())) == {END}
    return len(answer)


@pytest.mark.parametrize("num_states", range(400, 408))
def test_an_answer_beyond_the_limit_fails_and_does_not_end_in_the_middle(
    num_states, compile_within
):
    compiled, answer = compile_within(num_states, 900), tokens_of(WORDS[:800])
    assert 100 < follow(compiled, RecentStates(), answer) < len(answer)


def test_an_answer_that_has_failed_leaves_the_grammar_to_others(compile_within):
    compiled, states = compile_within(400, 900), RecentStates()
    long, short = tokens_of(WORDS[:800]), tokens_of("a short one")
    num_followed = follow(compiled, states, long)
    assert follow(compiled, states, short) == len(short)
    assert follow(compiled, states, long) == num_followed
    assert DraftMask(compiled, states, long).allowed(()).all()
    assert follow(compiled, states, short) == len(short)


def test_answers_that_use_up_a_lexer_only_together_all_reach_their_ends(compile_within):
    lengths = range(300, 306)
    compiled, states = compile_within(800, *lengths), RecentStates()
    for filled in range(len(lengths)):
        answer = tokens_of(*(WORDS[:290] if at == filled else "x" for at in range(len(lengths))))
        assert follow(compiled, states, answer) == len(answer)


def test_a_state_whose_lexer_others_have_used_up_says_so(compile_within):
    """Rather than that its text has ended, or has left the grammar."""
    compiled, answer = compile_within(400, 900), tokens_of(WORDS[:800])
    waiting, begun = GrammarState(compiled), GrammarState(compiled)
    begun.move_to(answer[:8])
    for state, tokens in (
        (GrammarState(compiled), answer),
        (waiting, answer[:16]),
        (begun, answer[:16]),
    ):
        with pytest.raises(InvalidField, match="too many states"):
            allowed_behind(state, tokens)
        assert state.has_failed


def test_calls_that_are_under_way_go_on_with_the_new_lexer(compile_within):
    compiled, states = compile_within(400, 900), RecentStates()
    answer = tokens_of("a short one")
    under_way = AnswerMask(compiled, states, answer[:4])
    before = under_way.allowed(answer[4:6])
    follow(compiled, states, tokens_of(WORDS[:800]))
    assert np.array_equal(under_way.allowed(answer[4:6]), before)
    assert answer[8] in tokens_in(under_way.allowed(answer[4:8]))


def test_states_of_a_lexer_that_is_used_up_are_let_go(compile_within):
    compiled, other, states = compile_within(400, 900), compile_within(400, 30), RecentStates()
    found = [states.near(each, []) for each in (compiled, other)]
    renewed = states.begin_again(compiled, [])
    assert renewed is not found[0]
    assert [states.near(each, []) for each in (compiled, other)] == [renewed, found[1]]


def test_a_lexer_is_replaced_once_for_all_calls_under_way(compile_within, monkeypatch):
    compiled, states, num_compiled = compile_within(400, 900), RecentStates(), []
    compile_again = CompiledGrammar.compile_again

    def counted(self):
        num_compiled.append(1)
        compile_again(self)

    monkeypatch.setattr(CompiledGrammar, "compile_again", counted)
    answer = tokens_of("a short one")
    under_way = [AnswerMask(compiled, states, answer[:4]) for _ in range(8)]
    for mask in under_way:
        mask.allowed(answer[4:5])
    follow(compiled, states, tokens_of(WORDS[:800]))
    num_compiled.clear()
    for mask in under_way:
        assert answer[6] in tokens_in(mask.allowed(answer[4:6]))
    assert len(num_compiled) == 1  # the one that the long answer has left
