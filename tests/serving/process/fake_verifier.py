"""A server process whose handlers do what ``prefix.session_id`` asks for.

It is told to go on by lines on stdin: one releases whoever waits.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from contextlib import aclosing

import grpc.aio
from opentelemetry import metrics, trace
from pydantic_settings import SettingsConfigDict

from specmesh.decoding.errors import InvalidField
from specmesh.mesh.v1alpha1 import drafter_pb2, drafter_pb2_grpc, verifier_pb2, verifier_pb2_grpc
from specmesh.serving.errors import (
    AbortedStatus,
    FailedPreconditionStatus,
    NotFoundStatus,
    ResourceExhaustedStatus,
    UnavailableStatus,
)
from specmesh.serving.process.command_line import parse
from specmesh.serving.process.server import serve
from specmesh.serving.rpc.interceptors import exchange
from specmesh.serving.settings import ServerSettings
from specmesh.serving.startup import CannotStart
from specmesh.serving.telemetry.pipeline import ClientSpan, annotate

log = logging.getLogger("fake")

ERRORS = {
    "not-found": NotFoundStatus("SESSION_UNKNOWN", "no such session", {"session_id": "s1"}),
    "precondition": FailedPreconditionStatus("PREFIX_UNKNOWN", "send it whole", {"held": "32"}),
    "aborted": AbortedStatus("STALE_EPOCH", "somebody else took it"),
    "exhausted": ResourceExhaustedStatus("QUEUE_FULL", "too many wait", retry_after_s=0.25),
    "unavailable": UnavailableStatus("STORE_AWAY", "no answer from the store"),
    "invalid": InvalidField("tree.parents[2]", "must come earlier"),
    "not-finite": FloatingPointError("no finite maximum: nan"),
    "unexpected": RuntimeError("the secret"),
}


class FakeSettings(ServerSettings):
    model_config = SettingsConfigDict(env_prefix="SPECMESH_FAKE__")

    start: str = "at-once"


class FakeService(
    verifier_pb2_grpc.VerifierServiceServicer, drafter_pb2_grpc.DrafterServiceServicer
):
    role = "verifier"
    names = ("specmesh.mesh.v1alpha1.VerifierService", "specmesh.mesh.v1alpha1.DrafterService")

    def __init__(self, settings: FakeSettings) -> None:
        self._settings = settings
        self._stdin = asyncio.StreamReader()
        self._turn = asyncio.Lock()
        self._calls = metrics.get_meter("fake").create_counter("fake.calls")

    async def start(self) -> None:
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._stdin), sys.stdin
        )
        if self._settings.start == "when-told":
            await self._told()
        elif self._settings.start == "refused":
            raise CannotStart("the folder holds no model")
        elif self._settings.start == "fails":
            raise RuntimeError("no such model")

    def register(self, server: grpc.aio.Server) -> None:
        verifier_pb2_grpc.add_VerifierServiceServicer_to_server(self, server)
        drafter_pb2_grpc.add_DrafterServiceServicer_to_server(self, server)

    async def stop(self) -> None:
        log.info("service stopped")

    async def Verify(self, request, context):  # noqa: N802
        self._calls.add(1)
        await self._act(request.prefix.session_id)
        return verifier_pb2.VerifyResponse(next_token_id=7)

    async def VerifyEach(self, request_iterator, context):  # noqa: N802
        async for message in request_iterator:
            async with exchange(message.trace_context):
                response = await self.Verify(message.request, context)
                yield verifier_pb2.VerifyEachResponse(response=response)

    async def Draft(self, request, context):  # noqa: N802
        try:
            if request.prefix.session_id != "wait-first":
                yield drafter_pb2.DraftResponse(token_ids=[1])
            await self._act(request.prefix.session_id)
            yield drafter_pb2.DraftResponse(token_ids=[2])
        finally:
            log.info("draft closed")

    async def DraftEach(self, request_iterator, context):  # noqa: N802
        async for message in request_iterator:
            async with (
                exchange(message.trace_context),
                aclosing(self.Draft(message.request, context)) as responses,
            ):
                async for response in responses:
                    yield drafter_pb2.DraftEachResponse(response=response)
            yield drafter_pb2.DraftEachResponse(last=True)

    async def _told(self) -> None:
        async with self._turn:
            await self._stdin.readline()

    async def _act(self, wish: str) -> None:
        if wish in ERRORS:
            raise ERRORS[wish]
        if wish.startswith("wait"):
            log.info("waiting")
            try:
                await self._told()
            except asyncio.CancelledError:
                log.info("cancelled")
                raise
        elif wish.startswith("relay "):
            _, address, onward = wish.split(" ", 2)
            await self._relay(address, onward)
        elif wish == "annotate":
            annotate(queue_ms=1.5)
        elif wish == "describe":
            provider = type(trace.get_tracer_provider()).__name__
            threads = [thread.name for thread in threading.enumerate()]
            log.info("described", extra={"provider": provider, "threads": threads})

    async def _relay(self, address: str, wish: str) -> None:
        request = verifier_pb2.VerifyRequest(prefix={"session_id": wish})
        async with grpc.aio.insecure_channel(address) as channel:
            stub = verifier_pb2_grpc.VerifierServiceStub(channel)
            method = "specmesh.mesh.v1alpha1.VerifierService/Verify"
            with ClientSpan(method, address, lambda: {"specmesh.round": 3}) as outgoing:
                await stub.Verify(request, metadata=tuple(outgoing.carrier.items()), timeout=10)


async def main() -> int:
    settings = parse(FakeSettings, sys.argv[1:], "fake-verifier")
    return await serve(settings, FakeService(settings))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
