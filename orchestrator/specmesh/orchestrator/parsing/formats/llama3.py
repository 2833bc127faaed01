"""The format of Llama 3: a message that begins with ``{"name": …, "parameters": {…}}``, or such an
object after ``<|python_tag|>``. Several are separated by semicolons or lines."""

from __future__ import annotations

from specmesh.orchestrator.parsing.call_rules import CallRules
from specmesh.orchestrator.parsing.character_parser import Reading
from specmesh.orchestrator.parsing.tool_format import ToolFormat
from specmesh.orchestrator.parsing.tool_parser import NoCall, ToolParser

MARKER = "<|python_tag|>"
SIGNS = ('"parameters":', "ipython")
"""A part of the template's instructions, and the role of results."""


class Llama3Parser(ToolParser):
    """A message in JSON that calls no known tool is content, unless it is marked."""

    def _parse(self) -> Reading[None]:
        first = yield from self._after_space()
        self._read_again(1)
        if first == "{":
            yield from self._attempt(self._calls(is_marked=False))
        else:
            self._say(self._taken_back())
        while (yield from self._content_up_to(MARKER)):
            yield from self._attempt(self._calls(is_marked=True))

    def _calls(self, *, is_marked: bool) -> Reading[None]:
        while True:
            yield from self._object(is_marked=is_marked)
            separator = yield from self._after_space()
            if separator == "{":
                self._read_again(1)
            elif separator != ";":
                raise NoCall


def write_rules(rules: CallRules) -> str:
    """Return the rules for calls that are not marked."""
    return f"""
calls: {rules.repeated("call", between='"; "')}
call: {rules.objects("parameters")}
"""


FORMAT = ToolFormat(
    name="llama3",
    markers=frozenset({MARKER}),
    is_of=lambda template: all(sign in template for sign in SIGNS),
    parser=Llama3Parser,
    rules=write_rules,
)
