"""The base of parsers that read values as Python writes them, and pass them on as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from specmesh.orchestrator.parsing.character_parser import Reading
from specmesh.orchestrator.parsing.tool_parser import NoCall, ToolParser

NAME = re.compile(r"[^\W\d][\w.-]*")
MAX_CHARS = 256
"""Most characters of a name, of a number and of a constant."""
CONSTANTS: Mapping[str, str] = {
    **{"True": "true", "False": "false", "None": "null"},
    **{each: each for each in ("true", "false", "null")},
}
"""Python's constants, and those of JSON, which some models write instead."""
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
CLOSING = {"[": "]", "(": ")", "{": "}"}
ESCAPES: Mapping[str, str] = {
    **{"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "0": "\0"},
    **{each: each for each in "'\"\\/"},  # the last of them is JSON's
    "\n": "",
}
DIGITS = {"x": 2, "u": 4, "U": 8}
"""Hexadecimal digits of a character, by the letter before them."""
HEX = re.compile("[0-9a-fA-F]+")
LAST_CHARACTER = 0x10FFFF


class PythonParser(ToolParser):
    """Reads values, which it passes on while they come."""

    def _name(self, end: str) -> Reading[str]:
        """Return the name that precedes ``end``. Raises ``NoCall``."""
        name = character = yield from self._after_space()
        while character and (character := (yield from self._next())) != end:
            name += character
            if len(name) > MAX_CHARS:
                raise NoCall
        if not character:
            raise NoCall
        if not NAME.fullmatch(name := name.rstrip()):
            raise NoCall
        return name

    def _named_values(self) -> Reading[None]:
        """Read ``key=value, …)``."""
        between = ""
        while (yield from self._after_space()) != ")":
            self._read_again(1)
            name = yield from self._name("=")
            self._argue(f"{between}{json.dumps(name, ensure_ascii=False)}: ")
            yield from self._value()
            if (yield from self._one_of(",", ")")) == ")":
                break
            between = ", "

    def _value(self) -> Reading[None]:
        first = yield from self._after_space()
        if first in {"'", '"'}:
            yield from self._string(first)
        elif first in CLOSING:
            yield from self._container(first)
        else:
            yield from self._word(first)

    def _word(self, first: str) -> Reading[None]:
        """Read a number or a constant."""
        if not (word := first):
            raise NoCall
        while (character := (yield from self._next())) and (
            character.isalnum() or character in {*"+-._"}
        ):
            word += character
            if len(word) > MAX_CHARS:
                raise NoCall
        self._read_again(1)
        written = CONSTANTS.get(word) or _number(word)
        if written is None:
            raise NoCall
        self._argue(written)

    def _container(self, first: str) -> Reading[None]:
        """Read a list, a tuple or a dictionary, whose first character was read."""
        closing = CLOSING[first]
        self._argue("{" if first == "{" else "[")
        between = ""
        while (yield from self._after_space()) != closing:
            self._read_again(1)
            self._argue(between)
            if first == "{":
                yield from self._string((yield from self._one_of("'", '"')))
                yield from self._expected(":")
                self._argue(": ")
            yield from self._value()
            if (yield from self._one_of(",", closing)) == closing:
                break
            between = ", "
        self._argue("}" if first == "{" else "]")

    def _string(self, quote: str) -> Reading[None]:
        """Read a string whose first quote was read."""
        self._argue('"')
        while (character := (yield from self._next())) != quote:
            if character == "\\":
                yield from self._escaped()
            elif character in {"", "\n"}:
                raise NoCall
            else:
                self._argue(_spelled(character))
        self._argue('"')

    def _escaped(self) -> Reading[None]:
        if not (character := (yield from self._next())):
            raise NoCall
        if character not in DIGITS:
            # Python keeps the backslash of an escape that it doesn't know.
            self._argue(_spelled(ESCAPES.get(character, f"\\{character}")))
            return
        digits = ""
        while len(digits) < DIGITS[character]:
            digits += yield from self._next()
            if not HEX.fullmatch(digits):
                raise NoCall
        if (number := int(digits, 16)) > LAST_CHARACTER:
            raise NoCall
        # Half of a pair is no character by itself.
        self._argue(f"\\u{digits}" if character == "u" else _spelled(chr(number)))


def _spelled(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _number(word: str) -> str | None:
    """Return a number as JSON; None for what is none."""
    if NUMBER.fullmatch(word):
        return word
    try:
        return json.dumps(int(word, 0), allow_nan=False)
    except ValueError:
        pass
    try:
        return json.dumps(float(word), allow_nan=False)
    except ValueError:
        return None
