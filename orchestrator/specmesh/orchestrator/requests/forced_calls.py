"""Answers that must call tools, or call them with valid arguments alone: the grammar for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.grammar import MAX_GRAMMAR_BYTES, Grammar, GrammarKind
from specmesh.orchestrator.chats.tools import TOOL_CHOICE, chosen_tools, functions, strict_tools
from specmesh.orchestrator.parsing.answer_parser import AnswerStyle
from specmesh.orchestrator.parsing.call_rules import CallRules
from specmesh.orchestrator.parsing.free_text import TAIL, free_text
from specmesh.orchestrator.parsing.tool_format import ToolFormat
from specmesh.orchestrator.replicas.target import Target
from specmesh.serving.codec.grammars import write_grammar
from specmesh.v1 import chat_pb2, sampling_pb2

_NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}
"""The parameters of a function that has none."""
_PLACE = re.compile(r"line (\d+), column \d+: ")


@dataclass(frozen=True, slots=True)
class ForcedCalls:
    """The grammar of an answer whose calls are held to the tools of its chat. Its first lines are
    rules for arguments, each of the tool of the chat whose number is in ``tools``. ``field`` is
    what asks for it."""

    source: str
    tools: Sequence[int]
    field: str = TOOL_CHOICE

    @property
    def grammar(self) -> sampling_pb2.Grammar:
        """The grammar. Raises ``InvalidField`` if it is too large."""
        try:
            return write_grammar(Grammar(GrammarKind.EBNF, self.source))
        except InvalidField:
            reason = f"the grammar of calls with these is longer than {MAX_GRAMMAR_BYTES} bytes"
            raise InvalidField("chat.tools", reason) from None

    def blamed(self, error: InvalidField) -> InvalidField:
        """Return what is wrong with the chat if a replica finds ``error`` in the grammar."""
        if error.field != f"sampling.grammar.{GrammarKind.EBNF}":
            return error
        place = _PLACE.match(error.reason)
        line = int(place[1]) - 1 if place else len(self.tools)
        if place is None or line >= len(self.tools):
            return InvalidField(self.field, f"the grammar of its calls: {error.reason}")
        return InvalidField(_parameters(self.tools[line]), error.reason[place.end() :])


def read_forced(
    chat: chat_pb2.Chat, style: AnswerStyle, prompt: str, target: Target
) -> ForcedCalls | None:
    """Return the calls that an answer in ``style`` must make to a prompt that ends with ``prompt``,
    or may make if some tool is strict; None if nothing holds it to any. Raises ``InvalidField``."""
    if not chat.HasField("tool_choice"):
        return _read_strict(chat, style, prompt, target)
    chosen = chosen_tools(chat)
    if style.tools is None or style.tools.rules is None:
        name = "none" if style.tools is None else style.tools.name
        raise InvalidField(TOOL_CHOICE, f"no grammar is known for calls in the format {name!r}")
    rules = CallRules(
        [function["name"] for function in chosen.values()],
        {spelling: token_id for token_id, spelling in target.token_bytes.special.items()},
        chat.tool_choice.single_call,
    )
    lines = [
        (line, number)
        for n, (number, function) in enumerate(chosen.items())
        for line in _argument_rules(style.tools, rules, n, number, function)
    ]
    return _with_rules(lines, style.tools.rules(rules), _start(style, prompt, rules, "calls"))


def _read_strict(
    chat: chat_pb2.Chat, style: AnswerStyle, prompt: str, target: Target
) -> ForcedCalls | None:
    """Return the calls that an answer may make if some tool of its chat is strict, and the text
    around them. Nothing holds the others' arguments, nor any if the format has no markers."""
    strict = strict_tools(chat)
    if not strict or style.tools is None or style.tools.rules is None or not style.tools.begins:
        return None
    offered = functions(chat)
    rules = CallRules(
        [function["name"] for function in offered.values()],
        {spelling: token_id for token_id, spelling in target.token_bytes.special.items()},
        is_single=False,
        begins=style.tools.begins,
    )
    lines = [
        (line, number)
        for n, (number, function) in enumerate(offered.items())
        for line in _argument_rules(
            style.tools, rules, n, number, function, is_strict=number in strict
        )
    ]
    thought = "" if style.reasoning is None else style.reasoning.begin
    text = free_text(rules, target.info.end_of_text_ids, thought)
    start = _start(style, prompt, rules, f"{style.tools.call}* {TAIL}", may_end=True)
    field = f"chat.tools[{min(strict)}].function.strict"
    return _with_rules(lines, style.tools.rules(rules), text, start, field=field)


def _with_rules(
    arguments: Sequence[tuple[str, int]], *rules: str, field: str = TOOL_CHOICE
) -> ForcedCalls:
    lines = [line for line, _ in arguments]
    tools = tuple(number for _, number in arguments)
    return ForcedCalls("\n".join([*lines, *rules]), tools, field)


def _argument_rules(
    written: ToolFormat,
    rules: CallRules,
    place: int,
    number: int,
    function: dict[str, Any],
    *,
    is_strict: bool = True,
) -> Sequence[str]:
    """Return the rules for the arguments of the chat's tool ``number``, which is at ``place`` in
    ``rules``; any arguments unless it ``is_strict``. Raises ``InvalidField``."""
    if not written.names.fullmatch(function["name"]):
        reason = f"the format {written.name!r} has no way to write {function['name']!r}"
        raise InvalidField(f"chat.tools[{number}].function.name", reason)
    field = _parameters(number)
    schema = _schema(field, function) if is_strict else None
    try:
        return written.arguments(rules, place, schema)
    except ValueError as error:
        raise InvalidField(field, f"in the format {written.name!r} {error}") from None


def _start(
    style: AnswerStyle, prompt: str, rules: CallRules, message: str, *, may_end: bool = False
) -> str:
    """Return the rules for the whole answer: a model that reasons does so before its message, and
    ``may_end`` the answer without one."""
    if style.reasoning is None:
        return f"start: {message}"
    if style.reasoning.has_begun(prompt):
        start, unended = f"start: rest {message}", "unended"
    else:
        start = f"start: reasoning? {message}"
        unended = f"{rules.literal(style.reasoning.begin)} unended"
    if may_end:
        start += f" | {unended}"
    return f"{start}\n{style.reasoning.rules(rules)}"


def _schema(field: str, function: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the arguments of ``function``, which are always an object."""
    schema = function.get("parameters")
    if schema is None:
        return _NO_ARGUMENTS
    if not isinstance(schema, dict):
        raise InvalidField(field, "must be a JSON object")
    kinds = schema.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        raise InvalidField(field, "must allow an object: arguments are one")
    return {**schema, "type": "object"}


def _parameters(number: int) -> str:
    return f"chat.tools[{number}].function.parameters"
