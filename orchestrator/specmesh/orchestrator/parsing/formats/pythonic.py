"""The format of Llama 4 and others that write calls in Python: a message that begins with
``[name(key=value), …]``, or such a list after ``<|python_start|>``."""

from __future__ import annotations

import re

from specmesh.orchestrator.parsing.argument_rules import ListedArguments
from specmesh.orchestrator.parsing.call_rules import CallRules
from specmesh.orchestrator.parsing.character_parser import Reading
from specmesh.orchestrator.parsing.python_values import PythonParser
from specmesh.orchestrator.parsing.tool_format import ToolFormat
from specmesh.orchestrator.parsing.tool_parser import NoCall

BEGIN, END = "<|python_start|>", "<|python_end|>"
SIGN = "[func_name1("
"""A part of the instructions in templates."""
MAX_CHARS = 256
"""Most characters of a name."""


class PythonicParser(PythonParser):
    """A message that is not marked calls tools only if it begins with a known one."""

    def _parse(self) -> Reading[None]:
        first = yield from self._after_space()
        self._read_again(1)
        if first == "[":
            yield from self._attempt(self._calls(is_marked=False))
        else:
            self._say(self._taken_back())
        while marker := (yield from self._content_up_to(BEGIN, END)):
            if marker == BEGIN:
                yield from self._attempt(self._calls(is_marked=True))
            elif self._num_calls:
                self._held.clear()
            else:
                self._say(self._taken_back())

    def _calls(self, *, is_marked: bool) -> Reading[None]:
        yield from self._expected("[")
        while True:
            name = yield from self._name("(")
            if not (is_marked or name in self._tool_names):
                raise NoCall
            self._begin(name)
            self._argue("{")
            yield from self._named_values()
            self._argue("}")
            if (yield from self._one_of(",", "]")) == "]":
                break


def write_rules(rules: CallRules) -> str:
    """Return the rules for calls that are not marked. Their values are JSON, which the parser reads
    as well as Python's."""
    return f"""
calls: "[" {rules.repeated("call", between='", "')} "]"
call: {rules.any_tool("{}(", ")")}
"""


FORMAT = ToolFormat(
    name="pythonic",
    markers=frozenset({BEGIN, END}),
    is_of=lambda template: SIGN in template,
    parser=PythonicParser,
    rules=write_rules,
    arguments=ListedArguments().write,
    names=re.compile(r"[A-Za-z_][\w.-]*", re.ASCII),
)
