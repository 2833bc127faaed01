"""The grammar of each format: what it allows, its parser reads as calls and nothing else."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.inference.grammar.vocabularies import description_of, tokens_in
from tests.orchestrator.model import model_info
from tests.orchestrator.parsing.answers import message, parsed
from tests.tool_model import SPECIAL, make_tokenizer
from tokenizers import Tokenizer

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.grammar import Grammar, GrammarKind
from specmesh.inference.grammar.states import GrammarState
from specmesh.inference.grammar.vocabulary import Vocabulary
from specmesh.orchestrator.parsing.answer_parser import AnswerStyle
from specmesh.orchestrator.parsing.argument_types import argument_types
from specmesh.orchestrator.parsing.reasoning import REASONING_FORMATS
from specmesh.orchestrator.parsing.registry import tool_formats
from specmesh.orchestrator.replicas.target import Target
from specmesh.orchestrator.replicas.transport.peer_model import PeerModel
from specmesh.orchestrator.requests.forced_calls import ForcedCalls, read_forced
from specmesh.serving.templates.tokenizers import fingerprint
from specmesh.v1 import chat_pb2

SCHEMAS = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"enum": ["Köln", 'a "b" \\ </tool_call> [TOOL_CALLS] {']},
            "days": {"$ref": "#/$defs/days", "description": "start: // ::= # %"},
        },
        "required": ["city"],
        "additionalProperties": False,
        "$defs": {"days": {"type": "integer", "minimum": 0, "maximum": 14}},
    },
    "add-2": {"properties": {"a": {"type": "boolean"}}, "additionalProperties": False},
    'wei"rd näme': None,
}
TOOLS = [
    json.dumps({"type": "function", "function": {"name": name, "parameters": schema}})
    for name, schema in SCHEMAS.items()
]
TYPES = {name: argument_types(schema) for name, schema in SCHEMAS.items()}
FORMATS = tuple(tool_formats())
MARKS = (
    *("<tool_call>", "</tool_call>", "[ARGS]", "[CALL_ID]", "</arg_value>", "<arg_key>"),
    *("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
)


@cache
def target(special: bool) -> Target:
    """A model whose markers are all special tokens, or none but those of texts."""
    tokenizer = make_tokenizer()
    if special:
        tokenizer.add_special_tokens(list(MARKS))
    else:
        tokenizer = Tokenizer.from_str(
            json.dumps(_without(json.loads(tokenizer.to_str()), {"</think>", "[TOOL_CALLS]"}))
        )
    text = tokenizer.to_str()
    info = model_info(
        "toy", vocab_size=tokenizer.get_vocab_size(), tokenizer_fingerprint=fingerprint(text)
    )
    return Target.of(PeerModel(info, text))


def _without(described, spellings):
    """The same tokenizer, in which ``spellings`` are no special tokens."""
    for token in described["added_tokens"]:
        if token["content"] in spellings:
            token["content"] = f"<other {token['id']}>"
    return described


@cache
def vocabulary(special: bool) -> tuple[Vocabulary, int]:
    tokenizer = target(special).tokenizer
    end = tokenizer.token_to_id(SPECIAL[1])
    size = tokenizer.get_vocab_size()
    return Vocabulary.of(description_of(tokenizer.to_str(), size, end)), end


def forced(
    name: str, special: bool, prompt: str = "", reasoning: str = "", **choice
) -> ForcedCalls:
    written = tool_formats()[name]
    tools = [
        tool for tool, each in zip(TOOLS, SCHEMAS, strict=True) if written.names.fullmatch(each)
    ]
    chat = chat_pb2.Chat(tools=tools, tool_choice=chat_pb2.ToolChoice(**choice))
    style = AnswerStyle(written, REASONING_FORMATS.get(reasoning), TYPES)
    return read_forced(chat, style, prompt, target(special))


def grammar_of(calls: ForcedCalls) -> Grammar:
    return Grammar(GrammarKind.EBNF, calls.source)


def walk(grammar: Grammar, special: bool, dice: random.Random) -> str:
    """A text of the grammar, drawn token by token; it ends soon after it may."""
    own, end = vocabulary(special)
    state = GrammarState(own.compile(grammar))
    tokens: list[int] = []
    while True:
        state.move_to(tokens)
        allowed = tokens_in(state.allowed())
        if end in allowed and (len(allowed) == 1 or dice.random() < 0.5):
            return target(special).tokenizer.decode(tokens, skip_special_tokens=False)
        tokens.append(dice.choice(sorted(allowed - {end})))


def fits(grammar: Grammar, special: bool, text: str) -> bool:
    own, _ = vocabulary(special)
    matcher = own.compile(grammar).matcher()
    tokens = target(special).tokenizer.encode(text, add_special_tokens=False).ids
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def check(name: str, text: str, *, prompt: str = "", reasoning: str = "") -> list[str]:
    """The names of the calls that the parser finds; there is nothing but valid calls."""
    style = AnswerStyle(tool_formats()[name], REASONING_FORMATS.get(reasoning), TYPES)
    content, calls, _ = message(parsed(style, [text], prompt))
    assert content == "", text
    assert calls, text
    for called, arguments in calls:
        schema = SCHEMAS[called] or {"maxProperties": 0}
        jsonschema.validate(json.loads(arguments), {"type": "object", **schema})
    return [called for called, _ in calls]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(FORMATS), st.booleans(), st.booleans(), st.integers(0, 1 << 32))
def test_what_a_grammar_allows_is_calls_and_nothing_else(name, special, single, seed):
    grammar = grammar_of(forced(name, special, single_call=single))
    called = check(name, walk(grammar, special, random.Random(seed)))
    assert not single or len(called) == 1


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(FORMATS), st.booleans(), st.integers(0, 1 << 32))
def test_a_choice_names_what_is_called(name, special, seed):
    grammar = grammar_of(forced(name, special, names=["add-2"]))
    assert set(check(name, walk(grammar, special, random.Random(seed)))) == {"add-2"}


WEATHER = '{"city": "Köln", "days": 2}'
CALL = f'{{"name": "get_weather", "arguments": {WEATHER}}}'
ADD = '{"name": "add-2", "arguments": {"a": true}}'
QWEN = """<tool_call>
<function=get_weather>
<parameter=city>
Köln
</parameter>
<parameter=days>
2
</parameter>
</function>
</tool_call>"""
QWEN_ADD = "<tool_call>\n<function=add-2>\n</function>\n</tool_call>"
GLM = """<tool_call>get_weather
<arg_key>city</arg_key>
<arg_value>Köln</arg_value>
<arg_key>days</arg_key>
<arg_value>2</arg_value>
</tool_call>"""
GLM_ADD = "<tool_call>add-2\n<arg_key>a</arg_key>\n<arg_value>true</arg_value>\n</tool_call>"
DEEPSEEK = f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{WEATHER}"
DEEPSEEK_R1 = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
    f"{WEATHER}\n```<｜tool▁call▁end｜>"
)
DEEPSEEK_ADD = "<｜tool▁call▁begin｜>add-2<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
WRITTEN = {
    "hermes": [
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"<tool_call>{CALL}</tool_call><tool_call>{ADD}</tool_call>",
        f"<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{ADD}\n</tool_call>",
    ],
    "llama3": [
        CALL.replace("arguments", "parameters"),
        f"{CALL}; {ADD}".replace("arguments", "parameters"),
    ],
    "mistral": [
        f"[TOOL_CALLS] [{CALL}, {ADD}]",
        f"[TOOL_CALLS][{CALL}]",
        f'[TOOL_CALLS] [{CALL[:-1]}, "id": "a1B2c3D4e"}}]',
        f"[TOOL_CALLS]get_weather{WEATHER}[TOOL_CALLS]add-2{{}}",
        f"[TOOL_CALLS]get_weather[ARGS]{WEATHER}",
        f"[TOOL_CALLS]get_weather[CALL_ID]a1B2c3D4e[ARGS]{WEATHER}",
    ],
    "qwen3_coder": [QWEN, f"{QWEN}{QWEN_ADD}", f"{QWEN}\n{QWEN_ADD}"],
    "glm45": [GLM, GLM.replace("\n", ""), f"{GLM}\n{GLM_ADD}", f"{GLM}{GLM_ADD}"],
    "deepseek_v3": [
        f"{DEEPSEEK}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        f"{DEEPSEEK}<｜tool▁call▁end｜>{DEEPSEEK_ADD}<｜tool▁calls▁end｜>",
        f"{DEEPSEEK_R1}\n{DEEPSEEK_ADD}<｜tool▁calls▁end｜>",
    ],
    "pythonic": [
        '[get_weather(city="Köln", days=2)]',
        '[get_weather(city="Köln")]',
        '[get_weather(city="Köln"), add-2(a=true)]',
    ],
}
CASES = [(name, text) for name, texts in WRITTEN.items() for text in texts]


@pytest.mark.parametrize(("name", "text"), CASES)
def test_calls_that_are_cut_off_anywhere_leave_no_content(name, text):
    style = AnswerStyle(tool_formats()[name], REASONING_FORMATS["think"], TYPES, calls_only=True)
    whole = f"<think>hm</think>{text}"
    for end in range(len(whole)):
        content, calls, _ = message(parsed(style, [whole[:end]]))
        assert content == ""
        assert {called for called, _ in calls} <= SCHEMAS.keys()


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize(("name", "text"), CASES)
def test_calls_as_templates_write_them_are_allowed(name, text, special):
    assert fits(grammar_of(forced(name, special)), special, text)
    assert check(name, text)[0] == "get_weather"


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_other_texts_are_not_allowed(name, special):
    grammar = grammar_of(forced(name, special))
    first, *_ = WRITTEN[name]
    for text in ("", "Hello", f"I look. {first}", first + " ", first.replace("Köln", "Bonn")):
        assert not fits(grammar, special, text), text


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_a_model_reasons_before_it_calls(name, special):
    first, *_ = WRITTEN[name]
    thought = f"hm <tool_ca [TOOL\n</th </think>\n\n{first}"
    free = grammar_of(forced(name, special, reasoning="think"))
    assert fits(free, special, f"<think>\n{thought}")
    assert fits(free, special, first)
    begun = grammar_of(forced(name, special, "<think>\n", "think"))
    assert fits(begun, special, thought)
    assert fits(begun, special, f"</think>{first}")
    assert not fits(begun, special, first)
    assert check(name, thought, prompt="<think>\n", reasoning="think")[0] == "get_weather"


def test_what_is_wrong_names_the_tool():
    tools = [*TOOLS, _tool({"type": "object", "properties": {"a": {"type": "string", "not": {}}}})]
    chat = chat_pb2.Chat(tools=tools, tool_choice={"names": ["f", "add-2"]})
    style = AnswerStyle(tool_formats()["hermes"])
    calls = read_forced(chat, style, "", target(True))
    with pytest.raises(InvalidField) as error:
        vocabulary(True)[0].compile(grammar_of(calls))
    told = calls.blamed(error.value)
    assert told.field == "chat.tools[3].function.parameters"
    assert told.reason == 'Unimplemented keys: ["not"]'
    other = InvalidField("sampling.grammar.ebnf", "is too complex behind 9 tokens: too ambiguous")
    assert calls.blamed(other).field == "chat.tool_choice"
    elsewhere = InvalidField("sampling.seed", "no")
    assert calls.blamed(elsewhere) is elsewhere


def _tool(parameters: object) -> str:
    return json.dumps({"type": "function", "function": {"name": "f", "parameters": parameters}})


@pytest.mark.parametrize(
    ("tools", "choice", "field"),
    [
        ([], {}, "chat.tool_choice"),
        (TOOLS, {"names": ["add-2", "sub"]}, "chat.tool_choice.names[1]"),
        ([TOOLS[0], _tool("no")], {}, "chat.tools[1].function.parameters"),
        ([TOOLS[0], _tool({"type": "string"})], {}, "chat.tools[1].function.parameters"),
        ([_tool({"type": ["array", "null"]})], {}, "chat.tools[0].function.parameters"),
    ],
)
def test_a_choice_that_can_not_be_is_refused_by_name(tools, choice, field):
    chat = chat_pb2.Chat(tools=tools, tool_choice=choice)
    with pytest.raises(InvalidField) as error:
        read_forced(chat, AnswerStyle(tool_formats()["hermes"]), "", target(True))
    assert error.value.field == field


def test_schemas_that_are_too_large_are_refused_by_name():
    chat = chat_pb2.Chat(tools=[_tool({"enum": ["x" * 70_000]})], tool_choice={})
    calls = read_forced(chat, AnswerStyle(tool_formats()["hermes"]), "", target(True))
    with pytest.raises(InvalidField, match=r"^chat\.tools: the grammar"):
        _ = calls.grammar


@pytest.mark.parametrize("written", [None, tool_formats()["hermes"]])
def test_a_format_without_a_grammar_is_refused_by_name(written):
    style = AnswerStyle(written and replace(written, name="own", rules=None))
    chat = chat_pb2.Chat(tools=TOOLS, tool_choice={})
    with pytest.raises(InvalidField, match=f"'{'own' if written else 'none'}'"):
        read_forced(chat, style, "", target(True))
