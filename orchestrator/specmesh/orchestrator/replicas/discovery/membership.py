"""Decides which addresses a pool has, by what is listed and what names resolve to. No I/O."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from specmesh.orchestrator.replicas.discovery.entries import Entries, Name


@dataclass(frozen=True, slots=True)
class DnsAnswer:
    """What a lookup of a name gave."""

    addresses: tuple[str, ...] = ()
    failure: str = ""
    """Why there may be more addresses than these; empty if DNS has said that there aren't."""


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """What an answer means for a pool."""

    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


class Membership:
    """The addresses of a pool.

    - An address that is listed stays.
    - What a name resolves to is added; what it no longer resolves to is dropped.
    - A lookup that failed, if only for IPv4 or IPv6, drops nothing: it says nothing of who is gone.
    - Nor does an answer without any address drop a replica that serves: a name server that has just
      started, or lost its source, gives such answers, and a mesh must outlive it. Those that are
      not serving are dropped, so that nobody counts them for ever once all are scaled away.
    """

    def __init__(self, entries: Entries) -> None:
        self._listed = dict.fromkeys(entries.addresses)
        self._found: dict[Name, dict[str, None]] = {name: {} for name in entries.names}

    @property
    def addresses(self) -> tuple[str, ...]:
        """All of them, in the order in which they came."""
        return tuple(self._all())

    def answered(self, name: Name, answer: DnsAnswer, serving: Collection[str]) -> MembershipChange:
        """Take an answer for ``name`` into account; ``serving`` are the addresses of replicas
        that serve now."""
        before = self._all()
        # Name servers shuffle their answers; replicas keep their order.
        found = dict.fromkeys(sorted(answer.addresses))
        former = self._found[name]
        if answer.failure:
            found = former | found
        elif not found:
            found = {address: None for address in former if address in serving}
        self._found[name] = {each: None for each in former if each in found} | found
        after = self._all()
        return MembershipChange(
            tuple(each for each in after if each not in before),
            tuple(each for each in before if each not in after),
        )

    def _all(self) -> dict[str, None]:
        together = dict(self._listed)
        for found in self._found.values():
            together |= found
        return together
