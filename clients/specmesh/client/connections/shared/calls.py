"""The calls to one orchestrator that carry many answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import grpc

from specmesh.client.connections.metadata import Metadata
from specmesh.client.connections.refusals import CallerMetadata
from specmesh.client.connections.shared.answer import SharedAnswer
from specmesh.client.connections.shared.call import Call, SharedCall
from specmesh.v1 import generation_pb2 as pb

NUM_BEHIND_A_NAME: Final = 8
"""The calls that take turns where a name may stand for several orchestrators: gRPC gives each to
the next of them, with all of its answers."""
MAX_REQUEST_BYTES: Final = 2**20
"""A larger request gets a call of its own, so that others need not wait until it is sent."""
UNKNOWN_S: Final = 60.0
"""The time for which an orchestrator that did not know the method is not asked for it again."""
_AUTHORIZATION: Final = "authorization"

Open = Callable[[Metadata], Call]
"""Opens a call with this metadata."""


class SharedCalls:
    """The open calls to one orchestrator, or to those behind one name, of which ``num_calls`` take
    turns. Callers with different tokens have different calls: the first answer's token opens a
    call, and if it is refused, so are all on it."""

    def __init__(self, num_calls: int) -> None:
        self._num_calls = num_calls
        self._in_turn: dict[CallerMetadata, deque[SharedCall]] = {}
        self._open: set[SharedCall] = set()
        self._unknown_until = 0.0

    def begin(
        self,
        open_call: Open,
        request: pb.GenerateRequest | pb.ResumeRequest,
        metadata: CallerMetadata,
        timeout_s: float,
    ) -> SharedAnswer | None:
        """Ask for an answer with the ``metadata`` and timeout of a call of its own. Return None if
        it needs that."""
        if asyncio.get_running_loop().time() < self._unknown_until:
            return None
        carried = {key: _to_bytes(value) for key, value in metadata}
        if len(carried) < len(metadata) or request.ByteSize() > MAX_REQUEST_BYTES:
            return None
        each = pb.GenerateEachRequest(metadata=carried)
        each.timeout.FromNanoseconds(int(timeout_s * 1e9))
        if isinstance(request, pb.ResumeRequest):
            each.resume.CopyFrom(request)
        else:
            each.generate.CopyFrom(request)
        caller = tuple(pair for pair in metadata if pair[0] == _AUTHORIZATION)
        return self._next(open_call, caller).begin(each, timeout_s)

    def retire(self) -> None:
        """End each call once its answers have ended; further ones get another."""
        self._in_turn.clear()
        for each in self._open:
            each.retire()

    async def aclose(self) -> None:
        """Cancel all calls."""
        self._in_turn.clear()
        await asyncio.gather(*(each.aclose() for each in tuple(self._open)))

    def _next(self, open_call: Open, caller: CallerMetadata) -> SharedCall:
        """Return the call whose turn it is to take an answer of ``caller``."""
        calls = self._in_turn.setdefault(caller, deque())
        if len(calls) < self._num_calls:
            call = self._opened(open_call, caller)
        else:
            call = calls.popleft()
            if not call.is_usable:
                call.retire()
                call = self._opened(open_call, caller)
        calls.append(call)
        return call

    def _opened(self, open_call: Open, caller: CallerMetadata) -> SharedCall:
        def ended(call: SharedCall, code: grpc.StatusCode) -> None:
            self._open.discard(call)
            calls = self._in_turn.get(caller)
            if calls is not None and call in calls:
                calls.remove(call)
                if not calls:
                    del self._in_turn[caller]
            if code is grpc.StatusCode.UNIMPLEMENTED:
                self._unknown_until = asyncio.get_running_loop().time() + UNKNOWN_S

        # An orchestrator that drains refuses requests, and gRPC leads new calls to others.
        call = SharedCall(open_call(caller), ended, self.retire)
        self._open.add(call)
        return call


def _to_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
