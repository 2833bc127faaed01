"""Grammars in each language: what they take, what they refuse and in which words."""

import json
import threading
from itertools import pairwise

import pytest
from tests.inference.grammar.vocabularies import Small, fits, shipped_vocabulary

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.grammar import Grammar, GrammarKind
from specmesh.inference.grammar.deep_stack import STACK_BYTES

SCHEMA, OBJECT, REGEX, EBNF = (
    GrammarKind.JSON_SCHEMA,
    GrammarKind.JSON_OBJECT,
    GrammarKind.REGEX,
    GrammarKind.EBNF,
)


ARITHMETIC = r"""
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
"""
A_NUMBER = '{"properties": {"a": {"type": "integer"}}}'


@pytest.mark.parametrize(
    ("kind", "source", "texts", "others"),
    [
        (REGEX, "^abc$", ["abc"], ["ab", "abcd", "^abc$"]),
        (REGEX, "a|bc", ["a", "bc"], ["ac", "abc"]),
        (REGEX, r"\d+/\w", ["12/x", "1/_"], ["\u0661/x", "1/é"]),
        (REGEX, "(?i)yes", ["yes", "YES"], ["no"]),
        (REGEX, "é{2}\n", ["éé\n"], ["é\n"]),
        (OBJECT, "", ["{}", '{"a": [1, {"b": null}]}'], ["[]", "1", "{} {}"]),
        (SCHEMA, "true", ["1", '"a"', "[]"], ["x"]),
        (SCHEMA, '{"enum": ["a", 2]}', ['"a"', "2"], ['"b"', "a"]),
        (SCHEMA, '{"pattern": "^a+$", "type": "string"}', ['"aa"'], ['"b"']),
        (SCHEMA, A_NUMBER, ['{"a": 1, "b": "a"}'], [r'{"\u0061": "x"}', r'{"a": 1, "\u0061": ""}']),
        (SCHEMA, '{"type": "string"}', [r'"\n\"\\é"'], [r'"\u00e9"']),
        (SCHEMA, r'{"enum": ["x\u0001y"]}', [r'"x\u0001y"'], ['"xy"']),
        (SCHEMA, '{"enum": ["\x7f"]}', [r'"\u007f"'], ['""']),
        (SCHEMA, r'{"pattern": "^x\\x1fy$"}', [r'"x\u001fy"'], ['"xy"']),
        (SCHEMA, r'{"pattern": "^\\u{7F}$"}', [r'"\u007f"'], ['""']),
        (SCHEMA, '{"x-guidance": {"whitespace_pattern": "_*"}}', ['{"a": 1}'], ['{"a":__1}']),
        (EBNF, 'start: "a" b*\nb: "b" | "(" b ")"', ["a", "ab(b)"], ["a(", "b"]),
        (EBNF, 'root ::= "a" b*\nb ::= "b" | "(" b ")"', ["a", "ab(b)"], ["a(", "b"]),
        (EBNF, ARITHMETIC, ["a=b\n", "(a+b)*3 =7\nx=y \n"], ["a=b", "a=\n"]),
        (EBNF, r'root ::= "\u00e9" [\u0041-\u00FF]+ [\U0001F600]', ["éAé😀"], ["éa", "é1😀"]),
        (EBNF, r'root ::= [\u005d\u0022] "\u0022\u005c" "\\u0041"', ['""\\\\u0041'], ["]A"]),
        (EBNF, 'root ::= x "a"\nx ::= [a-z]*', ["a", "bca", "aaa"], ["", "ab"]),
        (EBNF, 'root ::= x fooBar\nx ::= "x"\nfooBar ::= "y" root?', ["xy", "xyxy"], ["x"]),
        (EBNF, 'root ::= aB x\naB ::= "a"\na-b ::= "b" root\nx ::= "c"', ["ac"], ["bc"]),
    ],
)
def test_a_source_means_what_its_language_says(kind, source, texts, others):
    grammar = Grammar(kind, source)
    assert [text for text in texts if not fits(grammar, text)] == []
    assert [text for text in others if fits(grammar, text)] == []


@pytest.mark.parametrize(
    "more",
    [
        {"description": r"a\aerial"},
        {"title": "\x07", "$comment": r"C:\x1", "default": r"\v", "examples": ["\x01"]},
        {"properties": {"a": {"type": "integer", "description": r"\u0001"}}},
        {"$defs": {"pattern": {"description": r"\a"}}},
        {"patternProperties": {r"^\\\\a$": True}},
        {"properties": {"a": {"type": "integer"}, "b": {"enum": [r"C:\u0001", r"a\aerial"]}}},
    ],
)
def test_a_backslash_in_a_schema_does_not_let_a_property_pass_its_rule(more):
    """Notes may have any text, and where a backslash means itself it begins no escape."""
    schema = {**json.loads(A_NUMBER), **more}
    grammar = Grammar(SCHEMA, json.dumps(schema))
    assert fits(grammar, '{"a": 1}')
    assert not fits(grammar, r'{"\u0061": "x"}')


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"const": {"description": "\x01"}}, r'{"description": "\u0001"}'),
        ({"properties": {"default": {"const": "\x01"}}}, r'{"default": "\u0001"}'),
        ({"$defs": {"title": {"const": "\x01"}}, "$ref": "#/$defs/title"}, r'"\u0001"'),
        ({"anyOf": [{"pattern": r"^\\\a$", "type": "string"}]}, r'"\\\u0007"'),
        ({"properties": {"\x01": {"type": "null"}}}, r'{"\u0001": null}'),
        ({"patternProperties": {r"^\x01$": {"type": "null"}}}, r'{"\u0001": null}'),
    ],
)
def test_a_control_character_that_a_schema_asks_for_can_be_written(schema, text):
    assert fits(Grammar(SCHEMA, json.dumps(schema)), text)


@pytest.mark.parametrize(
    "schema",
    [
        {"exclusiveMinimum": 0, "maximum": 0.5},
        {"exclusiveMinimum": 1, "exclusiveMaximum": 1.5},
        {"minimum": -0.05, "exclusiveMaximum": 0},
        {"minimum": 0, "exclusiveMinimum": True, "maximum": 0.5},
        {"properties": {"a": {"exclusiveMinimum": 0, "maximum": 0.5}}},
        {"allOf": [{"exclusiveMinimum": 0}, {"maximum": 0.5}]},
        {"$ref": "#/$defs/a", "maximum": 0.5, "$defs": {"a": {"exclusiveMinimum": 0}}},
        {"anyOf": [{"maximum": 0.5}], "exclusiveMinimum": 0},
    ],
)
def test_a_whole_number_is_excluded_or_the_schema_is_refused(schema):
    schema = json.dumps({"type": "number", **schema})
    for grammar in (Grammar(SCHEMA, schema), Grammar(EBNF, f"start: %json {schema}")):
        with pytest.raises(InvalidField, match="at least 1 from the other bound"):
            fits(grammar, "0")


@pytest.mark.parametrize("bound", [2**53 + 1, -(2**53) - 2, 1e20, 2**63 - 1])
@pytest.mark.parametrize("name", ["minimum", "exclusiveMaximum"])
def test_bounds_that_would_be_rounded_are_refused_by_name(name, bound):
    schema = json.dumps({"items": {"type": "integer", name: bound}})
    with pytest.raises(InvalidField, match=f"{name} must lie within"):
        fits(Grammar(SCHEMA, schema), "[]")


@pytest.mark.parametrize(
    ("schema", "text", "other"),
    [
        ({"exclusiveMinimum": 0, "maximum": 1}, "0.5", "0"),
        ({"exclusiveMinimum": 0.1, "maximum": 0.5}, "0.2", "0.1"),
        ({"minimum": 0, "maximum": 0.5}, "0", "1"),
        ({"exclusiveMaximum": 2**53}, str(2**53 - 1), str(2**53)),
        ({"type": "integer", "maximum": 2**63 - 1}, str(2**63 - 1), str(2**63)),
        (
            {"properties": {"a": {"exclusiveMinimum": 0}, "b": {"maximum": 0.5}}, "type": "object"},
            '{"a": 1}',
            '{"b": 1}',
        ),
    ],
)
def test_other_bounds_are_kept(schema, text, other):
    grammar = Grammar(SCHEMA, json.dumps({"type": "number", **schema}))
    assert fits(grammar, text)
    assert not fits(grammar, other)


@pytest.mark.parametrize("text", ['"', "\\", "é", "😀", "a\nb", "a/b", "%json", "<[5]>", "'"])
def test_a_choice_takes_every_character_as_it_is(text):
    assert fits(Grammar.of_choices(["x", text]), text)
    assert not fits(Grammar.of_choices(["x", text]), f"{text}{text}")


@pytest.mark.parametrize(
    ("kind", "source", "words"),
    [
        (SCHEMA, '{"type": "strin"}', "Invalid type: strin"),
        (SCHEMA, "{", "line 1 column 2"),
        (SCHEMA, "[1]", "must be an object, or true or false"),
        (SCHEMA, "false", "Unsatisfiable schema: schema is false"),
        (SCHEMA, '{"minimum": 2, "maximum": 1, "type": "number"}', "Unsatisfiable schema"),
        (SCHEMA, '{"type": "array", "contains": {}}', 'Unimplemented keys: ["contains"]'),
        (SCHEMA, '{"type": "string", "format": "dish"}', "Unknown format: dish"),
        (SCHEMA, '{"$ref": "https://example.org/schema"}', "not present in a registry"),
        (SCHEMA, '{"type": "string", "pattern": "(?=a)"}', "look-around"),
        (SCHEMA, '{"items":' * 30_000 + "{}", "longer than 65536 bytes"),
        (SCHEMA, '{"items":' * 5_000 + "{}" + "}" * 5_000, "nested too deep"),
        (SCHEMA, '{"items":' * 200 + "{}" + "}" * 200, "recursion limit exceeded"),
        (REGEX, "(a", "unclosed group"),
        (REGEX, "(?=a)b", "look-around"),
        (REGEX, r"(a)\1", "backreferences are not supported"),
        (REGEX, r"a\b", "lookarounds not supported yet"),
        (EBNF, "start: x\nx: b", 'line 2, column 4: unknown name: "b"'),
        (EBNF, 'start: "a" (', "line 1, column 13"),
        (EBNF, "start: start", "allows no text at all"),
        (EBNF, 'root ::= "a" b', "Rule 'b' not found"),
        (EBNF, r'root ::= "\ud800"', "surrogates not allowed"),
        (EBNF, "root ::= " + "(" * 5_000, "nested too deep"),
        (EBNF, "a wish", "Expected ::="),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else str(value),
)
def test_what_can_not_be_compiled_is_refused_in_the_compilers_words(kind, source, words):
    with pytest.raises(InvalidField) as error:
        shipped_vocabulary()[0].compile(Grammar(kind, source))
    told = f"{error.value.field.removeprefix('sampling.grammar.')}: {error.value.reason}"
    assert told.startswith(f"{kind}: ")
    assert words in told
    assert "\n" not in told
    assert "no_forcing" not in told
    assert "sampling" not in error.value.reason


def test_places_of_gbnf_are_those_of_the_source_or_left_out():
    """Lines of what it is converted to would lead astray."""
    with pytest.raises(InvalidField) as error:
        fits(Grammar(EBNF, 'root ::= "a" b\n\nb ::= [z-a]'), "a")
    assert error.value.reason == "invalid character class range, the start must be <= the end"
    with pytest.raises(InvalidField, match="line 3"):
        fits(Grammar(EBNF, 'root ::= "a" b\n\nb ::= ('), "a")


def deep_sources():
    """As deep as 64 KiB allow, where the compiler recurses."""
    names = [f"r{at:x}" for at in range(4_000)]
    rules = "\n".join(f"{a}:{b} /b/" for a, b in pairwise(names))
    defs = {a: {"items": {"$ref": f"#/d/{b}"}} for a, b in pairwise(names[:1700])}
    schema = {"$ref": "#/d/r0", "d": {**defs, names[1699]: {}}}
    return {
        "rules": Grammar(EBNF, f'start:r0\n{rules}\n{names[-1]}:"b"'),
        "terminals": Grammar(EBNF, f'start:R0\n{rules.upper()}\n{names[-1].upper()}:"b"'),
        "definitions": Grammar(SCHEMA, json.dumps(schema, separators=(",", ":"))),
    }


@pytest.mark.parametrize("name", deep_sources())
def test_the_compilers_stack_is_deep_enough_for_any_source(name):
    """An overflow would end the process."""
    vocabulary = Small().vocabulary
    compiled = []
    usual = threading.stack_size(STACK_BYTES)
    try:
        thread = threading.Thread(
            target=lambda: compiled.append(vocabulary.compile(deep_sources()[name]))
        )
        thread.start()
    finally:
        threading.stack_size(usual)
    thread.join()
    compiled[0].compile_again()  # from a stack of the usual size
    assert compiled.pop().matcher().try_consume_tokens([]) == 0
