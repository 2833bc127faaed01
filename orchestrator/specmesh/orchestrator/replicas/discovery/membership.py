"""Decides which addresses a pool has, from the listed ones and those of DNS names. No I/O."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from specmesh.orchestrator.replicas.discovery.entries import Entries, Name


@dataclass(frozen=True, slots=True)
class DnsAnswer:
    """The result of looking up a name."""

    addresses: tuple[str, ...] = ()
    failure: str = ""
    """The reason why there may be more addresses than these; empty if DNS says there are none."""


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """The addresses to add to a pool and to drop from it."""

    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


class Membership:
    """The addresses of a pool.

    - A listed address stays.
    - An address that a name resolves to is added; one it no longer resolves to is dropped.
    - A lookup that failed, even if only for IPv4 or IPv6, drops nothing: it does not tell which
      addresses are gone.
    - An answer without any address drops only replicas that are not serving. A name server that has
      just started, or lost its source, gives such answers, and the mesh must survive them. Replicas
      that do not serve are dropped, so that they do not count forever once all are scaled away.
    """

    def __init__(self, entries: Entries) -> None:
        self._listed = dict.fromkeys(entries.addresses)
        self._found: dict[Name, dict[str, None]] = {name: {} for name in entries.names}

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses, in the order in which they were added."""
        together = dict(self._listed)
        for found in self._found.values():
            together |= found
        return tuple(together)

    def answered(self, name: Name, answer: DnsAnswer, serving: Collection[str]) -> None:
        """Apply an answer for ``name``; ``serving`` are the addresses of replicas that currently
        serve."""
        # Name servers shuffle their answers; replicas keep their order.
        found = dict.fromkeys(sorted(answer.addresses))
        former = self._found[name]
        if answer.failure:
            found = former | found
        elif not found:
            found = {address: None for address in former if address in serving}
        self._found[name] = {each: None for each in former if each in found} | found

    def change_from(self, present: Collection[str]) -> MembershipChange:
        """Return what makes a pool that has the addresses ``present`` have these."""
        here, wanted = dict.fromkeys(present), dict.fromkeys(self.addresses)
        return MembershipChange(
            tuple(each for each in wanted if each not in here),
            tuple(each for each in here if each not in wanted),
        )
