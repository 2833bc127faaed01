"""The format in which an answer is written, as its request, the settings and the model's template
say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeVar

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.admission.request_limits import MAX_ARGUMENTS, MAX_TOOLS
from specmesh.orchestrator.chats.tools import read_tools, tool_names
from specmesh.orchestrator.parsing.answer_parser import AnswerStyle
from specmesh.orchestrator.parsing.argument_types import ArgumentTypes, argument_types
from specmesh.orchestrator.parsing.reasoning import ReasoningFormat
from specmesh.orchestrator.parsing.registry import (
    DETECTED,
    NONE,
    reasoning_format,
    tool_format,
)
from specmesh.orchestrator.parsing.schemas import ALL_TYPES
from specmesh.orchestrator.parsing.tool_format import ToolFormat
from specmesh.orchestrator.replicas.target import Target
from specmesh.orchestrator.text.token_bytes import TokenBytes
from specmesh.serving.errors import FailedPreconditionStatus
from specmesh.v1 import chat_pb2, generation_pb2

F = TypeVar("F")

BY_MODEL = ("", DETECTED)
"""Names of formats that leave the choice to the model's own."""


@dataclass(frozen=True, slots=True)
class ModelFormats:
    """The formats of a model by name, each of which may be left to the model's chat template."""

    tools: str = DETECTED
    reasoning: str = DETECTED

    def tools_of(self, target: Target) -> ToolFormat | None:
        """Return the format of tool calls; None if it is not known."""
        return tool_format(self.tools, _source(target, tools=True))

    def reasoning_of(self, target: Target) -> ReasoningFormat | None:
        """Return the format of reasoning; None if the model does not reason."""
        return reasoning_format(self.reasoning, _source(target, tools=False))


def read_format(
    request: generation_pb2.GenerateRequest, target: Target, formats: ModelFormats
) -> AnswerStyle:
    """Return the style of the answer to ``request``, by ``formats`` where it does not say.

    Raises ``InvalidField``, and ``FailedPreconditionStatus`` with reason NO_TOOL_FORMAT for a chat
    with tools if the model's format is not known.
    """
    asked, names = request.format, _tool_names(request)
    tools = _named("format.tool_calls", asked.tool_calls, tool_format)
    reasoning = _named("format.reasoning", asked.reasoning, reasoning_format)
    if asked.tool_calls in BY_MODEL and request.chat.tools:
        tools = formats.tools_of(target)
        if tools is None:
            raise _unknown(target.info.name)
    if asked.reasoning in BY_MODEL and request.HasField("chat"):
        reasoning = formats.reasoning_of(target)
    if tools is None:
        return AnswerStyle(None, reasoning)
    types = _types(request) if tools.is_typed else {}
    calls_only = asked.calls_only or request.chat.HasField("tool_choice")
    return AnswerStyle(tools, reasoning, {**{name: {} for name in names}, **types}, calls_only)


def write_format(style: AnswerStyle) -> chat_pb2.AnswerFormat | None:
    """Return the message for ``style``; None for an answer that is not parsed."""
    if not style.is_parsed:
        return None
    return chat_pb2.AnswerFormat(
        tool_calls=name_of(style.tools),
        reasoning=name_of(style.reasoning),
        tool_names=style.tool_types,
        arguments=[
            chat_pb2.ToolArgument(tool=tool, name=name, types=sorted(types))
            for tool, arguments in style.tool_types.items()
            for name, types in arguments.items()
        ],
        calls_only=style.calls_only,
    )


def name_of(written: ToolFormat | ReasoningFormat | None) -> str:
    """Return the name of a format."""
    return NONE if written is None else written.name


def kept_tokens(
    token_bytes: TokenBytes, style: AnswerStyle, ends: Set[int], *, keep_all: bool
) -> Set[int]:
    """Return the special tokens that an answer's text contains: all if ``keep_all``, otherwise
    those that mark its parts, but none of those at which it ``ends``."""
    markers = style.markers
    kept = (
        token_id
        for token_id, spelling in token_bytes.special.items()
        if keep_all or spelling in markers
    )
    return frozenset(kept) - ends


def _tool_names(request: generation_pb2.GenerateRequest) -> Sequence[str]:
    names = request.format.tool_names
    if len(names) > MAX_TOOLS:
        raise InvalidField("format.tool_names", f"has more than {MAX_TOOLS} entries")
    return names or tool_names(request.chat)


def _types(request: generation_pb2.GenerateRequest) -> Mapping[str, ArgumentTypes]:
    """Return the types of the arguments of each tool. Raises ``InvalidField``."""
    given = request.format.arguments
    if not given:
        functions = [tool["function"] for tool in read_tools(request.chat) or ()]
        types = {each["name"]: argument_types(each.get("parameters")) for each in functions}
        if sum(map(len, types.values())) > MAX_ARGUMENTS:
            reason = f"have more than {MAX_ARGUMENTS} arguments in all"
            raise InvalidField("chat.tools", reason)
        return types
    if len(given) > MAX_ARGUMENTS:
        raise InvalidField("format.arguments", f"has more than {MAX_ARGUMENTS} entries")
    found: dict[str, dict[str, frozenset[str]]] = {}
    for n, each in enumerate(given):
        if not each.types or not ALL_TYPES.issuperset(each.types):
            known = ", ".join(sorted(ALL_TYPES))
            raise InvalidField(f"format.arguments[{n}].types", f"must be some of: {known}")
        found.setdefault(each.tool, {})[each.name] = frozenset(each.types)
    return found


def _named(field: str, name: str, find: Callable[[str, str], F | None]) -> F | None:
    """Return the format that the request names in ``field``; None if it leaves it to the model."""
    try:
        return find(name or NONE, "")
    except ValueError as error:
        raise InvalidField(field, str(error)) from None


def _source(target: Target, *, tools: bool) -> str:
    return target.chat_template.source_for(tools=tools) if target.chat_template else ""


def _unknown(model: str) -> FailedPreconditionStatus:
    return FailedPreconditionStatus(
        "NO_TOOL_FORMAT",
        f"neither the chat template of {model!r} nor --tool-format says in which format it writes "
        "calls of tools",
        {"model": model},
    )
