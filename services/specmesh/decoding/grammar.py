"""The grammar of an answer: which texts it may be."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from specmesh.decoding.errors import InvalidField

MAX_GRAMMAR_BYTES = 1 << 16
"""Bounds the work of a compiler, and the size of each call, which carries the grammar."""
WHITE_SPACE = r"[ ]?|\r?\n[ \t]{0,64}"
"""The white space between two tokens of JSON: a space, or a line break and indent. A model that has
lost its way would go on with white space for ever."""
ESCAPES = 'nrbtf\\"'
"""The characters that may follow a backslash in JSON. With \\uXXXX the name of a property could be
spelled as no rule about it has it, and its value be anything."""
_CONTROL = re.compile(r"(?<!\\)(?:\\\\)*\\u00(?:[01]|7f)")
"""A control character in JSON; a backslash that is escaped itself begins none."""
_ESCAPED = re.compile(
    r"(?<!\\)(?:\\\\)*\\(?:[av]|[xuU]\{?0*(?:[01]?[0-9a-fA-F]|7[fF])(?![0-9a-fA-F]))"
)
"""A control character in a pattern."""
_SPELLED = frozenset({"const", "enum", "required", "dependentRequired"})
"""The keywords whose values are written in an answer as they are."""
_BY_NAME = frozenset({"properties", "dependentSchemas", "$defs", "definitions"})
"""The keywords that give names to schemas."""
_NOTES = frozenset({"$comment", "default", "description", "examples", "title"})
"""The keywords that say nothing about an answer."""


class GrammarKind(StrEnum):
    """The languages of grammars; each value is the name of the field that holds the source."""

    JSON_SCHEMA = "json_schema"
    """JSON that is valid under a JSON Schema."""
    JSON_OBJECT = "json_object"
    """Any JSON object."""
    REGEX = "regex"
    """Texts that match a regular expression as a whole."""
    EBNF = "ebnf"
    """Texts of a context-free grammar, in Lark's notation or in GBNF."""
    CHOICE = "choice"
    """One of some texts."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar's source, not compiled: ``text`` is in the language of ``kind``, the JSON list of
    all texts for CHOICE, and empty for JSON_OBJECT. Raises ``InvalidField``, which names the kind.
    """

    kind: GrammarKind
    text: str = ""

    def __post_init__(self) -> None:
        if (self.kind is GrammarKind.JSON_OBJECT) == bool(self.text):
            raise InvalidField(self.kind, "must not be empty")
        if len(self.text.encode(errors="replace")) > MAX_GRAMMAR_BYTES:
            raise InvalidField(self.kind, f"is longer than {MAX_GRAMMAR_BYTES} bytes")

    @classmethod
    def of_choices(cls, texts: Sequence[str]) -> Self:
        """Return the grammar of exactly ``texts``. Raises ``InvalidField`` if there are none, or
        for an empty one."""
        if not texts or not all(texts):
            raise InvalidField(f"{GrammarKind.CHOICE}.texts", "must hold texts, none of them empty")
        return cls(GrammarKind.CHOICE, json.dumps(list(texts), ensure_ascii=False))

    @property
    def choices(self) -> list[str]:
        """The texts of a CHOICE."""
        texts: list[str] = json.loads(self.text)
        return texts


def json_rule(schema: Mapping[str, Any]) -> str:
    """Return what a rule in Lark's notation expands to for JSON that is valid under ``schema``."""
    # Where JSON has no other spelling of a character, the engine would leave it out.
    escapes = ESCAPES + "u" if _has_control(schema) else ESCAPES
    options = {"whitespace_pattern": WHITE_SPACE, "json_allowed_escapes": escapes}
    return f"%json {json.dumps({**schema, 'x-guidance': options})}"


def _has_control(schema: Mapping[str, Any]) -> bool:
    """Return whether an answer may need a control character: in a value, a pattern or the name of
    a property that ``schema`` gives."""
    spelled: list[Any] = []
    patterns: list[Any] = []
    schemas: list[Any] = [schema]  # a stack of our own, since they may be nested deeply
    while schemas:
        each = schemas.pop()
        if isinstance(each, list):
            schemas += each
        for keyword, value in each.items() if isinstance(each, Mapping) else ():
            if keyword in _SPELLED:
                spelled.append(value)
            elif keyword == "pattern":
                patterns.append(value)
            elif keyword in {*_BY_NAME, "patternProperties"} and isinstance(value, Mapping):
                (spelled if keyword in _BY_NAME else patterns).extend(value)
                schemas += value.values()
            elif keyword not in _NOTES:
                schemas.append(value)
    escaped = any(isinstance(each, str) and _ESCAPED.search(each) for each in patterns)
    return escaped or _CONTROL.search(json.dumps([spelled, patterns])) is not None
