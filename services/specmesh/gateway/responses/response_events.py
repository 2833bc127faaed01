"""The reply to POST /v1/responses: one object, or events that tell how it comes about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specmesh.client import GenerationResult
from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.responses import ResponsesRequest
from specmesh.gateway.responses.answers import AnswerEnded, Said
from specmesh.gateway.responses.envelope import Json
from specmesh.gateway.responses.logprobs import of_response
from specmesh.gateway.responses.response_object import ResponseObject, text_part


class ResponseReply:
    """The ``Reply`` to a request for a response, whose output is one message with one text."""

    end_mark = ""

    def __init__(self, asked: ResponsesRequest) -> None:
        self._object = ResponseObject(asked)
        self._num_events = 0

    def whole(self, results: Sequence[GenerationResult]) -> Json:
        """Return the response."""
        return self._object.ended(results[0])

    def begin(self) -> Iterator[Json]:
        """Return the events before the first text."""
        yield self._event("response.created", response=self._object.begun())
        yield self._event("response.in_progress", response=self._object.begun())
        yield self._event("response.output_item.added", output_index=0, item=self._object.message())
        yield self._text_event("response.content_part.added", part=text_part())

    def more(self, said: Said) -> Iterator[Json]:
        """Return the event with the next text."""
        chunk = said.chunk
        content = "".join(each.content for each in chunk.deltas)
        if content or chunk.logprobs:
            yield self._text_event(
                "response.output_text.delta",
                delta=content,
                logprobs=of_response(chunk.logprobs),
            )

    def end(self, ended: AnswerEnded) -> Iterator[Json]:
        """Return the events that end text, message and response."""
        result = ended.result
        yield self._text_event(
            "response.output_text.done",
            text=result.message.content,
            logprobs=of_response(result.logprobs),
        )
        yield self._text_event("response.content_part.done", part=text_part(result))
        yield self._event(
            "response.output_item.done", output_index=0, item=self._object.message(result)
        )
        response = self._object.ended(result)
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

    def _text_event(self, name: str, **fields: object) -> Json:
        place = {"item_id": self._object.item_id, "output_index": 0, "content_index": 0}
        return self._event(name, **place, **fields)

    def _event(self, name: str, **fields: object) -> Json:
        number = self._num_events
        self._num_events += 1
        return {"type": name, "sequence_number": number, **fields}
