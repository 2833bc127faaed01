"""The format of Qwen 3 Coder, which Qwen 3.5, Nemotron 3 and others took over::

<tool_call>
<function=name>
<parameter=key>
value
</parameter>
</function>
</tool_call>
"""

from __future__ import annotations

import re

from specmesh.orchestrator.parsing.argument_rules import TaggedArguments
from specmesh.orchestrator.parsing.call_rules import CallRules, quoted
from specmesh.orchestrator.parsing.character_parser import Reading
from specmesh.orchestrator.parsing.tagged_parser import TaggedParser
from specmesh.orchestrator.parsing.tool_format import ToolFormat
from specmesh.orchestrator.parsing.tool_parser import NoCall

BEGIN, END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"


class Qwen3CoderParser(TaggedParser):
    """These models sometimes forget the first marker: a known tool needs none."""

    def _parse(self) -> Reading[None]:
        while marker := (yield from self._content_up_to(BEGIN, FUNCTION, END)):
            if marker != END:
                yield from self._attempt(self._call(is_marked=marker == BEGIN))
            elif self._num_calls:
                self._held.clear()
                self._content.marker()
            else:
                self._say(self._taken_back())

    def _call(self, *, is_marked: bool) -> Reading[None]:
        if is_marked:
            yield from self._expected("<")
            yield from self._literally(FUNCTION[1:])
        name, _ = yield from self._name_before(">")
        if not name or not (is_marked or name in self._tools):
            raise NoCall
        self._begin_arguments(name)
        while True:
            yield from self._expected("<")
            if (yield from self._one_of("p", "/")) == "/":
                yield from self._literally(FUNCTION_END[2:])
                break
            yield from self._literally(PARAMETER[2:])
            key, _ = yield from self._name_before(">")
            yield from self._argument(name, key, PARAMETER_END, has_lines=True)
        self._end_arguments()


def write_key(rules: CallRules, key: str) -> str:  # noqa: ARG001
    """Return an expression for what is before the value of the argument ``key``."""
    return f'{quoted(PARAMETER)} {key} ">\\n"'


ARGUMENTS = TaggedArguments(write_key, PARAMETER_END, has_lines=True)


def write_rules(rules: CallRules) -> str:
    """Return the rules for calls as templates write them."""
    unmarked = f"| {rules.marker(FUNCTION)}" if rules.begins else ""
    functions = rules.any_tool("{}>\n", f"{FUNCTION_END}\n")
    return f"""
calls: {rules.repeated("call", between="gap")}
call: ({rules.marker(BEGIN)} "\\n" {quoted(FUNCTION)} {unmarked}) {functions} {rules.marker(END)}
gap: "\\n"?
{ARGUMENTS.text_rule(rules)}
"""


FORMAT = ToolFormat(
    name="qwen3_coder",
    markers=frozenset({BEGIN, END}),
    is_of=lambda template: BEGIN in template and FUNCTION in template,
    parser=Qwen3CoderParser,
    is_typed=True,
    rules=write_rules,
    begins=(BEGIN, FUNCTION),
    arguments=ARGUMENTS.write,
    names=re.compile(r"[^<>\s](?:[^<>\n]*[^<>\s])?"),
)
