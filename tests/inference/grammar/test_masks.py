"""What a grammar allows, against trying everything, from wherever its state comes."""

import json
import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.inference.grammar.vocabularies import Small, tokens_in

import specmesh.inference.grammar.states as states_room
import specmesh.inference.grammar.vocabulary as vocabulary_room
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.grammar import Grammar, GrammarKind
from specmesh.inference.grammar.answer_mask import AnswerMask, DraftMask
from specmesh.inference.grammar.states import NEAR_TOKENS, GrammarState, RecentStates

SMALL = Small("ab", "abc", "ba", "bb", "ca", "cab", '{"', '":', "aa", "aaa", "Ã©")
LETTERS = st.text("abcé", min_size=1, max_size=6)


def allowed(compiled, tokens):
    state = GrammarState(compiled)
    state.move_to(list(tokens))
    return tokens_in(state.allowed())


def check_all_walks(grammar, texts, data):
    """Follow an answer to its end, and compare each mask with what trying everything allows."""
    compiled = SMALL.vocabulary.compile(grammar)
    texts = {text.encode() for text in texts}
    tokens = []
    while True:
        expected = SMALL.expected(texts, tokens)
        assert allowed(compiled, tokens) == expected, SMALL.text(tokens)
        token = data.draw(st.sampled_from(sorted(expected)))
        if token == SMALL.end:
            return
        tokens.append(token)


@settings(max_examples=60, deadline=None)
@given(st.lists(LETTERS, min_size=1, max_size=6), st.data())
def test_a_choice_allows_what_begins_one_of_its_texts(texts, data):
    check_all_walks(Grammar.of_choices(texts), texts, data)


@st.composite
def languages(draw, depth=3):
    """A regular expression, the same in Lark with a terminal for each letter, and all its texts."""
    if depth == 0 or draw(st.booleans()):
        text = draw(st.text("abc", min_size=1, max_size=3))
        return text, " ".join(f'"{letter}"' for letter in text), {text}
    left, right = draw(languages(depth - 1)), draw(languages(depth - 1))
    match draw(st.sampled_from(["then", "or", "perhaps", "twice"])):
        case "then":
            both = {a + b for a, b in product(left[2], right[2])}
            return f"(?:{left[0]})(?:{right[0]})", f"({left[1]}) ({right[1]})", both
        case "or":
            either = left[2] | right[2]
            return f"(?:{left[0]}|{right[0]})", f"({left[1]} | {right[1]})", either
        case "perhaps":
            return f"(?:{left[0]})?", f"({left[1]})?", left[2] | {""}
    twice = left[2] | {a + b for a, b in product(left[2], left[2])}
    return f"(?:{left[0]}){{1,2}}", f"({left[1]}){{1,2}}", twice


@settings(max_examples=60, deadline=None)
@given(languages(), st.data())
def test_a_regular_expression_allows_what_can_still_match(language, data):
    check_all_walks(Grammar(GrammarKind.REGEX, language[0]), language[2], data)


@settings(max_examples=60, deadline=None)
@given(languages(), st.data())
def test_a_context_free_grammar_allows_what_can_still_be_a_text(language, data):
    check_all_walks(Grammar(GrammarKind.EBNF, f"start: {language[1]}"), language[2], data)


def test_terminals_of_a_context_free_grammar_are_as_long_as_they_can_be():
    """As in any lexer: "a" "aa" is not tried where "aa" "a" begins alike."""
    source = 'start: ("a" "aa" | "aa") "a"'
    compiled = SMALL.vocabulary.compile(Grammar(GrammarKind.EBNF, source))
    a = SMALL.texts.index(b"a")
    assert allowed(compiled, [a, a]) == {a}
    assert allowed(compiled, [a, a, a]) == {SMALL.end}


def test_gbnf_means_what_lark_means():
    texts = {"ab" + "c" * times for times in range(1, 4)} | {"é"}
    source = 'root ::= "ab" c{1,3} | "é"\nc ::= [c]'
    compiled = SMALL.vocabulary.compile(Grammar(GrammarKind.EBNF, source))
    for tokens in ([], [0], [1], [0, SMALL.texts.index(b"c")]):
        expected = SMALL.expected({text.encode() for text in texts}, tokens)
        assert allowed(compiled, tokens) == expected


@pytest.mark.parametrize("value", [{"a": 1}, ["abc", True, None], "x", 12.5])
def test_a_schema_of_one_value_allows_its_spellings_alone(value):
    schema = Grammar(GrammarKind.JSON_SCHEMA, json.dumps({"const": value}))
    compiled = SMALL.vocabulary.compile(schema)
    for spelling in (json.dumps(value), json.dumps(value, separators=(",", ":"))):
        tokens = [SMALL.texts.index(bytes([byte])) for byte in spelling.encode()]
        for at, token in enumerate(tokens):
            found = allowed(compiled, tokens[:at])
            assert token in found
            assert SMALL.end not in found or isinstance(value, float)
        assert allowed(compiled, tokens) == {SMALL.end} or isinstance(value, float)


def test_white_space_in_json_is_bounded():
    compiled = SMALL.vocabulary.compile(Grammar(GrammarKind.JSON_OBJECT))
    brace, space, line = (SMALL.texts.index(each) for each in (b"{", b" ", b"\n"))
    assert {space, line} <= allowed(compiled, [brace])
    assert space not in allowed(compiled, [brace, space])
    assert space in allowed(compiled, [brace, line])
    assert space not in allowed(compiled, [brace, line] + [space] * 64)


def test_a_text_that_has_ended_or_left_its_grammar_can_only_end():
    compiled = SMALL.vocabulary.compile(Grammar(GrammarKind.REGEX, "ab*"))
    a, b, c = (SMALL.texts.index(each) for each in (b"a", b"b", b"c"))
    for tokens in ([c], [a, c], [a, b, SMALL.end], [a, SMALL.end, b], [SMALL.end], [a, c, b, b]):
        assert allowed(compiled, tokens) == {SMALL.end}


def test_a_text_that_can_neither_go_on_nor_end_by_its_grammar_ends():
    source = 'start: "a" endless | "b"\nendless: endless'
    state = GrammarState(SMALL.vocabulary.compile(Grammar(GrammarKind.EBNF, source)))
    a, b = (SMALL.texts.index(each) for each in (b"a", b"b"))
    for tokens, expected in (
        ([a], {SMALL.end}),
        ([], {a, b}),
        ([a], {SMALL.end}),
        ([b], {SMALL.end}),
    ):
        state.move_to(tokens)
        assert tokens_in(state.allowed()) == expected


GRAMMARS = [
    Grammar(GrammarKind.REGEX, "(a|b|ab|ca){0,20}c?"),
    Grammar(GrammarKind.EBNF, 'start: "a" start? "b" | "c"'),
    Grammar(GrammarKind.JSON_SCHEMA, '{"type": "array", "items": {"enum": ["a", "ab", 1]}}'),
]


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2), st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=8), st.data()
)
def test_where_a_state_comes_from_makes_no_difference(which, places, data):
    """It goes back, forward, beyond the end and out of the grammar, as its calls take it."""
    compiled = SMALL.vocabulary.compile(GRAMMARS[which])
    travelled = GrammarState(compiled)
    walk = []
    for place in places:
        reached = place
        if data.draw(st.booleans()):  # a place in the grammar, from the last one
            walk = walk[: data.draw(st.integers(0, len(walk)))]
            for _ in range(data.draw(st.integers(0, 6))):
                walk = [*walk, data.draw(st.sampled_from(sorted(allowed(compiled, walk))))]
            reached = walk
        travelled.move_to(reached)
        assert tokens_in(travelled.allowed()) == allowed(compiled, reached)


def test_calls_of_many_answers_share_states_without_a_difference():
    compiled = [SMALL.vocabulary.compile(each) for each in GRAMMARS]
    states = RecentStates(most=3)
    rng = random.Random(1)
    answers = [(rng.randrange(3), []) for _ in range(6)]
    for _ in range(200):
        which, tokens = rng.choice(answers)
        mask = AnswerMask(compiled[which], states, tokens)
        path = []
        for _ in range(3):
            found = tokens_in(mask.allowed(path))
            assert found == allowed(compiled[which], [*tokens, *path])
            path.append(rng.choice(sorted(found)))
        tokens += path[: rng.randrange(4)]


def test_a_state_near_an_answer_goes_on_with_it():
    compiled = SMALL.vocabulary.compile(Grammar(GrammarKind.REGEX, "a*"))
    states, a = RecentStates(), SMALL.texts.index(b"a")
    first = states.near(compiled, [])
    first.move_to([a] * 10)
    assert states.near(compiled, [a] * 12) is first
    assert states.near(compiled, [a] * 4) is first
    first.move_to([a] * (NEAR_TOKENS + 10))
    assert states.near(compiled, [a] * 4) is not first
    assert states.near(compiled, [a] * (NEAR_TOKENS + 9)) is first


AMBIGUOUS = Grammar(GrammarKind.EBNF, 'start: start start | "a"')


@pytest.mark.parametrize("bound", ["MATCH_SECONDS", "MAX_ROW_ITEMS"])
def test_an_ambiguous_grammar_is_refused_by_the_target_and_let_go_by_drafters(bound, monkeypatch):
    monkeypatch.setattr(states_room, "MATCH_SECONDS", 0.05 if bound == "MATCH_SECONDS" else 60)
    monkeypatch.setattr(vocabulary_room, "MAX_ROW_ITEMS", 100 if bound == "MAX_ROW_ITEMS" else 9999)
    compiled = SMALL.vocabulary.compile(AMBIGUOUS)
    answer = [SMALL.texts.index(b"a")] * 260
    drafting = DraftMask(compiled, RecentStates(), answer)
    assert len(tokens_in(drafting.allowed([]))) >= SMALL.size
    judging = AnswerMask(compiled, RecentStates(), answer)
    with pytest.raises(InvalidField, match=r"sampling\.grammar\.ebnf: is too complex behind \d+"):
        judging.allowed([])


def test_a_state_that_gave_up_on_an_answer_is_still_right_where_it_was(monkeypatch):
    small = Small()
    compiled = small.vocabulary.compile(Grammar(GrammarKind.REGEX, "a{16}b{9}"))
    state = GrammarState(compiled)
    a, b = (small.texts.index(each) for each in (b"a", b"b"))
    assert tokens_in(state.allowed()) == {a}
    monkeypatch.setattr(states_room, "MATCH_SECONDS", -1)
    with pytest.raises(InvalidField, match="too ambiguous"):
        state.move_to([a] * 16)
    monkeypatch.undo()
    state.move_to([])
    assert tokens_in(state.allowed()) == {a}
    state.move_to([a] * 16)
    assert tokens_in(state.allowed()) == {b}
