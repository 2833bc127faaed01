"""Calls to the mesh on behalf of one request: retried where that is safe, traced, bounded.

Verify is a pure function and Draft only a guess, so both may be repeated anywhere. Every
call has a deadline: its own cap, or what is left of the request's if that is sooner.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from opentelemetry.context import Context

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.thresholds import FilterOptions
from specmesh.orchestrator.admission import Admission
from specmesh.orchestrator.mesh.call_context import CallContext
from specmesh.orchestrator.mesh.confidence_calls import ConfidenceCalls
from specmesh.orchestrator.mesh.draft_calls import DraftCalls
from specmesh.orchestrator.mesh.hedging import HedgeBudget
from specmesh.orchestrator.mesh.holders import PrefixHolders
from specmesh.orchestrator.mesh.latency import Latencies
from specmesh.orchestrator.mesh.pool import Pool
from specmesh.orchestrator.mesh.prefix import CommittedPrefix
from specmesh.orchestrator.mesh.verify_calls import VerifyCalls
from specmesh.orchestrator.strategies.base import (
    Assess,
    Assessed,
    Capacity,
    Draft,
    Drafted,
    Released,
    TaskId,
    Verify,
)


@dataclass(frozen=True, slots=True)
class Mesh:
    """The pools that an orchestrator works with, and how fast they have been."""

    verifiers: Pool
    drafters: Pool
    confidence: Pool
    """Replicas of the confidence service."""
    latencies: Latencies = field(default_factory=Latencies)
    admission: Admission = field(default_factory=Admission)
    hedges: HedgeBudget = field(default_factory=HedgeBudget)
    """Of verifications."""
    holders: PrefixHolders = field(default_factory=PrefixHolders)
    dice: random.Random = field(default_factory=random.SystemRandom)
    """Seeds and ids come from here, unguessable unless a test wants its schedule again."""


class Calls:
    """Everything one request asks of the mesh.

    ``deadline`` is the request's, by the event loop's clock; ``epoch`` the session's.
    ``target`` is the kind of the model that verifies, None if it is whichever is there. All
    calls raise ``AioRpcError`` or ``ServiceError`` once nobody is left to try, or no time.
    """

    def __init__(
        self,
        mesh: Mesh,
        prefix: CommittedPrefix,
        sampling: Sampling,
        *,
        vocab_size: int,
        deadline: float,
        target: str | None = None,
        epoch: int = 1,
        filter_options: FilterOptions | None = None,
    ) -> None:
        self._mesh = mesh
        self._prefix = prefix
        self._assessments = ConfidenceCalls(
            mesh.confidence, mesh.latencies, prefix, filter_options, deadline
        )
        self._verifications = VerifyCalls(
            *(mesh.verifiers, mesh.latencies, mesh.hedges, mesh.admission, prefix, sampling),
            vocab_size=vocab_size,
            deadline=deadline,
            target=target,
        )
        self._drafts = DraftCalls(
            *(mesh.drafters, mesh.latencies, prefix, sampling),
            vocab_size=vocab_size,
            deadline=deadline,
            epoch=epoch,
        )

    def call_context(self, parent: Context) -> CallContext:
        """Now, for a command that is given now."""
        return CallContext(self._prefix.length, parent)

    def capacity(self) -> Capacity:
        """What strategies may count on at the moment."""
        kinds = self._mesh.drafters.kinds
        latencies = self._mesh.latencies
        return Capacity(
            num_verifiers=len(self._mesh.verifiers.usable()),
            num_drafters=max(1, len(kinds)),
            target_s=latencies.target_s.value,
            drafter_s=latencies.drafter_s(kinds[0]).value if kinds else None,
            target_token_s=latencies.target_token_s.value,
        )

    @contextmanager
    def watched(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Call ``watcher`` whenever a replica or drafter may have come or gone."""
        with self._mesh.verifiers.watched(watcher), self._mesh.drafters.watched(watcher):
            yield

    async def verify(self, command: Verify, context: CallContext) -> Verdict:
        """The target's verdict, from whichever replica gives it."""
        return await self._verifications.ask(command, context)

    async def draft(
        self, command: Draft, context: CallContext, deliver: Callable[[Drafted], None]
    ) -> None:
        """Levels of the draft as they come; see ``DraftCalls.ask``."""
        await self._drafts.ask(command, context, deliver)

    async def assess(
        self, command: Assess, context: CallContext, deliver: Callable[[Assessed | Released], None]
    ) -> None:
        """What to do with draft tokens; see ``ConfidenceCalls.ask``."""
        await self._assessments.ask(command, context.num_committed, context.parent, deliver)

    def cancel(self, task: TaskId) -> None:
        """The task is about to be cancelled: others may have its place at a replica already."""
        self._verifications.cancel(task)
        self._drafts.cancel(task)

    def commit(self, token_ids: Sequence[int]) -> None:
        """Paths of commands given from here on follow these tokens too."""
        self._prefix.commit(token_ids)
