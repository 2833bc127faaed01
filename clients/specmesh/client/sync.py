"""The synchronous client, which drives the asynchronous one from any thread."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

import grpc

from specmesh.client.answers.scores import TextScore
from specmesh.client.answers.served_models import ServedModel
from specmesh.client.answers.sessions import SavedSession, Session
from specmesh.client.answers.stream import GenerationStream
from specmesh.client.answers.values import (
    ChatPrompt,
    Chunk,
    GenerationResult,
    GenerationStats,
)
from specmesh.client.background import background
from specmesh.client.client import AsyncClient
from specmesh.client.connections.credentials import Tls, TokenSource
from specmesh.client.connections.metadata import MetadataSource
from specmesh.client.connections.timeouts import Timeouts
from specmesh.client.errors import SpecmeshError
from specmesh.client.hooks import Hooks
from specmesh.client.requests.build import (
    ChatOptions,
    GenerateOptions,
    Prompt,
    TemplateOptions,
)
from specmesh.client.requests.chats import ChatMessage


class ClientOptions(TypedDict, total=False):
    """The keyword arguments of `AsyncClient`, which documents them."""

    tls: Tls | None
    token: TokenSource | None
    send_token_in_clear_text: bool
    metadata: MetadataSource
    interceptors: Sequence[grpc.aio.ClientInterceptor]
    channel_options: Sequence[tuple[str, str | int]]
    timeouts: Timeouts | None
    max_retries: int
    max_resumes: int
    hooks: Hooks | None
    share_calls: bool


class BlockingStream:
    """The chunks of one answer: iterate once with ``for chunk in stream``, or call `complete`.

    It has the properties of `GenerationStream`. Leaving the loop early cancels all work behind
    it, and so does `close`, from any thread; reading on after that raises Cancelled. It can be read
    only in the process that created it; after a fork the parent reads on.
    """

    def __init__(self, stream: GenerationStream) -> None:
        self._stream = stream
        self._pid = os.getpid()

    @property
    def text(self) -> str:
        """The text read so far. Raises RuntimeError before the first step of reading."""
        return self._stream.text

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens read so far. Raises RuntimeError before the first step of reading."""
        return self._stream.token_ids

    @property
    def message(self) -> ChatMessage:
        """The model's message read so far. Raises RuntimeError before the first step of reading."""
        return self._stream.message

    @property
    def session_id(self) -> str:
        """The answer's id in logs and traces; empty before it has begun."""
        return self._stream.session_id

    @property
    def seed(self) -> int | None:
        """The seed in use, given or drawn; None before the answer has begun."""
        return self._stream.seed

    @property
    def num_prompt_tokens(self) -> int | None:
        """The number of tokens of the prompt; None before the answer has begun."""
        return self._stream.num_prompt_tokens

    @property
    def stats(self) -> GenerationStats | None:
        """Tokens, calls and times up to the latest chunk; None before the first chunk."""
        return self._stream.stats

    @property
    def session(self) -> SavedSession | None:
        """The state to resume the answer from here, in any process; None before it has begun."""
        return self._stream.session

    @property
    def result(self) -> GenerationResult:
        """The whole answer. Raises RuntimeError before the stream has ended."""
        return self._stream.result

    def complete(self) -> GenerationResult:
        """Read the answer to its end."""
        self._check_process()
        return background.run(_whole(self._stream))

    def close(self) -> None:
        """Cancel the answer and all work behind it; does nothing after the end."""
        if self._pid == os.getpid():
            background.close(self._stream.aclose())

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise RuntimeError("a stream can be read only in the process that created it")

    def __iter__(self) -> Iterator[Chunk]:
        self._check_process()
        chunks = self._stream.__aiter__()
        try:
            while (chunk := background.run(_next(chunks))) is not None:
                yield chunk
        except GeneratorExit:
            if self._pid == os.getpid():
                background.abandon(chunks.aclose())
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Client:
    """The blocking form of `AsyncClient`: the same calls, from any thread, even across a fork.

    It may be a global; ``with`` closes its connections. Connections, hooks and interceptors run
    in an event loop in a background thread, which all clients of the process share.
    KeyboardInterrupt cancels the call that is being waited for.

    After ``os.fork``, as in the workers of pre-forking servers, both parent and child may keep
    using the client: connections are closed before the fork and reopened on both sides, and
    answers that are being read continue in the parent. If other code uses grpc.aio during the
    fork, such as an `AsyncClient` with open connections, gRPC can't be used in the child.
    """

    def __init__(self, *targets: str, **options: Unpack[ClientOptions]) -> None:
        self._client = AsyncClient(*targets, **options)
        background.serves(self._client)

    def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> BlockingStream:
        """See `AsyncClient.generate`."""
        return BlockingStream(self._client.generate(prompt, **options))

    def chat(
        self,
        messages: Sequence[ChatMessage | Mapping[str, Any]],
        **options: Unpack[ChatOptions],
    ) -> BlockingStream:
        """See `AsyncClient.chat`."""
        return BlockingStream(self._client.chat(messages, **options))

    def complete(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> GenerationResult:
        """See `AsyncClient.complete`."""
        return background.run(self._client.complete(prompt, **options))

    def generate_many(
        self,
        prompts: Iterable[Prompt],
        *,
        concurrency: int = 8,
        **options: Unpack[GenerateOptions],
    ) -> list[GenerationResult | SpecmeshError]:
        """See `AsyncClient.generate_many`. The caller's thread reads all ``prompts`` first."""
        if not isinstance(prompts, str | bytes):  # one prompt, which is refused
            # Reading them may take long, or call this client: that must not stop the shared loop.
            prompts = tuple(prompts)
        many = self._client.generate_many(prompts, concurrency=concurrency, **options)
        return background.run(many)

    def resume(
        self,
        saved: SavedSession,
        *,
        chunk_interval_s: float | None = None,
        timeout_s: float | None = None,
    ) -> BlockingStream:
        """See `AsyncClient.resume`."""
        rest = self._client.resume(saved, chunk_interval_s=chunk_interval_s, timeout_s=timeout_s)
        return BlockingStream(rest)

    def get_session(self, saved: SavedSession) -> Session:
        """See `AsyncClient.get_session`."""
        return background.run(self._client.get_session(saved))

    def cancel_session(self, saved: SavedSession) -> None:
        """See `AsyncClient.cancel_session`."""
        background.run(self._client.cancel_session(saved))

    def score(
        self,
        prompt: Prompt,
        *,
        num_top_logprobs: int = 0,
        add_special_tokens: bool | None = None,
        cache_salt: str = "",
        model: str = "",
        timeout_s: float | None = None,
    ) -> TextScore:
        """See `AsyncClient.score`."""
        return background.run(
            self._client.score(
                prompt,
                num_top_logprobs=num_top_logprobs,
                add_special_tokens=add_special_tokens,
                cache_salt=cache_salt,
                model=model,
                timeout_s=timeout_s,
            )
        )

    def tokenize(
        self, text: str, *, add_special_tokens: bool | None = None, model: str = ""
    ) -> tuple[int, ...]:
        """See `AsyncClient.tokenize`."""
        return background.run(
            self._client.tokenize(text, add_special_tokens=add_special_tokens, model=model)
        )

    def detokenize(
        self, token_ids: Sequence[int], *, keep_special_tokens: bool = False, model: str = ""
    ) -> str:
        """See `AsyncClient.detokenize`."""
        return background.run(
            self._client.detokenize(token_ids, keep_special_tokens=keep_special_tokens, model=model)
        )

    def token_strings(self, token_ids: Sequence[int], *, model: str = "") -> tuple[str, ...]:
        """See `AsyncClient.token_strings`."""
        return background.run(self._client.token_strings(token_ids, model=model))

    def apply_chat_template(
        self,
        messages: Sequence[ChatMessage | Mapping[str, Any]],
        *,
        model: str = "",
        **template: Unpack[TemplateOptions],
    ) -> ChatPrompt:
        """See `AsyncClient.apply_chat_template`."""
        return background.run(self._client.apply_chat_template(messages, model=model, **template))

    def list_models(self) -> tuple[ServedModel, ...]:
        """See `AsyncClient.list_models`."""
        return background.run(self._client.list_models())

    def close(self) -> None:
        """Close the connections; streams that are still being read are cancelled."""
        background.close(self._client.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


async def _whole(stream: GenerationStream) -> GenerationResult:
    """Return the result of a stream of which nobody reads single chunks."""
    return await stream


async def _next(chunks: AsyncGenerator[Chunk, None]) -> Chunk | None:
    """Return the next chunk; None at the end."""
    return await anext(chunks, None)
