"""The base of parsers of tool calls, and how a call is written as a JSON object."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection

from specmesh.orchestrator.parsing.character_parser import CharacterParser, Reading, SpaceTrimmer
from specmesh.orchestrator.parsing.pieces import CallPiece, ContentPiece

ARGUMENTS = ("arguments", "parameters")
ALONE = {"type", "id", "name", *ARGUMENTS}
"""The keys of a call that no marker precedes: any other shows that the object is none."""

Sink = Callable[[str], None]


class NoCall(Exception):
    """The text is no call, or the text after a call does not belong to it."""


class ToolParser(CharacterParser):
    """Finds the calls in a message. Text outside of calls is content, but for white space beside
    them.

    A call begins as soon as its name and the beginning of its arguments have been read. Text that
    turns out before to be none is content, unchanged. What follows the beginning of the arguments
    is passed on as the model writes it, even where it is not valid JSON.

    ``tool_names`` are the tools that the model may call.
    """

    def __init__(self, tool_names: Collection[str]) -> None:
        self._tool_names = tool_names
        self._num_calls = 0
        self._content = SpaceTrimmer(at_marker=False)
        super().__init__()

    @property
    def _index(self) -> int:
        return self._num_calls - 1

    def _say(self, text: str) -> None:
        if certain := self._content.text(text):
            self._pieces.append(ContentPiece(certain))

    def _content_up_to(self, *markers: str) -> Reading[str]:
        """Pass on the content before the next of ``markers``, and return that one, which is held;
        "" at the end."""
        marker = yield from self._up_to(markers, self._say)
        if not marker:
            self._say(self._taken_back())
            if space := self._content.end():
                self._pieces.append(ContentPiece(space))
        return marker

    def _attempt(self, calls: Reading[None]) -> Reading[None]:
        """Read ``calls``. If what follows is none, it is content, of which the last character may
        belong to a marker."""
        try:
            yield from calls
            self._held.clear()
        except NoCall:
            self._read_again(1)
            self._say(self._taken_back())

    def _begin(self, name: str) -> None:
        self._content.marker()
        self._num_calls += 1
        self._pieces.append(CallPiece(self._index, name))

    def _argue(self, text: str) -> None:
        self._held.clear()
        if text:
            self._pieces.append(CallPiece(self._index, arguments=text))

    def _arguments(self, name: str) -> Reading[None]:
        """Begin the call of ``name`` and pass on its arguments, whose first brace was read."""
        self._begin(name)
        self._argue("{")
        yield from self._rest_of_container(self._argue)

    def _object(self, *, is_marked: bool) -> Reading[None]:
        """Read a call as a JSON object with its name and arguments. One that is not marked must
        have both, and the name of a known tool. Raises ``NoCall``."""
        name = ""
        early: list[str] = []
        has_begun = False
        yield from self._expected("{")
        while True:
            yield from self._expected('"')
            key = yield from self._rest_of_string()
            yield from self._expected(":")
            first = yield from self._after_space()
            if key == "name" and first == '"' and not name:
                name = yield from self._rest_of_string()
                if not name or not (is_marked or name in self._tool_names):
                    raise NoCall
                if has_begun := bool(early):
                    self._begin(name)
                    self._argue("".join(early))
            elif key in ARGUMENTS and first == "{" and not early and not has_begun:
                if has_begun := bool(name):
                    yield from self._arguments(name)
                else:
                    early.append(first)
                    yield from self._rest_of_container(early.append)
            elif key == "name" or key in ARGUMENTS or not (is_marked or key in ALONE):
                raise NoCall
            else:
                yield from self._rest_of_value(first)
            if (yield from self._one_of(",", "}")) == "}":
                break
        if not has_begun:
            if not name or not is_marked:
                raise NoCall
            self._begin(name)
            self._argue("{}")
        self._held.clear()

    def _literally(self, text: str) -> Reading[None]:
        """Read exactly ``text``. Raises ``NoCall``."""
        for expected in text:
            if (yield from self._next()) != expected:
                raise NoCall

    def _one_of(self, *expected: str) -> Reading[str]:
        character = yield from self._after_space()
        if character not in expected:
            raise NoCall
        return character

    def _expected(self, expected: str) -> Reading[None]:
        yield from self._one_of(expected)

    def _rest_of_value(self, first: str) -> Reading[None]:
        """Read a JSON value that begins with ``first``, and drop it."""
        if first == '"':
            yield from self._rest_of_string()
        elif first in {"{", "["}:
            yield from self._rest_of_container(lambda text: None)  # noqa: ARG005
        elif first.isalnum() or first == "-":
            while (character := (yield from self._next())).isalnum() or character in {*"+-."}:
                pass
            self._read_again(1)
        else:
            raise NoCall

    def _rest_of_container(self, sink: Sink) -> Reading[None]:
        """Pass on the rest of a JSON object or list, whose first character was read."""
        depth = 1
        while depth:
            character = yield from self._next()
            if not character:
                raise NoCall
            sink(character)
            if character == '"':
                yield from self._rest_of_quotation(sink)
            depth += (character in {"{", "["}) - (character in {"}", "]"})

    def _rest_of_quotation(self, sink: Sink) -> Reading[None]:
        """Pass on the rest of a JSON string with its last quote."""
        is_escaped = False
        while True:
            character = yield from self._next()
            if not character:
                raise NoCall
            sink(character)
            if character == '"' and not is_escaped:
                return
            is_escaped = character == "\\" and not is_escaped

    def _rest_of_string(self) -> Reading[str]:
        """Return the value of a JSON string whose first quote was read."""
        written: list[str] = []
        yield from self._rest_of_quotation(written.append)
        try:
            value = json.loads('"' + "".join(written), strict=False)
            value.encode()  # half of a surrogate pair is not text
        except ValueError:
            raise NoCall from None
        return str(value)
