"""The asynchronous client: its targets, and the calls to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import grpc

from specmesh.client.answers.batches import answer_all
from specmesh.client.answers.resumable import Asked
from specmesh.client.answers.scores import TextScore, score_from
from specmesh.client.answers.served_models import ServedModel, served_model_from
from specmesh.client.answers.sessions import SavedSession, Session, session_from
from specmesh.client.answers.stream import GenerationStream
from specmesh.client.answers.values import (
    GenerationResult,
)
from specmesh.client.connections.addresses import targets_or_default
from specmesh.client.connections.arguments import (
    check_count,
    check_interceptors,
    check_kind,
    checked_channel_options,
)
from specmesh.client.connections.channels import ChannelSettings
from specmesh.client.connections.credentials import Tls, TokenSource, is_loopback
from specmesh.client.connections.metadata import MetadataSource
from specmesh.client.connections.recovery import RetryPolicy
from specmesh.client.connections.targets import ClientTargets
from specmesh.client.connections.timeouts import LONGEST_S, Timeouts, check_interval, check_seconds
from specmesh.client.connections.unary import Invoke, R, call
from specmesh.client.errors import SpecmeshError
from specmesh.client.hooks import Hooks
from specmesh.client.requests.build import (
    ChatOptions,
    GenerateOptions,
    Prompt,
    chat_message,
    generate_request,
)
from specmesh.client.requests.chats import ChatMessage
from specmesh.client.requests.filled import filled
from specmesh.client.tokenizer import TokenizerCalls
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1 import scoring_pb2, served_model_pb2, session_pb2


class AsyncClient(TokenizerCalls):
    """Talks to a mesh through one or more orchestrators (``host:port``).

    ``targets`` default to the addresses in the environment variable SPECMESH_TARGET, separated by
    spaces, and without it to ``127.0.0.1:50051``; the default port is 50051. Raises ValueError for
    a target that is not an address, such as a URL, and TypeError or ValueError for another wrong
    argument, naming it.

    Calls start at the targets in turn (round robin) and skip a target that can't be reached. If
    all are unreachable or overloaded, the first call of an answer is retried ``max_retries``
    times, with exponential backoff or after the delay that the mesh asks for. If a stream
    breaks, the next target resumes it, then the others in turn with exponential backoff, until
    ``max_resumes`` calls in a row have brought no token. The default lasts about 20 s, long
    enough for a lone orchestrator to restart.

    Each event loop that uses the client has connections of its own, made on first use, so a
    client may be a global. It is cheap to share and safe to use from many tasks; ``async with``
    closes the connections of its event loop. ``tls``, ``token`` and ``metadata`` identify the
    caller. Without TLS a token is sent only to this machine, unless ``send_token_in_clear_text``
    is set. ``metadata`` may be a function, which is called before each call, in the task that makes
    it. ``interceptors`` are grpc.aio's; ``channel_options`` are gRPC's and override the client's.

    With ``share_calls`` answers that are under way together share a call (GenerateMany), which
    takes less of both sides' processor time: for a program that reads tens of answers at once, such
    as a gateway. A proxy that distributes calls then sees one call instead of many answers.
    ``interceptors`` can't be used with it.
    """

    def __init__(
        self,
        *targets: str,
        tls: Tls | None = None,
        token: TokenSource | None = None,
        send_token_in_clear_text: bool = False,
        metadata: MetadataSource = (),
        interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
        channel_options: Sequence[tuple[str, str | int]] = (),
        timeouts: Timeouts | None = None,
        max_retries: int = 5,
        max_resumes: int = 12,
        hooks: Hooks | None = None,
        share_calls: bool = False,
    ) -> None:
        check_kind("tls", tls, Tls | None, "a Tls")
        check_kind("token", token, str | Callable | None, "a string or a function")
        check_kind("timeouts", timeouts, Timeouts | None, "a Timeouts")
        check_kind("hooks", hooks, Hooks | None, "a Hooks")
        check_interceptors(interceptors)
        options = checked_channel_options(channel_options)
        check_count("max_retries", max_retries)
        check_count("max_resumes", max_resumes)
        check_kind("share_calls", share_calls, bool, "True or False")
        if share_calls and interceptors:
            raise ValueError("share_calls: interceptors would not see the single answers")
        targets = targets_or_default(targets)
        remote = [target for target in targets if not is_loopback(target)]
        if token is not None and tls is None and remote and not send_token_in_clear_text:
            raise ValueError(
                f"a token would be sent to {remote[0]} in clear text: pass tls, "
                "or send_token_in_clear_text=True"
            )
        self._timeouts = timeouts or Timeouts()
        self._max_retries = max_retries
        self._max_resumes = max_resumes
        self._hooks = hooks or Hooks()
        settings = ChannelSettings(
            tls=tls,
            token=token,
            metadata=metadata,
            interceptors=interceptors,
            options=options,
            connect_s=self._timeouts.connect_s,
            drain_s=self._timeouts.generate_s,
            shares_calls=share_calls,
        )
        self._mesh = ClientTargets(targets, settings)

    def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> GenerationStream:
        """Return a stream of the answer to ``prompt``, which is text or token ids.

        The request is sent when the stream is first read. Raises TypeError for an unknown option
        or a value of the wrong type, and ValueError for a value that no request can hold. The
        stream raises InvalidRequest if the server refuses the request.
        """
        return self._stream(generate_request(prompt, options), None, options)

    def chat(
        self,
        messages: Sequence[ChatMessage | Mapping[str, Any]],
        **options: Unpack[ChatOptions],
    ) -> GenerationStream:
        """Return a stream of the model's next message, prompted by its own chat template.

        The content of a message is its text, or a list of text parts as OpenAI's clients write
        them. Raises as `generate` does.
        """
        chat = chat_message(messages, options)
        return self._stream(generate_request(chat, options), None, options)

    async def complete(
        self, prompt: Prompt, **options: Unpack[GenerateOptions]
    ) -> GenerationResult:
        """Return the whole answer to ``prompt``, as ``await client.generate(prompt, ...)`` does."""
        return await self.generate(prompt, **options)

    async def generate_many(
        self,
        prompts: Iterable[Prompt],
        *,
        concurrency: int = 8,
        **options: Unpack[GenerateOptions],
    ) -> list[GenerationResult | SpecmeshError]:
        """Return the answers to ``prompts``, in their order, each with the same ``options``.

        At most ``concurrency`` requests run concurrently. An error does not end the batch: it
        takes the place of its answer in the list. Raises ValueError for a ``request_id``, which
        belongs to one answer, and raises as `generate` does.
        """
        if options.get("request_id"):
            raise ValueError("a request_id belongs to one answer, not to a batch")
        return await answer_all(
            prompts, lambda prompt: self.generate(prompt, **options), concurrency
        )

    def resume(
        self,
        saved: SavedSession,
        *,
        chunk_interval_s: float | None = None,
        timeout_s: float | None = None,
    ) -> GenerationStream:
        """Return a stream of the rest of an answer; its ``text`` begins with the saved text.

        Resuming takes the session over from any other reader. ``saved`` is a stream's
        ``session``, possibly from another process, or is made of a session's id and resume token.
        """
        request = pb.GenerateRequest.FromString(saved.request)
        options = GenerateOptions(chunk_interval_s=chunk_interval_s, timeout_s=timeout_s)
        return self._stream(request, saved, options)

    async def get_session(self, saved: SavedSession) -> Session:
        """Look up the progress of an answer; ``saved`` is as for `resume`.

        Raises NotFound, or Unavailable if the store is down.
        """
        request = session_pb2.GetSessionRequest(
            session_id=saved.session_id, resume_token=saved.resume_token
        )
        response = await self._call(
            lambda target, timeout, metadata: target.generation.GetSession(
                request, timeout=timeout, metadata=metadata
            )
        )
        return session_from(response.session)

    async def cancel_session(self, saved: SavedSession) -> None:
        """Cancel an answer; a stream that reads it raises SessionCancelled.

        ``saved`` is as for `resume`. Raises NotFound, or Unavailable if the store is down.
        """
        request = session_pb2.CancelSessionRequest(
            session_id=saved.session_id, resume_token=saved.resume_token
        )
        await self._call(
            lambda target, timeout, metadata: target.generation.CancelSession(
                request, timeout=timeout, metadata=metadata
            )
        )

    async def score(
        self,
        prompt: Prompt,
        *,
        num_top_logprobs: int = 0,
        add_special_tokens: bool | None = None,
        cache_salt: str = "",
        model: str = "",
        timeout_s: float | None = None,
    ) -> TextScore:
        """Return how likely the target finds each token of ``prompt``, given those before it, and
        the ``num_top_logprobs`` likeliest tokens at its position. The other arguments are as for
        `generate`. Raises as its stream does."""
        asked = generate_request(prompt, {"add_special_tokens": add_special_tokens, "model": model})
        request = filled(
            scoring_pb2.ScoreRequest,
            model=asked.model,
            text=asked.text if asked.HasField("text") else None,
            tokens={"token_ids": asked.tokens.ids} if asked.HasField("tokens") else None,
            add_special_tokens=add_special_tokens,
            num_top_logprobs=num_top_logprobs,
            cache_salt=cache_salt,
        )
        limits = self._limits(self._timeouts.generate_s if timeout_s is None else timeout_s)
        return await call(
            *(self._mesh.here().in_turn(), limits, self._hooks),
            lambda target, timeout, metadata: score_from(
                target.generation.Score(request, timeout=timeout, metadata=metadata)
            ),
        )

    async def list_models(self) -> tuple[ServedModel, ...]:
        """Return the models that the mesh serves."""
        models: list[ServedModel] = []
        page = served_model_pb2.ListModelsRequest()
        while True:
            response = await self._list_models(page)
            models += map(served_model_from, response.models)
            if not response.next_page_token:
                return tuple(models)
            page = served_model_pb2.ListModelsRequest(page_token=response.next_page_token)

    async def aclose(self) -> None:
        """Close this event loop's connections; streams that are still being read are cancelled, as
        are other calls, which raise Cancelled."""
        await self._mesh.aclose()

    async def suspend(self) -> None:
        """Break this event loop's calls and start none until `reopen`, when answers resume."""
        await self._mesh.suspend()

    def reopen(self) -> None:
        """Let calls of this event loop start again."""
        self._mesh.reopen()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _stream(
        self,
        request: pb.GenerateRequest,
        saved: SavedSession | None,
        options: GenerateOptions | ChatOptions,
    ) -> GenerationStream:
        timeout_s, interval_s = options.get("timeout_s"), options.get("chunk_interval_s")
        limits = self._limits(self._timeouts.generate_s if timeout_s is None else timeout_s)
        if interval_s is not None:
            check_interval("chunk_interval_s", interval_s)
        asked = Asked(request, saved, limits, self._hooks, interval_s)
        return GenerationStream(lambda: self._mesh.here().in_turn(), asked)

    async def _call(self, invoke: Invoke[R]) -> R:
        limits = self._limits(self._timeouts.call_s)
        return await call(self._mesh.here().in_turn(), limits, self._hooks, invoke)

    async def _list_models(
        self, request: served_model_pb2.ListModelsRequest
    ) -> served_model_pb2.ListModelsResponse:
        return await self._call(
            lambda target, timeout, metadata: target.generation.ListModels(
                request, timeout=timeout, metadata=metadata
            )
        )

    def _limits(self, timeout_s: float) -> RetryPolicy:
        check_seconds("timeout_s", timeout_s)
        return RetryPolicy(
            timeout_s=min(timeout_s, LONGEST_S),
            start_s=self._timeouts.start_s,
            idle_s=self._timeouts.idle_s,
            num_targets=self._mesh.num_targets,
            max_retries=self._max_retries,
            max_resumes=self._max_resumes,
        )
