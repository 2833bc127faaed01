"""The events of an answer as one message."""

from __future__ import annotations

from collections.abc import AsyncIterable

from specmesh.v1 import events_pb2, generation_pb2


async def whole_answer(
    events: AsyncIterable[events_pb2.GenerationEvent], num_received: int
) -> generation_pb2.CompleteResponse:
    """Merge ``events`` into one response; the client has ``num_received`` tokens from before."""
    response = generation_pb2.CompleteResponse()
    chunk = response.chunk
    text = ""
    async for event in events:
        match event.WhichOneof("kind"):
            case "started":
                response.started.CopyFrom(event.started)
            case "chunk":
                text += event.chunk.text
                chunk.MergeFrom(event.chunk)
            case "finished":
                response.finished.CopyFrom(event.finished)
    held_back = response.finished.text
    response.finished.ClearField("text")
    chunk.text = text + held_back
    if chunk.text_lengths:
        chunk.text_lengths[-1] += len(held_back)
    chunk.first_index = num_received
    chunk.deltas.extend(response.finished.deltas)
    response.finished.ClearField("deltas")
    chunk.resumable = response.finished.resumable
    chunk.ClearField("stats")
    return response
