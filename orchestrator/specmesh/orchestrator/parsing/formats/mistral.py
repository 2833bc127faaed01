"""The format of Mistral: ``[TOOL_CALLS][{"name": …, "arguments": {…}}, …]``, and since 2025
``[TOOL_CALLS]name{…}`` for each call, with ``[CALL_ID]…`` and ``[ARGS]`` before the arguments in
some models."""

from __future__ import annotations

import re

from specmesh.orchestrator.parsing.call_rules import CallRules, either, quoted
from specmesh.orchestrator.parsing.character_parser import Reading
from specmesh.orchestrator.parsing.tool_format import ToolFormat
from specmesh.orchestrator.parsing.tool_parser import NoCall, ToolParser

MARKER, CALL_ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
NAMED = re.compile(r"([\w.-]+)(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?\s*")
MAX_CHARS = 256
"""Most characters before the arguments."""
SPELLED = re.compile(r"[\w.-]{1,200}")
"""Names that the parser finds before arguments, with what may be between."""


class MistralParser(ToolParser):
    """Calls always follow the marker, so that any name is one."""

    def _parse(self) -> Reading[None]:
        while (yield from self._content_up_to(MARKER)):
            yield from self._attempt(self._calls())

    def _calls(self) -> Reading[None]:
        first = yield from self._after_space()
        if first == "[":
            yield from self._object(is_marked=True)
            while (yield from self._one_of(",", "]")) == ",":
                yield from self._object(is_marked=True)
        else:
            yield from self._named(first)

    def _named(self, first: str) -> Reading[None]:
        before: list[str] = []
        character = first
        while character != "{":
            before.append(character)
            if not character or len(before) > MAX_CHARS or character in "\n<":
                raise NoCall
            character = yield from self._next()
        named = NAMED.fullmatch("".join(before))
        if named is None:
            raise NoCall
        yield from self._arguments(named[1])


def write_rules(rules: CallRules) -> str:
    """Return the rules for calls in both spellings, of which the model chooses its own."""
    marker = rules.marker(MARKER)
    named = [
        f"{marker} {quoted(name)} more {rules.arguments(number)}"
        for number, name in enumerate(rules.names)
        if SPELLED.fullmatch(name)
    ]
    written = f"""
calls: {either(["listed", *([rules.repeated("named")] if named else [])])}
listed: {marker} " "? "[" {rules.repeated("object", between='"," " "?')} "]"
comma: "," " "?
object: {rules.objects("arguments", more="id?")}
id: ", \\"id\\": \\"" ID "\\""
ID: /[a-zA-Z0-9]{{9}}/
"""
    if named:
        written += f"""
named: {either(named)}
more: ({rules.marker(CALL_ID)} ID)? {rules.marker(ARGS)}?
"""
    return written


FORMAT = ToolFormat(
    name="mistral",
    markers=frozenset({MARKER, CALL_ID, ARGS}),
    is_of=lambda template: MARKER in template,
    parser=MistralParser,
    rules=write_rules,
    begins=(MARKER,),
    call="calls",
)
