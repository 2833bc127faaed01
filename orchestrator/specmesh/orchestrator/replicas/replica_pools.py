"""The replica pools of an orchestrator, with the state that all its requests share."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain

from specmesh.decoding.predict.acceptance_rate import MeshAcceptance
from specmesh.orchestrator.admission.controller import Admission
from specmesh.orchestrator.replicas.latencies.mesh_latencies import Latencies
from specmesh.orchestrator.replicas.pool.replica_pool import Pool
from specmesh.orchestrator.replicas.prefixes.holders import PrefixHolders
from specmesh.orchestrator.replicas.prefixes.prefix import salt_of
from specmesh.orchestrator.replicas.retries.alarm import Alarm
from specmesh.orchestrator.replicas.retries.hedging import HedgeBudget
from specmesh.serving import caller


@dataclass(frozen=True, slots=True)
class ReplicaPools:
    """The replica pools of an orchestrator, with the state that all its requests share."""

    verifiers: Pool
    drafters: Pool
    confidence: Pool
    """Replicas of the confidence service."""
    latencies: Latencies = field(default_factory=Latencies)
    acceptances: defaultdict[str, MeshAcceptance] = field(
        default_factory=lambda: defaultdict(MeshAcceptance)
    )
    """Acceptance rates of draft tokens, by strategy."""
    admission: Admission = field(default_factory=Admission)
    hedges: HedgeBudget = field(default_factory=HedgeBudget)
    """Budget for hedged verifications."""
    alarm: Alarm = field(default_factory=Alarm)
    """Tells calls that they are late."""
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
        self.verifiers.watchers[self._learn_forwards] = None

    def _learn_forwards(self) -> None:
        """Learn whether calls share forwards and what a row takes, before the first call."""
        price, peers = self.latencies.price, self.verifiers.peers
        if any(peer.max_batch_calls > 1 for peer in peers):
            price.can_share = True
        price.start_with(chain.from_iterable(p.model.forward_times for p in peers if p.model))

    def _keep_holders(self, _: str) -> None:
        """Forget the prefixes of processes that are gone permanently."""
        peers = (*self.verifiers.peers, *self.drafters.peers)
        self.holders.keep({peer.identity for peer in peers})

    def prefix_salt(self, cache_salt: str) -> bytes:
        """Return the salt that separates the cached prefixes of the caller's requests with this
        ``cache_salt`` from those of others."""
        return salt_of("" if self.shares_prefixes else caller.identity(), cache_salt)
