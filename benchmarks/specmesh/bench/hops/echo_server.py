"""The baseline: a bare grpc.aio server that answers Verify with the same few bytes each time.

It shares nothing but the wire format with a verifier: no checks, no interceptors, no queue.
``python -m specmesh.bench.hops.echo_server``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator

import grpc

from specmesh.mesh.v1alpha1 import verifier_pb2 as pb
from specmesh.mesh.v1alpha1 import verifier_pb2_grpc


class EchoServicer(verifier_pb2_grpc.VerifierServiceServicer):
    """Accepts four draft tokens, whatever the request."""

    async def Verify(  # noqa: N802
        self,
        request: pb.VerifyRequest,  # noqa: ARG002
        context: grpc.aio.ServicerContext[pb.VerifyRequest, pb.VerifyResponse],  # noqa: ARG002
    ) -> pb.VerifyResponse:
        """Answer a request."""
        return _answer()

    async def VerifyEach(  # noqa: N802
        self,
        request_iterator: AsyncIterator[pb.VerifyEachRequest],
        context: grpc.aio.ServicerContext[  # noqa: ARG002
            pb.VerifyEachRequest, pb.VerifyEachResponse
        ],
    ) -> AsyncIterator[pb.VerifyEachResponse]:
        """Answer every request of an open call."""
        async for _ in request_iterator:
            yield pb.VerifyEachResponse(response=_answer())

    async def VerifyMany(  # noqa: N802
        self,
        request_iterator: AsyncIterator[pb.VerifyManyRequest],
        context: grpc.aio.ServicerContext[  # noqa: ARG002
            pb.VerifyManyRequest, pb.VerifyManyResponse
        ],
    ) -> AsyncIterator[pb.VerifyManyResponse]:
        """Answer all requests of a message with one message."""
        async for message in request_iterator:
            response = pb.VerifyEachResponse(response=_answer())
            yield pb.VerifyManyResponse(
                responses=[
                    pb.NumberedVerifyResponse(number=each.number, response=response)
                    for each in message.requests
                ]
            )


def _answer() -> pb.VerifyResponse:
    response = pb.VerifyResponse(
        accepted_nodes=[1, 2, 3, 4], next_token_kind=pb.NEXT_TOKEN_KIND_BONUS
    )
    response.cost.queue_ms = response.cost.forward_ms = 0.01
    response.cost.num_computed_tokens = 5
    return response


async def main() -> None:
    """Serve until killed."""
    server = grpc.aio.server()
    verifier_pb2_grpc.add_VerifierServiceServicer_to_server(EchoServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    line = {"event": "serving", "address": f"127.0.0.1:{port}"}
    sys.stderr.write(json.dumps(line) + "\n")
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
