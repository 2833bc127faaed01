"""Sources of grammars in the one notation that the engine compiles, Lark's."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.grammar import Grammar, GrammarKind, json_rule
from specmesh.inference.grammar.bounds import check_bounds
from specmesh.inference.grammar.gbnf import lark_of_gbnf

_EXACT = '\n%llguidance {"no_forcing": true}\n'
"""Allows every token with which a text of the grammar can go on. By default the engine allows only
the tokenizer's own tokens where the grammar leaves one text."""

MAX_MULTIPLE = 10_000
"""The engine makes a state for each remainder, without a limit of its own."""
MAX_DIGITS = 9
"""The most digits behind the point, or zeros at the end, of these numbers."""
_MULTIPLE = re.compile(r'"multipleOf"\s*:\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)')
_ESCAPED = re.compile(r"\\u00([0-7][0-9a-fA-F])")

_PLACE = re.compile(r"(?:at )?(\d+)\((\d+)\): ")
_AROUND = re.compile(
    r'failed to (?:compile JSON schema|parse "%json"): |invalid regex .* \(in regex\): '
)
_PICTURED = re.compile(r"^error: (.*)", re.MULTILINE)


def lark_of(grammar: Grammar) -> str:
    """Return ``grammar`` in Lark's notation. Raises ``InvalidField``, which names the kind, for one
    that can't be read."""
    try:
        _check_multiples(grammar)
        check_bounds(grammar)
        return _rules(grammar) + _EXACT
    except RecursionError:
        raise InvalidField(grammar.kind, "is nested too deep") from None
    except InvalidField:
        raise
    except Exception as error:
        raise InvalidField(grammar.kind, str(error)) from error


def reason_of(error: str, grammar: Grammar) -> str:
    """Return what the compiler's ``error`` says, in one line: without its picture of the source,
    and with the place only in a source that is Lark's already, since the lines of others are ours.
    """
    place = _PLACE.match(error)
    text = error if place is None else error[place.end() :]
    text = _AROUND.sub("", text.partition("\n")[0])
    if pictured := _PICTURED.search(error):  # by the parser of regular expressions
        text = pictured[1]
    if place is None or not _is_lark(grammar):
        return text
    return f"line {place[1]}, column {place[2]}: {text}"


def _is_lark(grammar: Grammar) -> bool:
    from llguidance.gbnf_to_lark import is_lark_syntax

    return grammar.kind is GrammarKind.EBNF and is_lark_syntax(grammar.text)


def _check_multiples(grammar: Grammar) -> None:
    """Refuse a schema, also one within Lark's notation, whose numbers may have to be multiples of
    too large a number at the same time."""
    if grammar.kind not in {GrammarKind.JSON_SCHEMA, GrammarKind.EBNF}:
        return
    text = _ESCAPED.sub(lambda escaped: chr(int(escaped[1], 16)), grammar.text)
    numbers = {Decimal(each).normalize() for each in _MULTIPLE.findall(text)}
    exponents = [int(each.as_tuple().exponent) for each in numbers]
    if max(map(abs, exponents), default=0) <= MAX_DIGITS:
        scale = -min(0, *exponents, 0)
        if math.lcm(*(int(each.scaleb(scale)) for each in numbers)) <= MAX_MULTIPLE:
            return
    reason = f"multipleOf must be at most {MAX_MULTIPLE}, as must what is a multiple of all of them"
    raise InvalidField(grammar.kind, reason)


def _rules(grammar: Grammar) -> str:
    from llguidance import regex_to_lark

    match grammar.kind:
        case GrammarKind.JSON_OBJECT:
            return "start: " + json_rule({"type": "object"})
        case GrammarKind.JSON_SCHEMA:
            schema = json.loads(grammar.text)
            if not isinstance(schema, dict | bool):
                raise InvalidField(grammar.kind, "must be an object, or true or false")
            return "start: " + json_rule(
                schema if isinstance(schema, dict) else {"allOf": [schema]}
            )
        case GrammarKind.REGEX:
            return f"start: /{regex_to_lark(grammar.text, 'dw')}/"
        case GrammarKind.CHOICE:
            return f"start: {' | '.join(json.dumps(text) for text in grammar.choices)}"
    return grammar.text if _is_lark(grammar) else lark_of_gbnf(grammar.text)
