"""The name server of a schedule, which knows one name: that of the verifiers."""

from __future__ import annotations

import asyncio
import random

from specmesh.orchestrator.replicas.discovery.entries import Entries, Name
from specmesh.orchestrator.replicas.discovery.membership import DnsAnswer

VERIFIERS = Name("verifiers", 1)
ENTRIES = Entries(names=(VERIFIERS,))
FAILURES = (DnsAnswer(failure="SERVFAIL"), DnsAnswer())
"""What is said instead: that there is no answer, or that there are no addresses."""


class Names:
    """Answers after ``latency_s``; each answer has its addresses in another order."""

    def __init__(self, rng: random.Random, latency_s: float, addresses: list[str]) -> None:
        self.addresses = list(addresses)
        """Of the verifiers."""
        self.away = False
        self._dice = rng
        self._latency_s = latency_s

    async def look_up(self, name: Name) -> DnsAnswer:
        """See ``lookup``."""
        assert name is VERIFIERS
        await asyncio.sleep(self._latency_s * (0.5 + self._dice.random()))
        if self.away:
            return self._dice.choice(FAILURES)
        return DnsAnswer(tuple(self._dice.sample(self.addresses, len(self.addresses))))
