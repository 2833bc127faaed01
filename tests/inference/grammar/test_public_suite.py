"""The JSON Schema Test Suite, which the source package of ``jsonschema`` ships: a schema either is
refused by name or allows nothing that it must not. ``make schema-suite`` runs this."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from jsonschema.validators import validator_for
from tests.inference.grammar.vocabularies import description_of, tokens_in
from tests.tool_model import SPECIAL, make_tokenizer

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.grammar import Grammar, GrammarKind
from specmesh.inference.grammar.states import GrammarState
from specmesh.inference.grammar.vocabulary import CompiledGrammar, Vocabulary

SUITE = os.environ.get("SCHEMA_SUITE", "")
DRAFT = "draft2020-12"
MAX_TOKENS = 200
NUM_WALKS = 5

pytestmark = pytest.mark.skipif(not SUITE, reason="SCHEMA_SUITE names no folder of the suite")


TOKENIZER = make_tokenizer()
BYTES = [TOKENIZER.decode([token]) for token in range(TOKENIZER.get_vocab_size())]
FORMATS = jsonschema.FormatChecker(jsonschema.FormatChecker.checkers.keys() - {"time"})
"""Its check of times knows no time zones, which RFC 3339 demands."""


@cache
def vocabulary() -> tuple[Vocabulary, int]:
    end = TOKENIZER.token_to_id(SPECIAL[1])
    described = description_of(TOKENIZER.to_str(), TOKENIZER.get_vocab_size(), end)
    return Vocabulary.of(described), end


def groups() -> list[Any]:
    """The schemas of the suite with their tests, by file."""
    found = []
    for file in sorted((Path(SUITE) / DRAFT).glob("*.json")) if SUITE else ():
        for number, group in enumerate(json.loads(file.read_text(encoding="utf-8"))):
            found.append(pytest.param(group, id=f"{file.stem}-{number}"))
    return found


def compiled(schema: object) -> CompiledGrammar | None:
    """The grammar of ``schema``; None if it is refused, by name."""
    try:
        return vocabulary()[0].compile(Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema)))
    except InvalidField as refused:
        check_refused(refused)
    return None


def check_refused(refused: InvalidField) -> None:
    assert refused.field == "sampling.grammar.json_schema"
    assert refused.reason


def fits(grammar: CompiledGrammar, value: object) -> bool:
    tokens = TOKENIZER.encode(json.dumps(value, ensure_ascii=False)).ids
    matcher = grammar.matcher()
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def walk(grammar: CompiledGrammar, dice: random.Random) -> str | None:
    """A text of the grammar, drawn token by token; None if it is long."""
    _, end = vocabulary()
    state = GrammarState(grammar)
    tokens: list[int] = []
    while len(tokens) < MAX_TOKENS:
        state.move_to(tokens)
        allowed = tokens_in(state.allowed())
        if end in allowed:
            return TOKENIZER.decode(tokens)
        closing = [token for token in allowed if BYTES[token] in {*'"}]'}]
        tokens.append(dice.choice(sorted(closing if closing and dice.random() < 0.5 else allowed)))
    return None


COUNTS: Counter[str] = Counter()


@pytest.mark.parametrize("group", groups())
def test_a_schema_is_refused_or_allows_nothing_that_is_not_valid(group):
    schema = group["schema"]
    grammar = compiled(schema)
    COUNTS["refused" if grammar is None else "compiled"] += 1
    if grammar is None:
        return
    for each in group["tests"]:
        allowed = fits(grammar, each["data"])
        COUNTS["valid", each["valid"], allowed] += 1
        assert each["valid"] or not allowed, each["description"]
    validator = validator_for(schema)(schema, format_checker=FORMATS)
    dice = random.Random(json.dumps(schema))
    for _ in range(NUM_WALKS):
        try:
            text = walk(grammar, dice)
        except InvalidField as refused:  # an answer of a grammar may become too complex
            check_refused(refused)
            return
        if text is not None:
            COUNTS["answers"] += 1
            validator.validate(json.loads(text))


def test_what_was_found_is_told():
    print(dict(COUNTS))  # noqa: T201
    assert COUNTS["compiled"]
    assert COUNTS["answers"]
