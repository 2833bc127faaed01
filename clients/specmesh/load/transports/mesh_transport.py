"""The transport to a mesh, through the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from specmesh.client import (
    AsyncClient,
    DeadlineExceeded,
    GenerationStats,
    GenerationStream,
    SpecmeshError,
    Timeouts,
)
from specmesh.load.transports.observation import MeshWork
from specmesh.load.transports.transport import Heard, LoadRequest, RequestFailed, Served, Told

_LONGEST_S = 3600.0


@dataclass(frozen=True, slots=True)
class MeshDoor:
    """The addresses of orchestrators, ``host:port``, and how to call them.

    ``connection`` has the client's keywords for TLS and tokens. ``max_retries`` is how many times
    the SDK retries a start that an orchestrator refused or did not answer. Above 0 the load is no
    longer an open loop, but what users of the SDK experience.
    """

    targets: tuple[str, ...]
    model: str = ""
    chat: bool = False
    max_retries: int = 0
    connection: Mapping[str, Any] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """Return a name such as ``gRPC 127.0.0.1:50051``."""
        return f"gRPC {', '.join(self.targets)}"

    def asking_for(self, model: str) -> MeshDoor:
        """Return a copy for that model."""
        return replace(self, model=model)

    def open(self) -> MeshTransport:
        """Create a transport with its own client."""
        return MeshTransport(self)


class MeshTransport:
    """A transport that sends requests through an ``AsyncClient``."""

    def __init__(self, door: MeshDoor) -> None:
        self._door = door
        self._client = AsyncClient(
            *door.targets,
            max_retries=door.max_retries,
            # Only a request's own deadline may end it: a long wait is a result, too.
            timeouts=Timeouts(start_s=_LONGEST_S, idle_s=_LONGEST_S),
            **door.connection,
        )

    async def ask(self, call: LoadRequest, heard: Heard) -> Told | None:
        """Read an answer to its end; return None if ``heard`` cancelled it. Raises
        RequestFailed."""
        stream = self._stream(call)
        try:
            async with stream:
                async for chunk in stream:
                    if not heard(len(chunk.token_ids), chunk.text):
                        return None
        except SpecmeshError as error:
            raise _failed(error) from error
        result = stream.result
        stats = result.stats
        return Told(
            num_prompt_tokens=stats.num_prompt_tokens,
            num_output_tokens=len(result.token_ids),
            num_resumes=result.num_resumes,
            work=_work(stats),
        )

    async def served(self) -> Served:
        """Call ``ListModels``. Raises RequestFailed."""
        try:
            models = await self._client.list_models()
        except SpecmeshError as error:
            raise _failed(error) from error
        if not models:
            raise RequestFailed(
                "UNAVAILABLE", "the mesh serves no model yet: it has reached no verifier"
            )
        return Served(self._door.model or models[0].target.name, has_strategies=True)

    async def count_tokens(self, text: str) -> int:
        """Count tokens with the mesh's tokenizer. Raises RequestFailed."""
        try:
            return len(await self._client.tokenize(text, model=self._door.model))
        except SpecmeshError as error:
            raise _failed(error) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._client.aclose()

    def _stream(self, call: LoadRequest) -> GenerationStream:
        given: dict[str, Any] = {
            **call.variation.options,
            **call.variation.sampling,
            "model": self._door.model,
            "strategy": call.variation.strategy,
            "max_tokens": call.max_tokens,
            "ignore_end_of_text": call.ignore_end,
            "seed": call.sampling_seed,
            "timeout_s": call.timeout_s,
        }
        if self._door.chat:
            return self._client.chat(messages(call.said, call.system), **given)
        return self._client.generate("".join(call.said), **given)


def messages(said: tuple[str, ...], system: tuple[str, ...] = ()) -> list[dict[str, str]]:
    """Return what was said, behind the ``system`` messages, as the messages of a chat."""
    roles = ("user", "assistant")
    spoken = [(roles[n % 2], text) for n, text in enumerate(said)]
    listed = [*(("system", text) for text in system), *spoken]
    return [{"role": role, "content": text} for role, text in listed]


def _work(stats: GenerationStats) -> MeshWork:
    return MeshWork(
        num_verify_calls=stats.num_verify_calls,
        num_target_tokens=stats.num_target_tokens,
        num_drafted_tokens=stats.num_drafted_tokens,
        num_verified_tokens=stats.num_verified_tokens,
        num_accepted_tokens=stats.num_accepted_tokens,
        num_wasted_tokens=stats.num_wasted_tokens,
    )


def _failed(error: SpecmeshError) -> RequestFailed:
    """Map an SDK error to its reason: a deadline to its status, whichever side it passed on first,
    any other error to the mesh's reason."""
    late = isinstance(error, DeadlineExceeded)
    reason = error.code.name if late else error.reason or error.code.name
    return RequestFailed(reason, str(error), error.retry_after_s)
