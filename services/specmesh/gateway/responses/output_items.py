"""The items in the output of POST /v1/responses, each with the events that tell how it comes about.

An item has its text piece by piece. Its events lack what says where in the response it is.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

from specmesh.client import TokenLogprobs, ToolCall
from specmesh.gateway.json_text import JsonText
from specmesh.gateway.responses.envelope import Json
from specmesh.gateway.responses.logprobs import of_response

ItemEvent = tuple[str, Json]
"""The name of an event, and its own fields."""


class OutputItem:
    """One item: its id begins with ``prefix``, and events with more of its text are named after
    ``kind``."""

    prefix: str
    kind: str

    def __init__(self) -> None:
        self.id = f"{self.prefix}_{uuid.uuid4().hex}"
        self.text = ""

    def begin(self) -> Iterator[ItemEvent]:
        """Return the events between the item and its first text."""
        return iter(())

    def add(self, text: str) -> ItemEvent:
        """Add ``text``, and return the event that tells it."""
        self.text += text
        return f"{self.kind}.delta", {"delta": text}

    def end(self) -> Iterator[ItemEvent]:
        """Return the events behind the last text."""
        return iter(())

    def written(self, status: str) -> Json:
        """Return the item at this ``status``."""
        raise NotImplementedError


class PartItem(OutputItem):
    """An item whose text is one part of its content."""

    def begin(self) -> Iterator[ItemEvent]:
        """Return the event of the part without its text."""
        yield "content_part.added", {"content_index": 0, "part": self.part()}

    def add(self, text: str) -> ItemEvent:
        """Add ``text``, and return the event that tells it."""
        name, fields = super().add(text)
        return name, {"content_index": 0, **fields}

    def end(self) -> Iterator[ItemEvent]:
        """Return the events with the whole text."""
        yield f"{self.kind}.done", {"content_index": 0, "text": self.text}
        yield "content_part.done", {"content_index": 0, "part": self.part()}

    def part(self) -> Json:
        """Return the part as far as it has come."""
        raise NotImplementedError


class ReasoningItem(PartItem):
    """The model's reasoning before it answers."""

    prefix, kind = "rs", "reasoning_text"

    def part(self) -> Json:
        """Return the part as far as it has come."""
        return {"type": "reasoning_text", "text": self.text}

    def written(self, status: str) -> Json:
        """Return the item at this ``status``."""
        content = [self.part()] if self.text else []
        told = {"id": self.id, "type": "reasoning", "status": status}
        return {**told, "summary": [], "content": content}


class MessageItem(PartItem):
    """The model's message, with log-probabilities if they are wanted."""

    prefix, kind = "msg", "output_text"

    def __init__(self) -> None:
        super().__init__()
        self._logprobs: list[str] = []

    def say(self, text: str, logprobs: Sequence[str]) -> ItemEvent:
        """Add ``text`` with ``logprobs``, entries as ``of_response`` returns them, and return the
        event that tells both."""
        self._logprobs += logprobs
        name, fields = self.add(text)
        return name, {**fields, "logprobs": JsonText.of_list(logprobs)}

    def end(self) -> Iterator[ItemEvent]:
        """Return the events with the whole text."""
        (name, fields), part = super().end()
        yield name, {**fields, "logprobs": JsonText.of_list(self._logprobs)}
        yield part

    def part(self) -> Json:
        """Return the part as far as it has come."""
        logprobs = JsonText.of_list(self._logprobs)
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": logprobs}

    def written(self, status: str) -> Json:
        """Return the item at this ``status``."""
        content = [] if status == "in_progress" else [self.part()]
        told = {"id": self.id, "type": "message", "role": "assistant", "status": status}
        return {**told, "content": content}


class CallItem(OutputItem):
    """A call of a tool, whose text are its arguments."""

    prefix, kind = "fc", "function_call_arguments"

    def __init__(self, call_id: str, name: str) -> None:
        super().__init__()
        self._call_id = call_id
        self._name = name

    def end(self) -> Iterator[ItemEvent]:
        """Return the event with the whole arguments."""
        yield f"{self.kind}.done", {"name": self._name, "arguments": self.text}

    def written(self, status: str) -> Json:
        """Return the item at this ``status``."""
        told = {"id": self.id, "type": "function_call", "status": status, "call_id": self._call_id}
        return {**told, "name": self._name, "arguments": self.text}


def items_of(
    reasoning: str, content: str, calls: Sequence[ToolCall], logprobs: Sequence[TokenLogprobs]
) -> list[OutputItem]:
    """Return the items of a whole answer, at least one: without any other an empty message."""
    items: list[OutputItem] = []
    if reasoning:
        thought = ReasoningItem()
        thought.add(reasoning)
        items.append(thought)
    if content or not (items or calls):
        message = MessageItem()
        message.say(content, of_response(logprobs))
        items.append(message)
    for each in calls:
        call = CallItem(each.id, each.name)
        call.add(each.arguments)
        items.append(call)
    return items
