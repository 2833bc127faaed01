"""The format of GLM 4.5 to 4.7::

    <tool_call>name
    <arg_key>key</arg_key>
    <arg_value>value</arg_value>
    </tool_call>

The line breaks are GLM 4.5's and 4.6's.
"""

from __future__ import annotations

import re

from specmesh.orchestrator.parsing.argument_rules import TaggedArguments
from specmesh.orchestrator.parsing.call_rules import CallRules
from specmesh.orchestrator.parsing.character_parser import Reading
from specmesh.orchestrator.parsing.tagged_parser import TaggedParser
from specmesh.orchestrator.parsing.tool_format import ToolFormat
from specmesh.orchestrator.parsing.tool_parser import NoCall

BEGIN, END = "<tool_call>", "</tool_call>"
KEY, KEY_END = "<arg_key>", "</arg_key>"
VALUE, VALUE_END = "<arg_value>", "</arg_value>"


class Glm45Parser(TaggedParser):
    """A call is certain with its first argument, or with its end."""

    def _parse(self) -> Reading[None]:
        while marker := (yield from self._content_up_to(BEGIN, END)):
            if marker == BEGIN:
                yield from self._attempt(self._call())
            else:
                self._say(self._taken_back())

    def _call(self) -> Reading[None]:
        first = yield from self._after_space()
        self._read_again(1)
        if first == "<":
            raise NoCall
        name, last = yield from self._name_before("<", "\n")
        if not name:
            raise NoCall
        if last == "\n":
            yield from self._expected("<")
        has_begun = False
        while (yield from self._one_of("a", "/")) == "a":
            yield from self._literally(KEY[2:])
            key, _ = yield from self._name_before("<")
            yield from self._literally(KEY_END[1:])
            yield from self._expected("<")
            yield from self._literally(VALUE[1:])
            if not has_begun:
                self._begin_arguments(name)
                has_begun = True
            yield from self._argument(name, key, VALUE_END)
            yield from self._expected("<")
        yield from self._literally(END[2:])
        if not has_begun:
            self._begin_arguments(name)
        self._end_arguments()


def write_key(rules: CallRules, key: str) -> str:
    """Return an expression for what is before the value of the argument ``key``."""
    parts = (rules.marker(KEY), key, rules.marker(KEY_END), "gap", rules.marker(VALUE))
    return " ".join(parts)


ARGUMENTS = TaggedArguments(write_key, VALUE_END)


def write_rules(rules: CallRules) -> str:
    """Return the rules for calls with and without line breaks."""
    return f"""
calls: {rules.repeated("call", between="gap")}
call: {rules.marker(BEGIN)} {rules.any_tool("{}")} {rules.marker(END)}
gap: "\\n"?
{ARGUMENTS.text_rule(rules)}
"""


FORMAT = ToolFormat(
    name="glm45",
    markers=frozenset({BEGIN, END, KEY, KEY_END, VALUE, VALUE_END}),
    is_of=lambda template: BEGIN in template and KEY in template,
    parser=Glm45Parser,
    is_typed=True,
    rules=write_rules,
    begins=(BEGIN,),
    arguments=ARGUMENTS.write,
    names=re.compile(r"[^<\s](?:[^<\n]*[^<\s])?"),
)
