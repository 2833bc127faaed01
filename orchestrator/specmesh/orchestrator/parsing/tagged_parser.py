"""The base of parsers for calls whose arguments are written one by one, as text between tags."""

from __future__ import annotations

import json
from collections.abc import Mapping

from specmesh.orchestrator.parsing.argument_types import ArgumentTypes, as_json
from specmesh.orchestrator.parsing.character_parser import Reading
from specmesh.orchestrator.parsing.schemas import ALL_TYPES, STRING
from specmesh.orchestrator.parsing.tool_parser import NoCall, Sink, ToolParser

MAX_NAME_CHARS = 256
"""Most characters of a name of a tool or of an argument."""


class TaggedParser(ToolParser):
    """Writes arguments as a JSON object: strings, objects and lists as they come, other values once
    they are whole. ``tools`` has the types of the arguments by the name of each tool."""

    def __init__(self, tools: Mapping[str, ArgumentTypes]) -> None:
        self._tools = tools
        self._num_arguments = 0
        super().__init__(tools)

    def _name_before(self, *ends: str) -> Reading[tuple[str, str]]:
        """Return a name and the character behind it, one of ``ends``. Raises ``NoCall``."""
        name = ""
        while (character := (yield from self._next())) not in ends:
            name += character
            if not character or len(name) > MAX_NAME_CHARS or character in "<\n":
                raise NoCall
        return name.strip(), character

    def _begin_arguments(self, name: str) -> None:
        self._begin(name)
        self._argue("{")
        self._num_arguments = 0

    def _argument(
        self, tool: str, name: str, end: str, *, has_lines: bool = False
    ) -> Reading[None]:
        """Read the value of the argument ``name`` up to the tag ``end``. If it ``has_lines`` of its
        own, the line breaks at its beginning and end don't belong to it."""
        between = ", " if self._num_arguments else ""
        self._num_arguments += 1
        self._argue(f"{between}{json.dumps(name, ensure_ascii=False)}: ")
        types = self._tools.get(tool, {}).get(name, ALL_TYPES)
        if types == {STRING}:
            self._argue('"')
            yield from self._value(end, self._spell, has_lines=has_lines)
            self._argue('"')
            return
        if STRING not in types:
            first = yield from self._after_space()
            if first in {"{", "["}:
                self._argue(first)
                yield from self._rest_of_container(self._argue)
                yield from self._expected(end[0])
                yield from self._literally(end[1:])
                return
            self._read_again(1)
        said: list[str] = []
        self._held.clear()
        yield from self._value(end, said.append, has_lines=has_lines)
        self._argue(as_json("".join(said), types))

    def _value(self, end: str, sink: Sink, *, has_lines: bool) -> Reading[None]:
        value = _Lines(sink) if has_lines else None
        found = yield from self._up_to((end,), sink if value is None else value.push)
        self._held.clear()
        if not found:
            raise NoCall

    def _spell(self, text: str) -> None:
        """Pass on more of a string."""
        self._argue(json.dumps(text, ensure_ascii=False)[1:-1])

    def _end_arguments(self) -> None:
        self._argue("}")


class _Lines:
    """Passes on a text to ``sink`` without a line break at its beginning and one at its end."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._has_begun = False
        self._held = ""

    def push(self, text: str) -> None:
        """Pass on what is certain now that ``text`` follows."""
        if not self._has_begun and text:
            self._has_begun = True
            text = text.removeprefix("\n")
        whole = self._held + text
        self._held = "\n" if whole.endswith("\n") else ""
        self._sink(whole.removesuffix("\n"))
