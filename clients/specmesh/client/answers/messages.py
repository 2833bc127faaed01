"""The model's message in an answer, and the pieces in which it comes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from specmesh.client.requests.chats import ChatMessage, ToolCall
from specmesh.v1 import events_pb2

NOTHING_SAID = ChatMessage("assistant", "")
"""The model's message before it has begun."""


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of the call of a tool that follows ``index`` others. The first piece has its ``id`` and
    its ``name``; ``arguments`` add to its arguments."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class MessageDelta:
    """More of the model's message: of its content, its reasoning, or a call of a tool."""

    content: str = ""
    reasoning_content: str = ""
    tool_call: ToolCallDelta | None = None


class MessageParts:
    """The parts of a message, collected from its deltas, after those that it ``begins`` with."""

    def __init__(self, begins: ChatMessage) -> None:
        self._content = [begins.content]
        self._reasoning = [begins.reasoning_content]
        self._calls = [(call.id, call.name, [call.arguments]) for call in begins.tool_calls]

    def add(self, deltas: Iterable[MessageDelta]) -> None:
        """Add ``deltas``, which follow the earlier ones."""
        for delta in deltas:
            self._content.append(delta.content)
            self._reasoning.append(delta.reasoning_content)
            if (call := delta.tool_call) is None:
                continue
            if call.index >= len(self._calls):
                self._calls.append((call.id, call.name, []))
            _, _, arguments = self._calls[-1]
            arguments.append(call.arguments)

    @property
    def message(self) -> ChatMessage:
        """The message so far."""
        calls = (ToolCall(each_id, name, "".join(some)) for each_id, name, some in self._calls)
        return replace(
            NOTHING_SAID,
            content="".join(self._content),
            tool_calls=tuple(calls),
            reasoning_content="".join(self._reasoning),
        )


def deltas_from(messages: Iterable[events_pb2.MessageDelta]) -> tuple[MessageDelta, ...]:
    """Convert delta messages."""
    return tuple(map(_delta_from, messages))


def _delta_from(message: events_pb2.MessageDelta) -> MessageDelta:
    call = message.tool_call
    return MessageDelta(
        content=message.content,
        reasoning_content=message.reasoning_content,
        tool_call=(
            ToolCallDelta(call.index, call.id, call.name, call.arguments)
            if message.HasField("tool_call")
            else None
        ),
    )
