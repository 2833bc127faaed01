"""Grammars: the mesh says what the target alone says within them, whatever speculates."""

import json
import re

import jsonschema
import pytest
from tests.e2e.answers import all_of, answer

from specmesh.client import Grammar

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["new", "old"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
GRAMMARS = {
    "schema": Grammar(json_schema=PERSON),
    "regex": Grammar(regex=r"[a-z]{3,8}-\d{2}"),
    "lark": Grammar(ebnf='start: "def " NAME "():\\n    return " NAME\nNAME: /[a-z]{1,6}/'),
    "gbnf": Grammar(ebnf='root ::= "x = " [0-9]+ (" + " [0-9])? "\\n"'),
    "choice": Grammar(choice=["maybe", "yes", "yes, of course"]),
}
FITS = {
    "schema": lambda text: jsonschema.validate(json.loads(text), PERSON) is None,
    "regex": lambda text: re.fullmatch(r"[a-z]{3,8}-[0-9]{2}", text),
    "lark": lambda text: re.fullmatch(r"def [a-z]{1,6}\(\):\n    return [a-z]{1,6}", text),
    "gbnf": lambda text: re.fullmatch(r"x = [0-9]+( \+ [0-9])?\n", text),
    "choice": lambda text: text in {"maybe", "yes", "yes, of course"},
}
STRATEGIES = (
    {"strategy": "autoregressive"},
    {"strategy": "speculative"},
    {"strategy": "tree", "width": 12},
    {"strategy": "heads-and-drafter"},
    {"strategy": "dsi"},
    {"strategy": "branch-prediction"},
)


@pytest.mark.parametrize("name", GRAMMARS)
@pytest.mark.parametrize(
    "sampling", [{"temperature": 0}, {"seed": 5}, {"seed": 6, "acceptance_mode": "rejection"}]
)
async def test_answers_are_of_their_grammar_and_the_same_with_every_strategy(
    client, prompts, name, sampling
):
    results = await all_of(
        *(
            answer(client, prompts[1], max_tokens=96, grammar=GRAMMARS[name], **each, **sampling)
            for each in STRATEGIES
        )
    )
    for result in results:
        if result.finish_reason == "end_of_text":
            assert FITS[name](result.text), result.text
    if "acceptance_mode" not in sampling:
        assert len({result.text for result in results}) == 1
