"""Formats of answers, as OpenAI's API and vLLM's name them, are grammars of the mesh."""

import json

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from tests.client.conftest import refuses, whole_answer

from specmesh.v1 import sampling_pb2

COMPLETION = {"model": "toy", "prompt": "hello"}
CHAT = {"model": "toy", "messages": [{"role": "user", "content": "hello"}]}
SCHEMA = {"type": "object", "properties": {"é": {"type": "integer"}}}


FORMATS = [
    ({"type": "json_object"}, sampling_pb2.Grammar(json_object=True)),
    (
        {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}},
        sampling_pb2.Grammar(json_schema=json.dumps(SCHEMA, ensure_ascii=False)),
    ),
    (
        {
            "type": "json_schema",
            "json_schema": {"name": "a", "schema": SCHEMA, "strict": False, "description": "b"},
        },
        sampling_pb2.Grammar(json_schema=json.dumps(SCHEMA, ensure_ascii=False)),
    ),
]
STRUCTURED = [
    ({"json": SCHEMA}, FORMATS[1][1]),
    ({"json": json.dumps(SCHEMA)}, sampling_pb2.Grammar(json_schema=json.dumps(SCHEMA))),
    ({"json_object": True}, sampling_pb2.Grammar(json_object=True)),
    ({"regex": "a+", "json_object": None}, sampling_pb2.Grammar(regex="a+")),
    ({"grammar": 'start: "a"'}, sampling_pb2.Grammar(ebnf='start: "a"')),
    (
        {"choice": ["yes", "no"], "disable_any_whitespace": False, "structural_tag": None},
        sampling_pb2.Grammar(choice={"texts": ["yes", "no"]}),
    ),
]


@pytest.mark.parametrize(
    ("fields", "grammar"),
    [
        *(({"response_format": given}, grammar) for given, grammar in FORMATS),
        *(({"structured_outputs": given}, grammar) for given, grammar in STRUCTURED),
        ({"guided_json": SCHEMA}, FORMATS[1][1]),
        ({"guided_json": json.dumps(SCHEMA)}, STRUCTURED[1][1]),
        ({"guided_regex": "a+", "guided_json": None}, STRUCTURED[3][1]),
        ({"guided_choice": ["yes", "no"]}, STRUCTURED[5][1]),
        ({"guided_grammar": 'start: "a"'}, STRUCTURED[4][1]),
    ],
)
@pytest.mark.parametrize(("path", "asked"), [("completions", COMPLETION), ("chat", CHAT)])
async def test_a_format_reaches_the_mesh_as_a_grammar(
    gateway, orchestrator, path, asked, fields, grammar
):
    orchestrator.generate_scripts = [whole_answer]
    path = "/v1/completions" if path == "completions" else "/v1/chat/completions"
    response = await gateway.post(path, {**asked, **fields})
    assert response.status_code == 200, response.text
    (request,) = orchestrator.requests
    assert request.sampling.grammar == grammar


async def test_a_plain_format_is_no_grammar(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    await gateway.post("/v1/chat/completions", {**CHAT, "response_format": {"type": "text"}})
    (request,) = orchestrator.requests
    assert not request.sampling.HasField("grammar")


@pytest.mark.parametrize(
    ("given", "grammar"),
    [
        ({"type": "json_object"}, FORMATS[0][1]),
        (
            {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True},
            FORMATS[1][1],
        ),
    ],
)
async def test_the_format_of_a_response_is_a_grammar_and_echoed(
    gateway, orchestrator, given, grammar
):
    orchestrator.generate_scripts = [whole_answer]
    asked = {"model": "toy", "input": "hello", "text": {"format": given}}
    response = await gateway.post("/v1/responses", asked)
    assert response.status_code == 200, response.text
    assert response.json()["text"]["format"] == given
    (request,) = orchestrator.requests
    assert request.sampling.grammar == grammar


RESPONSE = {"model": "toy", "input": "hello"}
REGEX = {"structured_outputs": {"regex": "a"}}


@pytest.mark.parametrize(
    ("path", "asked", "param"),
    [
        ("/v1/completions", COMPLETION | REGEX, "structured_outputs"),
        ("/v1/completions", COMPLETION | {"guided_regex": "a"}, "guided_regex"),
        ("/v1/responses", RESPONSE | {"guided_regex": "a"}, "guided_regex"),
        ("/v1/chat/completions", CHAT | REGEX, "structured_outputs"),
        ("/v1/responses", RESPONSE | REGEX, "structured_outputs"),
        ("/v1/chat/completions", CHAT | {"response_format": FORMATS[0][0]}, "response_format"),
        ("/v1/responses", RESPONSE | {"text": {"format": FORMATS[0][0]}}, "text.format"),
    ],
)
async def test_what_is_wrong_with_a_grammar_is_told_under_the_name_that_it_came_by(
    gateway, orchestrator, path, asked, param
):
    violation = BadRequest.FieldViolation(field="sampling.grammar.regex", description="no")
    lacking = ErrorInfo(
        domain="specmesh.dev", reason="UNSUPPORTED_FEATURE", metadata={"feature": "GRAMMARS"}
    )
    orchestrator.generate_scripts = [
        refuses(
            *(grpc.StatusCode.INVALID_ARGUMENT, "bad", "INVALID_FIELD"),
            BadRequest(field_violations=[violation]),
        ),
        refuses(grpc.StatusCode.FAILED_PRECONDITION, "lacks", "", lacking),
    ]
    for _ in range(2):
        response = await gateway.post(path, asked)
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)
