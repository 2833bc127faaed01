"""The reply to POST /v1/responses: one object, or events that tell how it comes about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specmesh.client import GenerationResult, ToolCallDelta
from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.responses import ResponsesRequest
from specmesh.gateway.responses.answers import AnswerEnded, Said
from specmesh.gateway.responses.envelope import Json
from specmesh.gateway.responses.logprobs import of_response
from specmesh.gateway.responses.output_items import (
    CallItem,
    ItemEvent,
    MessageItem,
    OutputItem,
    ReasoningItem,
    items_of,
)
from specmesh.gateway.responses.response_object import ResponseObject, status_of


class ResponseReply:
    """The ``Reply`` to a request for a response. Its output is a list of items, of which one is
    open at a time: the last one."""

    end_mark = ""

    def __init__(self, asked: ResponsesRequest) -> None:
        self._chat = asked.chat
        self._object = ResponseObject(asked)
        self._num_events = 0
        self._items: list[OutputItem] = []
        self._call_index = -1
        self._untold: list[str] = []
        """Log-probabilities of tokens that have brought no text yet."""

    def whole(self, results: Sequence[GenerationResult]) -> Json:
        """Return the response."""
        (result,) = results
        message = result.message
        calls = message.tool_calls if self._chat.parallel_tool_calls else message.tool_calls[:1]
        reasoning = message.reasoning_content if self._chat.include_reasoning else ""
        items = items_of(reasoning, message.content, calls, result.logprobs)
        return self._object.ended(result, items)

    def begin(self) -> Iterator[Json]:
        """Return the events before the first item."""
        yield self._event("response.created", response=self._object.begun())
        yield self._event("response.in_progress", response=self._object.begun())

    def more(self, said: Said) -> Iterator[Json]:
        """Return the events with what is next in the output."""
        self._untold += of_response(said.chunk.logprobs)
        for delta in said.chunk.deltas:
            if delta.reasoning_content and self._chat.include_reasoning:
                yield from self._open(ReasoningItem)
                yield self._item_event(self._items[-1].add(delta.reasoning_content))
            if delta.content:
                yield from self._say(delta.content)
            if (call := delta.tool_call) and (self._chat.parallel_tool_calls or call.index == 0):
                yield from self._call(call)
        if self._untold and self._items and isinstance(self._items[-1], MessageItem):
            yield from self._say("")

    def end(self, ended: AnswerEnded) -> Iterator[Json]:
        """Return the events that end the last item and the response."""
        if not self._items:
            yield from self._say("")
        yield from self._close(status_of(ended.result))
        response = self._object.ended(ended.result, self._items)
        yield self._event(f"response.{response['status']}", response=response)

    def finish(self, results: Sequence[GenerationResult]) -> Iterator[Json]:  # noqa: ARG002
        """Return nothing, since the response ends with its one answer."""
        return iter(())

    def fail(self, error: ApiError) -> Iterator[Json]:
        """Return the end of the response, and the error in the shape that makes OpenAI's client
        raise it."""
        yield self._event("response.failed", response=self._object.failed(error))
        told = {"code": error.code, "message": error.message, "param": error.param}
        yield self._event("error", **told, **error.body)

    def _say(self, text: str) -> Iterator[Json]:
        yield from self._open(MessageItem)
        message = self._items[-1]
        assert isinstance(message, MessageItem)
        logprobs, self._untold = self._untold, []
        yield self._item_event(message.say(text, logprobs))

    def _call(self, call: ToolCallDelta) -> Iterator[Json]:
        if call.index != self._call_index:
            self._call_index = call.index
            yield from self._begin(CallItem(call.id, call.name))
        if call.arguments:
            yield self._item_event(self._items[-1].add(call.arguments))

    def _open(self, kind: type[MessageItem | ReasoningItem]) -> Iterator[Json]:
        """Begin an item unless the last one is of this ``kind``."""
        if not self._items or not isinstance(self._items[-1], kind):
            yield from self._begin(kind())

    def _begin(self, item: OutputItem) -> Iterator[Json]:
        if self._items:
            yield from self._close("completed")
        self._items.append(item)
        yield self._placed("output_item.added", item=item.written("in_progress"))
        yield from map(self._item_event, item.begin())

    def _close(self, status: str) -> Iterator[Json]:
        item = self._items[-1]
        yield from map(self._item_event, item.end())
        yield self._placed("output_item.done", item=item.written(status))

    def _item_event(self, event: ItemEvent) -> Json:
        name, fields = event
        return self._placed(name, item_id=self._items[-1].id, **fields)

    def _placed(self, name: str, /, **fields: object) -> Json:
        return self._event(f"response.{name}", output_index=len(self._items) - 1, **fields)

    def _event(self, name: str, /, **fields: object) -> Json:
        number = self._num_events
        self._num_events += 1
        return {"type": name, "sequence_number": number, **fields}
