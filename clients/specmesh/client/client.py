"""The client: where to call, and the calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import grpc

from specmesh.client.answers import ServedModel, served_model_from
from specmesh.client.errors import Unavailable
from specmesh.client.recovery import Limits
from specmesh.client.requests import (
    AcceptanceMode,
    Filter,
    generate_request,
    sampling_parameters,
    speculation_options,
)
from specmesh.client.status import from_rpc_error
from specmesh.client.stream import GenerationStream
from specmesh.client.targets import Endpoint, Targets
from specmesh.client.timeouts import Timeouts
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1 import sampling_pb2
from specmesh.v1.generation_pb2_grpc import GenerationServiceStub


class Client:
    """Talks to a mesh through one or more orchestrators (``host:port``).

    Calls start at the targets in turn. One that can't be reached is passed over. A stream
    that breaks is carried on by the next, and with growing pauses by one after the other,
    until ``max_resumes`` calls in a row have brought no token: at the default that takes
    some 10 s, time enough for a lone orchestrator to start anew.

    Use it in one event loop, as ``async with Client(...) as client``; it is cheap to share
    and safe to use from many tasks.
    """

    def __init__(
        self, *targets: str, timeouts: Timeouts | None = None, max_resumes: int = 12
    ) -> None:
        if not targets:
            raise ValueError("a client needs at least one target, host:port")
        self._timeouts = timeouts or Timeouts()
        self._max_resumes = max_resumes
        self._channels = [_channel(target, self._timeouts.connect_s) for target in targets]
        self._targets = Targets(
            [
                Endpoint(address, GenerationServiceStub(channel))
                for address, channel in zip(targets, self._channels, strict=True)
            ]
        )

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        acceptance_mode: AcceptanceMode | str | None = None,
        max_tokens: int | None = None,
        stop_token_ids: Sequence[int] = (),
        stop_strings: Sequence[str] = (),
        ignore_end_of_text: bool = False,
        strategy: str = "",
        filter: Filter | None = None,  # noqa: A002 - what the wire and the strategy call it
        model: str = "",
        timeout_s: float | None = None,
        **options: float | str | None,
    ) -> GenerationStream:
        """The answer to ``prompt``, text or token ids, as a stream; None takes the default.

        ``options`` are those of the strategy, named as in the protocol's ``SpeculationOptions``:
        ``lookahead=4``, ``num_branches=2``, ``predictor="phi"``. ``timeout_s`` limits the whole
        answer, resumes included; by default ``Timeouts.generate_s``.

        Raises TypeError for an option that there isn't and ValueError for a value that no request
        can hold; what the server refuses comes from the stream, as InvalidRequest.
        """
        request = generate_request(
            prompt,
            model=model,
            sampling=sampling_parameters(temperature, top_k, top_p, seed, acceptance_mode),
            stopping=sampling_pb2.StoppingCriteria(
                max_tokens=max_tokens,
                stop_token_ids=stop_token_ids,
                stop_strings=stop_strings,
                ignore_end_of_text=ignore_end_of_text,
            ),
            speculation=speculation_options(strategy, filter, options),
        )
        limits = Limits(
            timeout_s=self._timeouts.generate_s if timeout_s is None else timeout_s,
            start_s=self._timeouts.start_s,
            idle_s=self._timeouts.idle_s,
            max_starts=len(self._targets),
            max_resumes=self._max_resumes,
        )
        return GenerationStream(self._targets.in_turn(), request, limits)

    async def list_models(self) -> tuple[ServedModel, ...]:
        """The models served, from the first target that answers."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeouts.list_models_s
        targets = self._targets.in_turn()
        for num_left in reversed(range(len(self._targets))):
            try:
                response = await next(targets).stub.ListModels(
                    pb.ListModelsRequest(), timeout=max(deadline - loop.time(), 0)
                )
                break
            except grpc.aio.AioRpcError as error:
                mapped = from_rpc_error(error)
                if num_left == 0 or not isinstance(mapped, Unavailable):
                    raise mapped from error
        return tuple(map(served_model_from, response.models))

    async def aclose(self) -> None:
        """Close the connections; whoever still reads a stream sees it cancelled."""
        for channel in self._channels:
            await channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


def _channel(target: str, connect_s: float) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(
        target,
        options=(
            # Despite its name this one limits an attempt to connect; the other two make a
            # target that restarts usable again at once.
            ("grpc.min_reconnect_backoff_ms", int(connect_s * 1000)),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
            # An orchestrator that is frozen or cut off is noticed within 4 s, also by calls
            # that have not been answered yet.
            ("grpc.keepalive_time_ms", 2_000),
            ("grpc.keepalive_timeout_ms", 2_000),
            ("grpc.http2.ping_timeout_ms", 2_000),
            ("grpc.http2.max_pings_without_data", 0),
        ),
    )
