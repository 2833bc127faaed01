"""Calls to the mesh on behalf of one request: retried where that is safe, traced, with deadlines.

Verify is a pure function and a draft only a guess, so both may be retried on any replica. The
deadline of a call is its own limit or that of the request, whichever is earlier.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from opentelemetry.context import Context

from specmesh.decoding.predict.thresholds import FilterOptions
from specmesh.decoding.sampling import Sampling
from specmesh.orchestrator.admission.controller import Admission
from specmesh.orchestrator.replicas.calls.call_context import CallContext
from specmesh.orchestrator.replicas.calls.cause import Cause
from specmesh.orchestrator.replicas.calls.confidence_calls import ConfidenceCalls
from specmesh.orchestrator.replicas.calls.draft_calls import DraftCalls
from specmesh.orchestrator.replicas.calls.judged_logprobs import JudgedLogprobs
from specmesh.orchestrator.replicas.calls.traced_tokens import TracedTokens
from specmesh.orchestrator.replicas.calls.verify_calls import VerifyCalls
from specmesh.orchestrator.replicas.latencies.running_medians import Latencies
from specmesh.orchestrator.replicas.need import ANY, Need
from specmesh.orchestrator.replicas.pool.replica_pool import Pool
from specmesh.orchestrator.replicas.prefixes.holders import PrefixHolders
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix, salt_of
from specmesh.orchestrator.replicas.retries.hedging import HedgeBudget
from specmesh.orchestrator.strategies.base import (
    Assess,
    Assessed,
    Capacity,
    Draft,
    Drafted,
    Released,
    Verified,
    Verify,
)
from specmesh.serving import caller


@dataclass(frozen=True, slots=True)
class ReplicaPools:
    """The replica pools of an orchestrator, with the state that all its requests share."""

    verifiers: Pool
    drafters: Pool
    confidence: Pool
    """Replicas of the confidence service."""
    latencies: Latencies = field(default_factory=Latencies)
    admission: Admission = field(default_factory=Admission)
    hedges: HedgeBudget = field(default_factory=HedgeBudget)
    """Budget for hedged verifications."""
    holders: PrefixHolders = field(default_factory=PrefixHolders)
    rng: random.Random = field(default_factory=random.SystemRandom)
    """Source of seeds and ids, unguessable unless a test passes a repeatable one."""
    shares_prefixes: bool = False
    """True if callers of different identities share cached prefixes, and so may learn by timing
    what others have sent."""
    records_content: bool = False
    """True if traces contain the text of tokens."""

    def __post_init__(self) -> None:
        for pool in (self.verifiers, self.drafters, self.confidence):
            pool.forgetters.append(self.latencies.forget)
            pool.forgetters.append(self._keep_holders)

    def _keep_holders(self, _: str) -> None:
        """Forget the prefixes of processes that are gone permanently."""
        peers = (*self.verifiers.peers, *self.drafters.peers)
        self.holders.keep({peer.identity for peer in peers})

    def prefix_salt(self) -> bytes:
        """Return the salt that separates the caller's cached prefixes from those of others."""
        return b"" if self.shares_prefixes else salt_of(caller.identity())


class Calls:
    """All calls of one request to the mesh.

    ``deadline`` is the request's, by the event loop's clock; ``epoch`` is the session's. Only
    replicas that meet ``need`` verify. ``logprobs`` learns from every verification. Calls raise
    ``AioRpcError`` or ``ServiceError`` once there is no replica left to try, or no time.
    """

    def __init__(
        self,
        mesh: ReplicaPools,
        prefix: CommittedPrefix,
        sampling: Sampling,
        *,
        vocab_size: int,
        deadline: float,
        need: Need = ANY,
        epoch: int = 1,
        filter_options: FilterOptions | None = None,
        logprobs: JudgedLogprobs | None = None,
        tokens: TracedTokens | None = None,
    ) -> None:
        self.tokens = tokens
        """Numbers the tokens in the request's trace; None if the trace is not recorded."""
        self._mesh = mesh
        self._prefix = prefix
        self._need = need
        self._logprobs = logprobs
        self._assessments = ConfidenceCalls(
            mesh.confidence, mesh.latencies, prefix.session_id, filter_options, deadline
        )
        self._verifications = VerifyCalls(
            *(mesh.verifiers, mesh.latencies, mesh.hedges, mesh.admission, prefix, sampling),
            vocab_size=vocab_size,
            deadline=deadline,
            need=need,
            num_top_logprobs=None if logprobs is None else logprobs.num_top,
            epoch=epoch,
            tokens=tokens,
        )
        self._drafts = DraftCalls(
            *(mesh.drafters, mesh.latencies, prefix, sampling),
            vocab_size=vocab_size,
            deadline=deadline,
            epoch=epoch,
            tokens=tokens,
        )

    @property
    def num_cached_tokens(self) -> int:
        """Tokens that the replica which answered first already held in its KV cache."""
        return self._verifications.num_cached_tokens or 0

    def call_context(self, parent: Context, cause: Cause) -> CallContext:
        """Return the context of a command issued now."""
        return CallContext(self._prefix.length, parent, cause)

    def capacity(self) -> Capacity:
        """Return the replicas and latencies that strategies may currently count on."""
        kinds = self._mesh.drafters.kinds
        latencies, verifiers = self._mesh.latencies, self._mesh.verifiers.usable(self._need)
        return Capacity(
            num_verifiers=len(verifiers),
            drafters=tuple(kinds) or (0,),
            target_s=latencies.target_s.value,
            drafter_s=latencies.drafter_s(kinds[0]).value if kinds else None,
            target_token_s=latencies.target_token_s.value,
            heads_s=latencies.heads_s.value,
            heads_depth=max((peer.heads_depth for peer in verifiers), default=0),
        )

    @contextmanager
    def watched(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Call ``watcher`` whenever the ready verifiers or drafters may have changed."""
        with self._mesh.verifiers.watched(watcher), self._mesh.drafters.watched(watcher):
            yield

    async def verify(self, command: Verify, context: CallContext) -> Verified:
        """Return the target's verdict, from any replica."""
        verified = await self._verifications.verify(command, context)
        if self._logprobs is not None:
            self._logprobs.learn(context.num_committed, command, verified.verdict)
        return verified

    async def draft(
        self, command: Draft, context: CallContext, deliver: Callable[[Drafted], None]
    ) -> None:
        """Pass levels of the draft to ``deliver`` as they arrive; see ``DraftCalls.draft``."""
        await self._drafts.draft(command, context, deliver)

    async def assess(
        self, command: Assess, context: CallContext, deliver: Callable[[Assessed | Released], None]
    ) -> None:
        """Pass decisions on draft tokens to ``deliver``; see ``ConfidenceCalls.assess``."""
        await self._assessments.assess(command, context, deliver)

    def commit(self, token_ids: Sequence[int]) -> None:
        """Append committed tokens, which will precede the paths of later commands."""
        self._prefix.commit(token_ids)
