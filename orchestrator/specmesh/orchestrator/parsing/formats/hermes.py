"""The format of Hermes and Qwen: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``."""

from __future__ import annotations

from specmesh.orchestrator.parsing.call_rules import CallRules
from specmesh.orchestrator.parsing.character_parser import Reading
from specmesh.orchestrator.parsing.tool_format import ToolFormat
from specmesh.orchestrator.parsing.tool_parser import ToolParser

BEGIN, END = "<tool_call>", "</tool_call>"
NO_JSON = ("<function=", "<arg_key>")
"""The text that Qwen 3 Coder and GLM write between the same markers."""


class HermesParser(ToolParser):
    """Many models forget the end marker of a call, or a brace before it."""

    def _parse(self) -> Reading[None]:
        while marker := (yield from self._content_up_to(BEGIN, END)):
            if marker == BEGIN:
                yield from self._attempt(self._object(is_marked=True))
            elif self._num_calls:
                self._held.clear()
                self._content.marker()
            else:
                self._say(self._taken_back())


def write_rules(rules: CallRules) -> str:
    """Return the rules for calls as templates write them, with or without lines of their own."""
    return f"""
calls: {rules.repeated("call", between="gap")}
call: {rules.marker(BEGIN)} gap {rules.objects("arguments")} gap {rules.marker(END)}
gap: "\\n"?
"""


FORMAT = ToolFormat(
    name="hermes",
    markers=frozenset({BEGIN, END}),
    is_of=lambda template: BEGIN in template and not any(mark in template for mark in NO_JSON),
    parser=HermesParser,
    rules=write_rules,
    begins=(BEGIN,),
)
