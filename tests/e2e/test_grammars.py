"""Grammars: the mesh says what the target alone says within them, whatever speculates."""

import json
import re

import grpc
import jsonschema
import pytest
from tests.e2e.answers import all_of, answer

from specmesh.client import Grammar, InvalidRequest
from specmesh.v1 import generation_pb2
from specmesh.v1.generation_pb2_grpc import GenerationServiceStub

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


GREEDY, COUPLED = {"temperature": 0}, {"seed": 5}
REJECTION = {"seed": 6, "acceptance_mode": "rejection"}


@pytest.mark.parametrize(
    ("name", "sampling"),
    [
        *(("schema", each) for each in (GREEDY, COUPLED, REJECTION)),
        *(("regex", GREEDY), ("lark", COUPLED), ("gbnf", REJECTION), ("choice", COUPLED)),
    ],
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


@pytest.mark.parametrize("cut", [1, 4, 9])
async def test_a_resumed_answer_goes_on_in_the_middle_of_its_grammar(mesh, client, prompts, cut):
    grammar = GRAMMARS["schema"]
    options = {"seed": 5, "max_tokens": 96, "grammar": grammar}
    whole = await answer(client, prompts[1], **options, strategy="autoregressive")
    request = generation_pb2.GenerateRequest(
        text=prompts[1],
        sampling={"seed": 5, "grammar": grammar.message},
        stopping={"max_tokens": 96},
        received={"token_ids": whole.token_ids[:cut]},
    )
    rest = []
    async with grpc.aio.insecure_channel(mesh.orchestrator.address) as channel:
        async for response in GenerationServiceStub(channel).Generate(request, timeout=60):
            rest += response.event.chunk.token_ids
    assert tuple(rest) == whole.token_ids[cut:]


async def test_a_grammar_ends_an_answer_before_its_least_length(client, prompts):
    """A text that is complete must end, whatever else is asked."""
    grammar = Grammar(choice=["yes"])
    result = await answer(client, prompts[0], max_tokens=40, min_tokens=20, grammar=grammar)
    assert (result.text, result.finish_reason) == ("yes", "end_of_text")


@pytest.mark.parametrize(
    ("grammar", "field", "words"),
    [
        (Grammar(json_schema={"type": "strin"}), "json_schema", "Invalid type: strin"),
        (Grammar(regex="(a"), "regex", "unclosed group"),
        (Grammar(ebnf="start: a"), "ebnf", 'line 1, column 8: unknown name: "a"'),
    ],
    ids=["schema", "regex", "ebnf"],
)
async def test_a_grammar_that_can_not_be_compiled_is_refused_by_name(
    client, prompts, grammar, field, words
):
    for strategy in ({"strategy": "speculative"}, {"strategy": "dsi"}):
        with pytest.raises(InvalidRequest) as raised:
            await answer(client, prompts[0], grammar=grammar, **strategy)
        (violation,) = raised.value.field_violations
        assert violation.field == f"sampling.grammar.{field}"
        assert violation.description == words
