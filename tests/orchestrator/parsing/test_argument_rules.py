"""Arguments that are written one by one: what schemas say of each of them, and of their types."""

from __future__ import annotations

import json
from collections.abc import Set

import jsonschema
import pytest
from tests.orchestrator.parsing.answers import message, parsed
from tests.orchestrator.parsing.test_call_grammars import fits, grammar_of, target

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.parsing import argument_rules
from specmesh.orchestrator.parsing.answer_parser import AnswerStyle
from specmesh.orchestrator.parsing.argument_types import argument_types, as_json
from specmesh.orchestrator.parsing.registry import tool_formats
from specmesh.orchestrator.parsing.schemas import ALL_TYPES
from specmesh.orchestrator.requests.forced_calls import read_forced
from specmesh.v1 import chat_pb2


def spelled(value: object) -> str:
    """A name for a parameter that is the same in all processes, unlike that of a set."""
    return (str(sorted(value)) if isinstance(value, Set) else str(value))[:60]


SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "any"},
        "perhaps": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "unit": {"$ref": "#/$defs/unit"},
        "place": {"$ref": "#/$defs/place"},
        "count": {"type": ["integer", "null"]},
        "mixed": {"enum": ["all", 5, None]},
        "any": {},
        "short": {"type": "string", "minLength": 2, "maxLength": 12},
        "long": {"type": "string", "minLength": 3},
    },
    "required": ["text"],
    "$defs": {
        "unit": {"type": "string", "enum": ["C", "F"]},
        "place": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "within": {"$ref": "#/$defs/place"}},
            "additionalProperties": False,
        },
    },
}
NESTED = {"name": "</parameter></arg_value> \\ é", "within": {"name": "{"}}
VALUES = [
    {"text": ""},
    {"text": "two\nlines\n\n  of <b>text</b> & 5"},
    {"text": "5", "perhaps": None},
    {"text": "true", "perhaps": "so"},
    {"text": " ", "unit": "C", "place": NESTED},
    {"text": "é😀", "count": None, "mixed": 5},
    {"text": "a", "count": -3, "mixed": "all", "any": [1, {"b": "c"}]},
    {"text": "a", "mixed": None, "any": "text"},
    {"text": "a", "short": "é😀", "long": "</parameter\n\n</arg_valu"},
    {"text": "a", "short": "\nab\n\ncd\n", "long": "abc\n"},
    {"text": "a", "short": "123456789012"},
]
OTHERS = [
    {},
    {"perhaps": None},
    {"text": "a", "unit": "K"},
    {"text": "a", "place": {"name": 5}},
    {"text": "a", "count": "many"},
    {"text": "a", "mixed": 6},
    {"text": "a", "short": "1234567890123"},
    {"text": "a", "short": "é"},
    {"text": "a", "short": "\n"},
    {"text": "a", "long": "\n\n"},
]


def tool(parameters, name="f"):
    return json.dumps({"type": "function", "function": {"name": name, "parameters": parameters}})


def written(name, values) -> str:
    """A call as the model's template writes it."""
    spelled = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in values.items()
    }
    if name == "glm45":
        pairs = "".join(
            f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"
            for key, value in spelled.items()
        )
        return f"<tool_call>f\n{pairs}</tool_call>"
    if name == "pythonic":
        pairs = ", ".join(
            f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in values.items()
        )
        return f"[f({pairs})]"
    pairs = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in spelled.items())
    return f"<tool_call>\n<function=f>\n{pairs}</function>\n</tool_call>"


def forced(name, parameters, tool_name="f"):
    chat = chat_pb2.Chat(tools=[tool(parameters, tool_name)], tool_choice={})
    return read_forced(chat, AnswerStyle(tool_formats()[name]), "", target(False))


FORMATS = ("qwen3_coder", "glm45", "pythonic")


@pytest.mark.parametrize("values", VALUES, ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_a_call_that_is_valid_is_allowed_and_read_as_it_was_meant(name, values):
    text = written(name, values)
    assert fits(grammar_of(forced(name, SCHEMA)), False, text)
    types = {"f": argument_types(SCHEMA)}
    content, ((_, arguments),), _ = message(
        parsed(AnswerStyle(tool_formats()[name], None, types), [text])
    )
    assert content == ""
    jsonschema.validate(json.loads(arguments), SCHEMA)
    assert json.loads(arguments) == values
    by_characters = message(parsed(AnswerStyle(tool_formats()[name], None, types), text))
    assert by_characters == ("", [("f", arguments)], "")


@pytest.mark.parametrize("values", OTHERS, ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_a_call_that_is_not_valid_is_not_allowed(name, values):
    assert not fits(grammar_of(forced(name, SCHEMA)), False, written(name, values))


@pytest.mark.parametrize(
    "parameters",
    [
        {"anyOf": [{"required": ["a"]}]},
        {"minProperties": 1},
        {"properties": {"a": {"type": "string", "pattern": "a+"}}},
        {"properties": {"a": {"type": "string", "minLength": 2, "format": "date"}}},
        {"properties": {"a": {"type": ["string", "null"], "minLength": 2}}},
        {"properties": {"a": {"type": "string", "minLength": "2"}}},
        {"properties": {"a": {"type": "string", "maxLength": -1}}},
        {"properties": {"a": {"type": "string", "enum": ["a</parameter></arg_value>"]}}},
        {"properties": {"a": {"enum": ["5", 5]}}},
        {"properties": {"a": {"type": ["string", "integer"], "minimum": 5}}},
        {"properties": {"a": {"anyOf": [{"type": "string"}, {"const": 5}]}}},
        {"properties": {"a": {"$ref": "#/properties/b"}, "b": {"type": "string"}}},
        {"properties": {"a": {"$ref": "#/$defs/b", "$defs": {"b": {"type": "string"}}}}},
        {"properties": {"a": {"$ref": "#/$defs/b", "minLength": 3}}, "$defs": {"b": {}}},
        {"properties": {"a": {"type": "strin"}}},
        {"properties": {"a": {"type": "strin", "enum": ["b"]}}},
        {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": ["int"]}]}}},
        {"properties": {"a>\n": {}}},
        {"properties": {"": {}}},
        {"properties": []},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["qwen3_coder", "glm45"])
def test_what_can_not_be_enforced_is_refused_under_the_name_of_the_tool(name, parameters):
    with pytest.raises(InvalidField) as refused:
        forced(name, parameters)
    assert refused.value.field == "chat.tools[0].function.parameters"
    assert repr(name) in refused.value.reason


@pytest.mark.parametrize(
    ("name", "tool_name"),
    [("qwen3_coder", "a>b"), ("glm45", "a<b"), ("deepseek_v3", "a\nb"), ("pythonic", "5 f")],
)
def test_a_name_that_the_format_can_not_write_is_refused(name, tool_name):
    with pytest.raises(InvalidField) as refused:
        forced(name, {}, tool_name)
    assert refused.value.field == "chat.tools[0].function.name"


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        ("5", {"string"}, "5"),
        ("5", ALL_TYPES, 5),
        ("5", {"number", "string"}, 5),
        ("5", {"boolean"}, 5),
        ("five", {"number"}, "five"),
        (" True ", {"boolean"}, True),
        ("None", {"null", "string"}, None),
        ("None", {"string"}, "None"),
        ("NaN", {"number"}, "NaN"),
        ('{"a": 1}', {"object"}, {"a": 1}),
        ('{"a": 1}', {"string", "null"}, '{"a": 1}'),
        ("[" * 100_000, ALL_TYPES, "[" * 100_000),
        ("", ALL_TYPES, ""),
    ],
    ids=spelled,
)
def test_an_argument_that_is_written_as_text_has_the_type_of_its_schema(text, types, value):
    assert json.loads(as_json(text, frozenset(types))) == value


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "integer"}, {"number"}),
        ({"oneOf": [{"const": "a"}, {"enum": [1, None]}]}, {"string", "number", "null"}),
        ({"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}, {"string"}),
        ({"$ref": "#/$defs/b"}, {"boolean"}),
        ({"$ref": "#/$defs/loop"}, None),
        ({"$ref": "#/$defs/endless"}, None),
        ({"$ref": "elsewhere"}, None),
        ({"type": 5}, None),
        (True, None),
        ([], None),
    ],
    ids=spelled,
)
def test_types_are_those_of_the_schema_and_all_where_it_says_nothing(schema, types):
    definitions = {
        "a~b": {"type": "boolean"},
        "b": {"$ref": "#/$defs/a~0b"},
        "loop": {"$ref": "#/$defs/loop"},
        "endless": {"anyOf": [{"$ref": "#/$defs/endless"}]},
    }
    found = argument_types({"properties": {"a": schema}, "$defs": definitions})
    assert found == ({} if types is None else {"a": types})


def fan(last):
    """A schema of a few thousand bytes with 32**6 paths of references, which end at ``last``."""
    definitions = {f"s{n}": {"anyOf": [{"$ref": f"#/$defs/s{n + 1}"}] * 32} for n in range(6)}
    return {"properties": {"a": {"$ref": "#/$defs/s0"}}, "$defs": {**definitions, "s6": last}}


def test_types_are_found_whatever_the_number_of_paths_through_a_schema():
    assert argument_types(fan({"type": "boolean"})) == {"a": {"boolean"}}
    loop = {"anyOf": [{"$ref": "#/$defs/loop"}] * 32}
    assert argument_types({"properties": {"a": loop}, "$defs": {"loop": loop}}) == {}


def test_any_text_is_allowed_whatever_the_number_of_paths_to_its_type():
    assert forced("glm45", fan({"type": "string"})).source == (
        forced("glm45", {"properties": {"a": {"type": "string"}}}).source
    )


@pytest.mark.parametrize("name", ["glm45", "pythonic"])
def test_a_grammar_is_not_written_on_once_it_is_too_large(name, monkeypatch):
    rules = []

    def large(_):
        rules.append("x" * 40_000)
        return rules[-1]

    monkeypatch.setattr(argument_rules, "json_rule", large)
    number = {"type": "integer"}
    with pytest.raises(InvalidField, match="grammar of more than") as refused:
        forced(name, {"properties": dict.fromkeys("abcdefgh", number)})
    assert refused.value.field == "chat.tools[0].function.parameters"
    assert len(rules) <= 4


@pytest.mark.parametrize(("short", "fit"), [("ab", True), ("a\n", True), ("a", False), ("", False)])
def test_a_text_ends_with_a_special_token_where_the_model_has_one(short, fit):
    chat = chat_pb2.Chat(tools=[tool(SCHEMA)], tool_choice={})
    calls = read_forced(chat, AnswerStyle(tool_formats()["glm45"]), "", target(True))
    text = written("glm45", {"text": "a", "short": short})
    assert fits(grammar_of(calls), True, text) is fit
