"""Calls to the mesh on behalf of one request: retried where that is safe, traced, with deadlines.

Verify is a pure function and a draft only a guess, so both may be retried on any replica. The
deadline of a call is its own limit or that of the request, whichever is earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from opentelemetry.context import Context

from specmesh.orchestrator.replicas.calls.cause import Cause
from specmesh.orchestrator.replicas.calls.command_context import CommandContext
from specmesh.orchestrator.replicas.calls.confidence_calls import ConfidenceCalls
from specmesh.orchestrator.replicas.calls.draft.draft_calls import DraftCalls
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.calls.traced_tokens import TracedTokens
from specmesh.orchestrator.replicas.calls.verify.verify_calls import VerifyCalls
from specmesh.orchestrator.strategies.commands import Assess
from specmesh.orchestrator.strategies.events import Assessed, Capacity, Released


class Calls:
    """All calls of one request to the mesh.

    Calls raise ``AioRpcError`` or ``ServiceError`` once there is no replica left to try, or no
    time.
    """

    def __init__(self, request: RequestContext) -> None:
        self._request = request
        self._assessments = ConfidenceCalls(request)
        self.verifications = VerifyCalls(request)
        self.drafts = DraftCalls(request)

    @property
    def tokens(self) -> TracedTokens | None:
        """Numbers the tokens in the request's trace; None if the trace is not recorded."""
        return self._request.tokens

    @property
    def deadline(self) -> float:
        """Deadline of the request, by the event loop's clock."""
        return self._request.deadline

    @property
    def num_cached_tokens(self) -> int:
        """Tokens that the replica which answered first already held in its KV cache."""
        return self.verifications.num_cached_tokens

    def command_context(self, parent: Context, cause: Cause) -> CommandContext:
        """Return the context of a command issued now."""
        return CommandContext(self._request.prefix.length, parent, cause)

    def capacity(self) -> Capacity:
        """Return the replicas and latencies that strategies may currently count on."""
        mesh = self._request.mesh
        verifiers = mesh.verifiers.usable(self._request.need)
        heads_depth = max([peer.heads_depth for peer in verifiers], default=0)
        return mesh.latencies.capacity(
            len(verifiers),
            mesh.drafters.kinds,
            heads_depth,
            mesh.admission.num_running,
            shares_host=not mesh.verifiers.hosts.isdisjoint(mesh.drafters.hosts),
        )

    @contextmanager
    def watched(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Call ``watcher`` whenever the ready verifiers or drafters may have changed."""
        mesh = self._request.mesh
        with mesh.verifiers.watched(watcher), mesh.drafters.watched(watcher):
            yield

    async def assess(
        self,
        command: Assess,
        context: CommandContext,
        deliver: Callable[[Assessed | Released], None],
    ) -> None:
        """Pass decisions on draft tokens to ``deliver``; see ``ConfidenceCalls.assess``."""
        await self._assessments.assess(command, context, deliver)

    def commit(self, token_ids: Sequence[int]) -> None:
        """Append committed tokens, which will precede the paths of later commands."""
        self._request.prefix.commit(token_ids)
