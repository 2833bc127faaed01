"""A bare grpc.aio relay, and the server that it relays to: ``python -m
specmesh.bench.capacity.relay [ADDRESS]``.

A client asks the relay for a number of steps, in eight bytes. In each step the relay sends a
message to the server at ADDRESS on an open call, reads its answer, and sends a message to the
client, as an orchestrator does for a token of the target. It shares nothing with one but gRPC, the
event loop and the sizes of messages. Without ADDRESS this is that server.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator

import grpc

from specmesh.serving.process.server_loop import run

SERVICE = "specmesh.bench.Relay"
STEPS = "Steps"
ANSWER = "Answer"
LENGTH_BYTES = 8

# As large as messages of an orchestrator are on average: a VerifyEachRequest or DraftEachRequest
# that names its prefix by a digest, its response, and a GenerateResponse with a token or a few.
REQUEST = bytes(100)
RESPONSE = bytes(30)
CHUNK = bytes(55)

_Context = grpc.aio.ServicerContext[bytes, bytes]


async def answer_steps(
    requests: AsyncIterator[bytes],
    context: _Context,  # noqa: ARG001
) -> AsyncIterator[bytes]:
    """Answer each message of an open call, as the server behind the relay."""
    async for _ in requests:
        yield RESPONSE


class Relay:
    """Relays steps to the server behind ``channel``."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._open: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            f"/{SERVICE}/{STEPS}"
        )

    async def answer(self, request: bytes, context: _Context) -> AsyncIterator[bytes]:  # noqa: ARG002
        """Answer a client."""
        call = self._open()
        for _ in range(int.from_bytes(request)):
            await call.write(REQUEST)
            await call.read()
            yield CHUNK
        await call.done_writing()


async def serve(address: str | None) -> None:
    """Serve until killed."""
    server = grpc.aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]]
    if address is None:
        handlers = {STEPS: grpc.stream_stream_rpc_method_handler(answer_steps)}
    else:
        relay = Relay(grpc.aio.insecure_channel(address))
        handlers = {ANSWER: grpc.unary_stream_rpc_method_handler(relay.answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    line = {"event": "serving", "address": f"127.0.0.1:{port}"}
    sys.stderr.write(json.dumps(line) + "\n")
    await server.wait_for_termination()


if __name__ == "__main__":
    run(serve(sys.argv[1] if len(sys.argv) > 1 else None))
