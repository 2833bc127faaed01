"""A scripted fake mesh over real gRPC, for the tests of code that uses the SDK.

::

    with FakeMesh() as mesh, Client(mesh.address) as client:
        mesh.answer("Hello, ", "world", breaks_after=1)
        assert client.complete("Greet me").text == "Hello, world"
        assert mesh.requests[0].text == "Greet me"
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import TracebackType
from typing import Self

import grpc

from specmesh.client.scripted import (
    MODEL,
    SEED,
    STRATEGY,
    ScriptedFailure,
    ScriptedSession,
    ScriptedToken,
)
from specmesh.v1 import events_pb2, scoring_pb2, served_model_pb2, session_pb2, tokenizer_pb2
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1.generation_pb2_grpc import (
    GenerationServiceServicer,
    add_GenerationServiceServicer_to_server,
)
from specmesh.v1.tokenizer_pb2_grpc import (
    TokenizerServiceServicer,
    add_TokenizerServiceServicer_to_server,
)

_OPTIONS = (
    # Allow pings as often as an orchestrator does; by default gRPC would close the connection.
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.keepalive_permit_without_calls", 1),
)
_UNSCRIPTED = ScriptedFailure(
    grpc.StatusCode.FAILED_PRECONDITION, "the test scripted no answer for this"
)
_NOT_FOUND = ScriptedFailure(grpc.StatusCode.NOT_FOUND, "no such session", "SESSION_NOT_FOUND")


class FakeMesh:
    """A mesh on a free loopback port that answers in the scripted order.

    It can be used from any thread; ``with`` starts and stops it. Its tokenizer maps a text to its
    UTF-8 bytes.
    """

    def __init__(self, credentials: grpc.ServerCredentials | None = None) -> None:
        self.requests: list[pb.GenerateRequest] = []
        """The requests of Generate, in order."""
        self.resumes: list[pb.ResumeRequest] = []
        """The requests of Resume, in order."""
        self.metadata: list[dict[str, str | bytes]] = []
        """The metadata of each call, in order."""
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._script: deque[ScriptedSession | ScriptedFailure] = deque()
        self._sessions: dict[str, ScriptedSession] = {}
        self._by_request: dict[str, ScriptedSession] = {}
        self._server = grpc.server(ThreadPoolExecutor(max_workers=32), options=_OPTIONS)
        add_GenerationServiceServicer_to_server(_FakeGeneration(self), self._server)
        add_TokenizerServiceServicer_to_server(_Tokenizer(self), self._server)
        address = "127.0.0.1:0"
        port = (
            self._server.add_insecure_port(address)
            if credentials is None
            else self._server.add_secure_port(address, credentials)
        )
        self.address = f"127.0.0.1:{port}"
        """The address (host:port) for a client."""

    def answer(self, *said: ScriptedToken, breaks_after: int | Iterable[int] = ()) -> None:
        """Answer the next request with texts and calls of tools, each a token in a chunk of its
        own.

        The call breaks after ``breaks_after`` tokens of the answer, or once after each of several
        such counts; a client that resumes gets the rest. Raises ValueError for a count that the
        answer does not reach.
        """
        breaks = (breaks_after,) if isinstance(breaks_after, int) else tuple(breaks_after)
        for each in breaks:
            if not 0 <= each <= len(said):
                raise ValueError(f"breaks_after: {each} is not from 0 to {len(said)}")
        with self._lock:
            session_id = f"fake-{next(self._numbers)}"
            self._script.append(ScriptedSession(session_id, said, deque(sorted(breaks))))

    def fail(
        self,
        code: grpc.StatusCode,
        reason: str = "",
        message: str = "as the test wants it",
        *,
        retry_after_s: float | None = None,
        field: str = "",
    ) -> None:
        """Refuse the next request. ``field`` names the wrong field of an INVALID_ARGUMENT."""
        with self._lock:
            self._script.append(ScriptedFailure(code, message, reason, retry_after_s, field))

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for session in self._sessions.values():
            session.cancelled.set()
        self._server.stop(None).wait()

    def called(self, context: grpc.ServicerContext) -> None:
        """Record a call's metadata."""
        self.metadata.append(dict(context.invocation_metadata()))

    def begin(self, request: pb.GenerateRequest, context: grpc.ServicerContext) -> ScriptedSession:
        """Return the session that ``request`` begins or continues; abort the call if the script
        says so, or has ended."""
        with self._lock:
            self.requests.append(request)
            known = self._by_request.get(request.request_id)
            if known is not None:
                return known
            step = self._script.popleft() if self._script else None
            if isinstance(step, ScriptedSession):
                self._sessions[step.session_id] = step
                if request.request_id:
                    self._by_request[request.request_id] = step
                return step
        raise (step or _UNSCRIPTED).abort(context)

    def find(
        self, session_id: str, resume_token: bytes, context: grpc.ServicerContext
    ) -> ScriptedSession:
        """Return a session; abort the call if there is none with this id and token."""
        session = self._sessions.get(session_id)
        if session is None or session.resume_token != resume_token:
            raise _NOT_FOUND.abort(context)
        return session


class _FakeGeneration(GenerationServiceServicer):
    def __init__(self, mesh: FakeMesh) -> None:
        self._mesh = mesh

    def Generate(  # noqa: N802
        self, request: pb.GenerateRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.GenerateResponse]:
        self._mesh.called(context)
        session = self._mesh.begin(request, context)
        num_received = len(request.received.token_ids)
        for event in session.events(request.epoch or session.epoch + 1, num_received, context):
            yield pb.GenerateResponse(event=event)

    def Resume(  # noqa: N802
        self, request: pb.ResumeRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.ResumeResponse]:
        self._mesh.called(context)
        self._mesh.resumes.append(request)
        session = self._mesh.find(request.session_id, request.resume_token, context)
        num_received = len(request.received.token_ids)
        for event in session.events(request.epoch, num_received, context):
            yield pb.ResumeResponse(event=event)

    def GenerateMany(  # noqa: N802
        self,
        request_iterator: Iterator[pb.GenerateManyRequest],  # noqa: ARG002
        context: grpc.ServicerContext,
    ) -> Iterator[pb.GenerateManyResponse]:
        # As an older orchestrator: clients then make a call for each answer, which is recorded.
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "this mesh has a call for each answer")

    def Complete(  # noqa: N802
        self, request: pb.CompleteRequest, context: grpc.ServicerContext
    ) -> pb.CompleteResponse:
        self._mesh.called(context)
        session = self._mesh.begin(request.request, context)
        session.epoch += 1
        return pb.CompleteResponse(
            started=session.started(),
            chunk=events_pb2.GenerationChunk(
                token_ids=range(len(session.said)),
                text="".join(session.texts),
                deltas=session.deltas,
            ),
            finished=session.finished(),
        )

    def GetSession(  # noqa: N802
        self, request: session_pb2.GetSessionRequest, context: grpc.ServicerContext
    ) -> session_pb2.GetSessionResponse:
        self._mesh.called(context)
        session = self._mesh.find(request.session_id, request.resume_token, context)
        state = session_pb2.SESSION_STATE_ACTIVE
        reason = events_pb2.FINISH_REASON_UNSPECIFIED
        if session.cancelled.is_set():
            state = session_pb2.SESSION_STATE_CANCELLED
        elif session.num_said == len(session.said):
            state = session_pb2.SESSION_STATE_FINISHED
            reason = events_pb2.FINISH_REASON_STOP
        found = session_pb2.Session(
            session_id=session.session_id,
            state=state,
            epoch=session.epoch,
            model=MODEL,
            strategy=STRATEGY,
            seed=SEED,
            num_prompt_tokens=1,
            token_ids=range(session.num_said),
            text="".join(session.texts[: session.num_said]),
            finish_reason=reason,
        )
        return session_pb2.GetSessionResponse(session=found)

    def CancelSession(  # noqa: N802
        self, request: session_pb2.CancelSessionRequest, context: grpc.ServicerContext
    ) -> session_pb2.CancelSessionResponse:
        self._mesh.called(context)
        session = self._mesh.find(request.session_id, request.resume_token, context)
        session.cancelled.set()
        return session_pb2.CancelSessionResponse()

    def Score(  # noqa: N802
        self, request: scoring_pb2.ScoreRequest, context: grpc.ServicerContext
    ) -> Iterator[scoring_pb2.ScoreResponse]:
        self._mesh.called(context)
        token_ids = list(request.text.encode()) or request.tokens.token_ids
        yield scoring_pb2.ScoreResponse(token_ids=token_ids[:1])
        likely = [
            events_pb2.TokenLogprobs(
                chosen=events_pb2.TokenLogprob(
                    token_id=token, logprob=-1.0, text_bytes=bytes([token % 256])
                ),
                text_offset=at,
            )
            for at, token in enumerate(token_ids[1:], start=1)
        ]
        yield scoring_pb2.ScoreResponse(token_ids=token_ids[1:], logprobs=likely)

    def ListModels(  # noqa: N802
        self,
        request: served_model_pb2.ListModelsRequest,  # noqa: ARG002
        context: grpc.ServicerContext,
    ) -> served_model_pb2.ListModelsResponse:
        self._mesh.called(context)
        model = served_model_pb2.ServedModel(num_verifiers=1, has_chat_template=True)
        model.target.name = MODEL
        return served_model_pb2.ListModelsResponse(models=[model])


class _Tokenizer(TokenizerServiceServicer):
    def __init__(self, mesh: FakeMesh) -> None:
        self._mesh = mesh

    def Tokenize(  # noqa: N802
        self, request: tokenizer_pb2.TokenizeRequest, context: grpc.ServicerContext
    ) -> tokenizer_pb2.TokenizeResponse:
        self._mesh.called(context)
        return tokenizer_pb2.TokenizeResponse(token_ids=request.text.encode())

    def Detokenize(  # noqa: N802
        self, request: tokenizer_pb2.DetokenizeRequest, context: grpc.ServicerContext
    ) -> tokenizer_pb2.DetokenizeResponse:
        self._mesh.called(context)
        text = bytes(each % 256 for each in request.token_ids).decode(errors="replace")
        strings = [chr(each % 256) for each in request.token_ids if request.include_token_strings]
        return tokenizer_pb2.DetokenizeResponse(text=text, token_strings=strings)

    def ApplyChatTemplate(  # noqa: N802
        self, request: tokenizer_pb2.ApplyChatTemplateRequest, context: grpc.ServicerContext
    ) -> tokenizer_pb2.ApplyChatTemplateResponse:
        self._mesh.called(context)
        lines = [f"{each.role}: {each.content}" for each in request.chat.messages]
        if not request.chat.continue_final_message:
            lines.append("assistant:")
        text = "\n".join(lines)
        return tokenizer_pb2.ApplyChatTemplateResponse(text=text, token_ids=text.encode())
