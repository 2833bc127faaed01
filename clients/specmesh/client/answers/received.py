"""The part of one answer that has been received, and the requests that continue it.

Each request has a higher epoch than those before it, so a call that hung, even the first one, can't
take the session back from a later call.
"""

from __future__ import annotations

import grpc

from specmesh.client.answers.sessions import SavedSession
from specmesh.client.errors import Internal, SessionTaken, SpecmeshError
from specmesh.client.requests.chats import ChatMessage
from specmesh.v1 import events_pb2
from specmesh.v1 import generation_pb2 as pb


class ReceivedAnswer:
    """The answer to ``request`` as far as it has been received, or the rest of ``saved``.

    ``request`` may be empty if ``saved`` is given; then only the store can continue the answer.
    """

    def __init__(self, request: pb.GenerateRequest, saved: SavedSession | None) -> None:
        self.started: events_pb2.GenerationStarted | None = None
        self.num_resumes = 0
        self.is_stored = False
        """True if the store can continue the answer."""
        self._request = request
        self._received = pb.Received()
        self._epoch = 0
        self._may_take_over = True
        self._has_ended = False
        if saved is not None:
            self._begin_after(saved)

    def _begin_after(self, saved: SavedSession) -> None:
        self.started = events_pb2.GenerationStarted(
            session_id=saved.session_id,
            resume_token=saved.resume_token,
            epoch=saved.epoch,
            seed=self._request.sampling.seed,
            strategy=self._request.speculation.strategy,
            model_fingerprint=self._request.model_fingerprint,
        )
        self._received.CopyFrom(self._request.received)
        self._received.token_ids[:] = saved.token_ids
        self._received.unchecked[:] = saved.unchecked
        self._epoch = saved.epoch
        self._has_ended = saved.has_ended
        self.is_stored = True

    @property
    def session_id(self) -> str:
        """The session's id; empty before the answer has begun."""
        return self.started.session_id if self.started else ""

    @property
    def can_do_without_store(self) -> bool:
        """True if ``Generate`` can continue the answer from what was received."""
        return self._request.WhichOneof("prompt") is not None

    def next_request(self) -> pb.GenerateRequest | pb.ResumeRequest:
        """Return the request of the next call: ``Resume`` if the session is stored."""
        self._epoch += 1
        if self.started is None or not self.is_stored:
            return self._generate_request()
        return pb.ResumeRequest(
            session_id=self.started.session_id,
            resume_token=self.started.resume_token,
            epoch=self._epoch,
            received=self._received,
        )

    def _generate_request(self) -> pb.GenerateRequest:
        request = pb.GenerateRequest()
        request.CopyFrom(self._request)
        request.epoch = self._epoch
        if self.started is not None:
            request.sampling.seed = self.started.seed
            request.speculation.strategy = self.started.strategy
            request.model_fingerprint = self.started.model_fingerprint
            request.received.CopyFrom(self._received)
        return request

    def saved(self, text: str, message: ChatMessage) -> SavedSession | None:
        """Return the state to resume the answer after ``text`` and ``message``, which were read so
        far; None before it has begun."""
        if self.started is None:
            return None
        request = b""
        if self.can_do_without_store:
            carried_on = self._generate_request()
            # SavedSession has fields of its own for these.
            carried_on.received.ClearField("token_ids")
            carried_on.received.ClearField("unchecked")
            carried_on.ClearField("epoch")
            request = carried_on.SerializeToString()
        return SavedSession(
            session_id=self.started.session_id,
            resume_token=self.started.resume_token,
            epoch=self._epoch,
            token_ids=tuple(self._received.token_ids),
            unchecked=tuple(self._received.unchecked),
            text=text,
            request=request,
            message=message,
            has_ended=self._has_ended,
        )

    def note(self, event: events_pb2.GenerationEvent) -> bool:
        """Take in ``event`` and return whether it brought tokens.

        Raises `Internal` with reason BAD_STREAM if it does not follow from those before it.
        """
        if event.HasField("started"):
            self._begin(event.started)
        elif self.started is None and not event.HasField("heartbeat"):
            raise bad_stream("the stream did not begin with `started`")
        elif event.HasField("chunk"):
            self._take(event.chunk)
            return True
        elif event.HasField("finished"):
            self._has_ended = True
        return False

    def _begin(self, started: events_pb2.GenerationStarted) -> None:
        if self.started is not None:
            self.num_resumes += 1
        self.started = started
        # Older orchestrators don't send these.
        self._received.prompt_digest = started.prompt_digest or self._received.prompt_digest
        self._received.max_tokens = started.max_tokens or self._received.max_tokens
        self.is_stored = started.resumable
        self._may_take_over = False

    def _take(self, chunk: events_pb2.GenerationChunk) -> None:
        num_received = len(self._received.token_ids)
        if chunk.first_index != num_received:
            raise bad_stream(
                f"expected token {num_received}, but the chunk begins at {chunk.first_index}"
            )
        self._received.unchecked.extend(
            num_received + index
            for index, kind in enumerate(chunk.kinds)
            if kind == events_pb2.TOKEN_KIND_UNCHECKED
        )
        self._received.token_ids.extend(chunk.token_ids)
        # A stored session can be resumed even if it lacks some tokens that were received.
        self.is_stored = self.is_stored or chunk.resumable

    def takes_over(self, error: SpecmeshError) -> bool:
        """Return whether to call again with a higher epoch than the call that ``error`` names: a
        caller who resumes a saved session, or reuses a request id, wants the answer even if other
        calls have raised its epoch meanwhile."""
        if not (self._may_take_over and isinstance(error, SessionTaken)):
            return False
        self._may_take_over = False
        self._epoch = max(self._epoch, int(error.metadata.get("current_epoch", 0)))
        return True

    def forgets_what_is_unknown(self, error: SpecmeshError) -> bool:
        """Drop the fields that a newer orchestrator sent, if ``error`` says that an older one does
        not know them; return whether that was so and the call may be repeated without them."""
        told = self._received.prompt_digest or self._received.max_tokens
        if error.reason != "UNKNOWN_FIELD" or not told:
            return False
        self._received.ClearField("prompt_digest")
        self._received.ClearField("max_tokens")
        return True


def bad_stream(message: str) -> Internal:
    """Return the error of a stream that breaks the protocol."""
    return Internal(message, code=grpc.StatusCode.INTERNAL, reason="BAD_STREAM")
