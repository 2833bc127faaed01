"""Tokenizes prompts: sizes are checked first, and long texts do not block the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.target import Target
from specmesh.serving.errors import ResourceExhausted
from specmesh.serving.wire import check_tokens
from specmesh.v1 import generation_pb2

INLINE_CHARS = 2048
"""A text this short is tokenized in about a millisecond; a thread costs more than it saves."""
MAX_AT_WORK = 2
"""Long texts that are tokenized at once."""
MAX_WAITING = 16
"""Long texts that wait for that; one more is refused."""
RETRY_SECONDS = 1.0


class PromptReader:
    """Tokenizes the prompts of one orchestrator, the long ones in a few threads of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MAX_AT_WORK, thread_name_prefix="tokenize")
        self._under_way: set[Future[tuple[int, ...]]] = set()

    async def read(
        self, request: generation_pb2.GenerateRequest, target: Target
    ) -> tuple[int, ...]:
        """The prompt's tokens: at least one, and fewer than the context holds.

        Raises ``InvalidField``, and ``ResourceExhausted`` with reason OVERLOADED when too many
        long texts wait.
        """
        match request.WhichOneof("prompt"):
            case "tokens":
                ids = request.tokens.ids
                _check_room("tokens.ids", len(ids), target)
                check_tokens("tokens.ids", ids, target.info.vocab_size)
                return tuple(ids)
            case "text":
                return await self._tokenized(request.text, target)
            case _:
                raise InvalidField("prompt", "must be set, as text or as tokens")

    async def _tokenized(self, text: str, target: Target) -> tuple[int, ...]:
        _check_length(text, target)
        if len(text) <= INLINE_CHARS:
            return _encoded(text, target)
        if len(self._under_way) >= MAX_AT_WORK + MAX_WAITING:
            raise ResourceExhausted(
                "OVERLOADED",
                f"{len(self._under_way)} long texts are being tokenized already",
                retry_after_s=RETRY_SECONDS,
            )
        # A text whose client has gone counts until its thread has finished with it.
        work = self._threads.submit(_encoded, text, target)
        self._under_way.add(work)
        loop = asyncio.get_running_loop()
        work.add_done_callback(
            lambda done: loop.call_soon_threadsafe(self._under_way.discard, done)
        )
        return await asyncio.wrap_future(work)


def _encoded(text: str, target: Target) -> tuple[int, ...]:
    # Unlike ``encode``, this lets other threads run meanwhile.
    (encoding,) = target.tokenizer.encode_batch([text])
    _check_room("text", len(encoding), target)
    return tuple(encoding.ids)


def _check_length(text: str, target: Target) -> None:
    """Refuse a text that cannot fit the context, even if all its tokens were the longest."""
    most = target.longest_token_bytes * target.info.context_tokens
    length = len(text) if len(text) > most else len(text.encode())
    if length > most:
        raise InvalidField(
            "text",
            f"{length} bytes or more are beyond the {most} that {target.info.context_tokens} "
            f"tokens of at most {target.longest_token_bytes} bytes can hold",
        )


def _check_room(field: str, num_tokens: int, target: Target) -> None:
    if not num_tokens:
        raise InvalidField(field, "must not be empty")
    if num_tokens >= target.info.context_tokens:
        raise InvalidField(
            field,
            f"{num_tokens} tokens leave no room in the context of {target.info.context_tokens}",
        )
