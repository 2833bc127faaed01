"""The rules of a grammar for arguments that are written one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from specmesh.decoding.grammar import MAX_GRAMMAR_BYTES, json_rule
from specmesh.orchestrator.parsing.argument_types import as_json, json_of
from specmesh.orchestrator.parsing.call_rules import CallRules, either, quoted
from specmesh.orchestrator.parsing.python_values import NAME
from specmesh.orchestrator.parsing.schemas import (
    DEFINITIONS,
    NOTES,
    STRING,
    ArgumentSchemas,
    Schema,
    check_type,
    resolved,
)

ANY_KEY = "/[^<>\\n]+/"
TEXT = "text"
"""The rule for any text, and the tag that ends it."""
LENGTHS = {"minLength", "maxLength"}
_OF_OBJECTS = {
    *("type", "properties", "required", "additionalProperties", *DEFINITIONS, *NOTES),
}


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument by its name. ``schema`` has all definitions that it refers to."""

    name: str
    schema: Schema
    is_required: bool


def separate(schema: Schema) -> list[Argument]:
    """Return the arguments of a tool in the order of its ``schema``; the objects that they make up
    are valid under it. Raises ValueError if that can't be said of each argument by itself."""
    own = _without_reference(schema, {"type"})
    for key in own:
        if key not in _OF_OBJECTS:
            raise ValueError(f"{key!r} can't be enforced where arguments are written one by one")
    properties, required = own.get("properties", {}), own.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        raise ValueError("'properties' must be an object, and 'required' a list")
    definitions = {key: schema[key] for key in DEFINITIONS if key in schema}
    return [
        Argument(name, _alone(each, definitions), name in required)
        for name, each in {**properties, **{name: {} for name in required}, **properties}.items()
    ]


def _without_reference(schema: Schema, more: Collection[str] = ()) -> Schema:
    """Return what ``schema`` refers to, beside which it says nothing but ``more``, or itself."""
    if "$ref" not in schema:
        return schema
    beside = schema.keys() - {"$ref", *NOTES, *DEFINITIONS, *more}
    own = resolved(schema, schema)
    if beside or not isinstance(own, dict):
        raise ValueError(f"the reference {schema['$ref']!r} can't be followed")
    return own


def _alone(schema: object, definitions: Schema) -> Schema:
    """Return ``schema`` with the definitions that it refers to."""
    if not isinstance(schema, dict):
        return {} if schema is True else {"not": {}}
    references = [*_references(schema)]
    for each in references:
        if not each.startswith(tuple(f"#/{key}/" for key in definitions)):
            raise ValueError(f"the reference {each!r} is not to one of its definitions")
    return {**schema, **definitions} if references else schema


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(reference := schema.get("$ref"), str):
            yield reference
        for each in schema.values():
            yield from _references(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _references(each)


@dataclass(frozen=True, slots=True)
class TaggedArguments:
    """Arguments as a parser of tags reads them: ``key`` writes what is before the value of an
    argument, ``end`` is the tag behind it."""

    key: Callable[[CallRules, str], str]
    """Takes an expression for the name of the argument."""
    end: str
    has_lines: bool = False

    def write(self, rules: CallRules, number: int, schema: Schema | None) -> Sequence[str]:
        """Return the rule for the arguments of tool ``number``; any without a schema. Raises
        ValueError."""
        if schema is None:
            return [f"{rules.arguments(number)}: gap ({self.key(rules, ANY_KEY)} {TEXT} gap)*"]
        written = ["gap"]
        terminals: list[str] = []
        num_chars = 0
        schemas = ArgumentSchemas(schema)
        for place, each in enumerate(separate(schema)):
            value, lines = self._value(rules, each.schema, schemas, f"TEXT_{number}_{place}")
            terminals += lines
            argument = f"{self.key(rules, _named(each))} {value} gap"
            written.append(argument if each.is_required else f"({argument})?")
            num_chars = _bounded(num_chars + len(argument))
        return [f"{rules.arguments(number)}: {' '.join(written)}", *terminals]

    def text_rule(self, rules: CallRules) -> str:
        """Return the rule for a value that is any text."""
        return rules.text_up_to(self.end, TEXT)

    def _value(
        self, rules: CallRules, schema: Schema, schemas: ArgumentSchemas, terminal: str
    ) -> tuple[str, Sequence[str]]:
        """Return an expression for a value with what ends it, and the lines that it needs beside:
        ``terminal``, if anything. ``schemas`` are those of the whole tool, to whose definitions
        alone ``schema`` refers."""
        end = f"{self._line} {rules.marker(self.end)}"
        types = schemas.types(schema)
        if STRING not in types:
            return f"{json_rule(schema)} {end}", ()
        own = _without_reference(schema)
        check_type(own)
        said = own.keys() - NOTES
        values = [own["const"]] if "const" in own else own.get("enum")
        if isinstance(values, list) and said <= {"const", "enum", "type"}:
            return f"{either(quoted(self._spelled(each, types)) for each in values)} {end}", ()
        if types == {STRING} and said & LENGTHS and said <= {"type", *LENGTHS}:
            is_special = self.end in rules.special_tokens
            line = f"{terminal}: {self._of_length(own, is_special=is_special)}"
            return f"{terminal} {rules.marker(self.end) if is_special else ''}", [line]
        if not schemas.allows_all(own):
            raise ValueError("text can't be held to more than its type, length or a list")
        return TEXT, ()

    def _of_length(self, schema: Schema, *, is_special: bool) -> str:
        """Return a terminal for a text of some length, and what is behind it: one lexeme, since
        the text would otherwise go on as far as it may."""
        given = [schema.get("minLength", 0), schema.get("maxLength", 0)]
        if any(type(each) is not int or each < 0 for each in given):
            raise ValueError("the lengths of a text must be whole numbers")
        text = f"/(?s:.{{{given[0]},{schema.get('maxLength', '')}}})/"
        if is_special:
            return f"{text} {self._line}"
        end = quoted(self.end)
        return f"({text} & ~(/(?s:.*)/ {end} /(?s:.*)/)) {self._line} {end}"

    @property
    def _line(self) -> str:
        return quoted("\n") if self.has_lines else ""

    def _spelled(self, value: object, types: frozenset[str]) -> str:
        """Return the text that the parser takes for ``value``."""
        text = value if isinstance(value, str) else json_of(value)
        if self.end in text or as_json(text, types) != json_of(value):
            raise ValueError(f"{value!r} can't be written as text")
        return text


@dataclass(frozen=True, slots=True)
class ListedArguments:
    """Arguments as ``key=value``, with commas between, whose values are JSON."""

    def write(self, rules: CallRules, number: int, schema: Schema | None) -> Sequence[str]:
        """Return the rules for the arguments of tool ``number``. Raises ValueError."""
        return [*self._lines(rules.arguments(number), separate(schema or {}))]

    def _lines(self, rule: str, arguments: Sequence[Argument]) -> Iterator[str]:
        yield f"{rule}: {f'{rule}_from_0' if arguments else quoted('')}"
        num_chars = 0
        for number, each in enumerate(arguments):
            if not NAME.fullmatch(each.name):
                raise ValueError(f"{each.name!r} is no name of an argument in this format")
            is_last = number + 1 == len(arguments)
            num_chars = _bounded(num_chars + len(json_rule(each.schema)))
            own, after = f"{rule}_{number}", "" if is_last else f"{rule}_behind_{number + 1}"
            yield f"{own}: {quoted(each.name + '=')} {json_rule(each.schema)}"
            later = [] if each.is_required else ["" if is_last else f"{rule}_from_{number + 1}"]
            yield f"{rule}_from_{number}: {' | '.join([f'{own} {after}', *later])}"
            more = f'", " {own}'
            yield f"{rule}_behind_{number}: {more if each.is_required else f'({more})?'} {after}"


def _bounded(num_chars: int) -> int:
    """Return ``num_chars`` of a grammar that is being written. Raises ValueError if they are too
    many: each argument that refers to definitions brings all of the tool's with it."""
    if num_chars > MAX_GRAMMAR_BYTES:
        raise ValueError(f"the arguments need a grammar of more than {MAX_GRAMMAR_BYTES} bytes")
    return num_chars


def _named(argument: Argument) -> str:
    """Return an expression for the name of an argument. Raises ValueError."""
    if any(character in argument.name for character in "<>\n") or not argument.name:
        raise ValueError(f"{argument.name!r} is no name of an argument in this format")
    return quoted(argument.name)
