"""The response format of POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from specmesh.client import ChatMessage, Chunk, GenerationResult, ToolCall, ToolCallDelta
from specmesh.gateway.responses import logprobs
from specmesh.gateway.responses.envelope import Json, extension, finish_reason


@dataclass(frozen=True, slots=True)
class ChatStyle:
    """The ``Style`` of chats. Calls of tools after the first are left out unless they may be
    ``parallel``, and so is reasoning unless the caller wants it."""

    parallel_calls: bool = True
    include_reasoning: bool = True
    prefix: str = "chatcmpl-"
    object: str = "chat.completion"
    chunk_object: str = "chat.completion.chunk"

    def whole(self, number: int, result: GenerationResult) -> Json:
        """Return a complete choice of a response."""
        return {
            "index": number,
            "message": self._message(result.message),
            "logprobs": logprobs.of_chat(result.logprobs) if result.logprobs else None,
            "finish_reason": _finish_reason(result),
            "stop_reason": result.stop_reason,
            **extension(result),
        }

    def begin(self, number: int) -> Iterable[Json]:
        """Return the part of a stream that begins a choice with the role."""
        return [self._part(number, {"role": "assistant", "content": ""})]

    def more(self, number: int, chunk: Chunk) -> Json | None:
        """Return the part of a stream that continues a choice; None if there is nothing to say."""
        delta = self._delta(chunk)
        if chunk.logprobs:
            part = self._part(number, delta or {"content": ""})
            return {**part, "logprobs": logprobs.of_chat(chunk.logprobs)}
        return self._part(number, delta) if delta else None

    def last(self, number: int, result: GenerationResult) -> Json:
        """Return the part of a stream that ends a choice."""
        part = self._part(number, {})
        return {
            **part,
            "finish_reason": _finish_reason(result),
            "stop_reason": result.stop_reason,
            **extension(result),
        }

    def _message(self, message: ChatMessage) -> Json:
        said: Json = {"role": message.role, "content": message.content, "refusal": None}
        if self.include_reasoning and message.reasoning_content:
            said["reasoning_content"] = message.reasoning_content
        if message.tool_calls:
            said["content"] = message.content or None
            calls = message.tool_calls if self.parallel_calls else message.tool_calls[:1]
            said["tool_calls"] = [_call(call) for call in calls]
        return said

    def _delta(self, chunk: Chunk) -> Json:
        reasoning = "".join(each.reasoning_content for each in chunk.deltas)
        delta = {
            "content": "".join(each.content for each in chunk.deltas),
            "reasoning_content": reasoning if self.include_reasoning else "",
            "tool_calls": [
                _call_delta(call)
                for each in chunk.deltas
                if (call := each.tool_call) and (self.parallel_calls or call.index == 0)
            ],
        }
        return {name: value for name, value in delta.items() if value}

    def _part(self, number: int, delta: Json) -> Json:
        return {"index": number, "delta": delta, "logprobs": None, "finish_reason": None}


def _finish_reason(result: GenerationResult) -> str:
    """Return OpenAI's reason, which tells a message that calls tools from others unless the answer
    was cut off."""
    reason = finish_reason(result)
    return "tool_calls" if reason == "stop" and result.message.tool_calls else reason


def _call(call: ToolCall) -> Json:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _call_delta(call: ToolCallDelta) -> Json:
    if not call.name:
        return {"index": call.index, "function": {"arguments": call.arguments}}
    return {"index": call.index, **_call(ToolCall(call.id, call.name, call.arguments))}
