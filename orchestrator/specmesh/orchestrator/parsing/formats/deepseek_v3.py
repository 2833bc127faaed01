"""The format of DeepSeek V3, R1 and V3.1::

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>name<｜tool▁sep｜>{…}<｜tool▁call▁end｜><｜tool▁calls▁end｜>

V3 and R1 write ``function<｜tool▁sep｜>name`` and the arguments in a block of Markdown.
"""

from __future__ import annotations

import re

from specmesh.orchestrator.parsing.call_rules import CallRules
from specmesh.orchestrator.parsing.character_parser import Reading
from specmesh.orchestrator.parsing.tool_format import ToolFormat
from specmesh.orchestrator.parsing.tool_parser import NoCall, ToolParser

CALLS, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"
BLOCK, BLOCK_END = "```json\n", "```"
MAX_CHARS = 256
"""Most characters before the arguments."""
NAMED = re.compile(rf"\s*(?:function\s*{SEPARATOR}([^<\n]+)\n```(?:json)?|([^<\n]+){SEPARATOR})\s*")


class DeepSeekV3Parser(ToolParser):
    """Calls always follow a marker, so that any name is one."""

    def _parse(self) -> Reading[None]:
        while marker := (yield from self._content_up_to(CALLS, CALL, CALLS_END)):
            if marker == CALLS_END:
                self._say("" if self._num_calls else self._taken_back())
                self._held.clear()
            else:
                yield from self._attempt(self._call(is_first=marker == CALLS))

    def _call(self, *, is_first: bool) -> Reading[None]:
        if is_first:
            yield from self._expected(CALL[0])
            yield from self._literally(CALL[1:])
        before: list[str] = []
        while (character := (yield from self._next())) != "{":
            before.append(character)
            if not character or len(before) > MAX_CHARS:
                raise NoCall
        named = NAMED.fullmatch("".join(before))
        if named is None or not (name := (named[1] or named[2]).strip()):
            raise NoCall
        yield from self._arguments(name)
        if (yield from self._one_of(BLOCK_END[0], CALL_END[0])) == BLOCK_END[0]:
            yield from self._literally(BLOCK_END[1:])
            yield from self._expected(CALL_END[0])
        yield from self._literally(CALL_END[1:])


def write_rules(rules: CallRules) -> str:
    """Return the rules for calls in both spellings, of which the model chooses its own."""
    separator = rules.marker(SEPARATOR)
    plain = rules.any_tool("{}", "", separator)
    block = rules.any_tool("{}\n" + BLOCK, "\n" + BLOCK_END)
    return f"""
calls: {rules.marker(CALLS)} {rules.repeated("call", between="gap")} {rules.marker(CALLS_END)}
call: {rules.marker(CALL)} (plain | block) {rules.marker(CALL_END)}
plain: {plain}
block: "function" {separator} {block}
gap: "\\n"?
"""


FORMAT = ToolFormat(
    name="deepseek_v3",
    markers=frozenset({CALLS, CALLS_END, CALL, CALL_END, SEPARATOR}),
    is_of=lambda template: CALL in template,
    parser=DeepSeekV3Parser,
    rules=write_rules,
    begins=(CALL,),
    names=re.compile(r"[^<\s](?:[^<\n]*[^<\s])?"),
)
