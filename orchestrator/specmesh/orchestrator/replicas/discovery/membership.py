"""Decides which addresses a pool has, from the listed ones and those of DNS names. No I/O."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain

from specmesh.orchestrator.replicas.discovery.entries import Entries, Name

DROPPED_AFTER = 12
"""Incomplete answers in a row, a minute's at the usual pace, after which an address that they lack
is dropped: long enough for most that ails a name server to be over."""


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
    - A lookup that failed drops nothing: it does not tell which addresses are gone.
    - An incomplete answer, for IPv4 or IPv6 alone, does not tell either. But a name server may fail
      for one of the two for ever, and all addresses that there ever were must not stay. So one that
      ``DROPPED_AFTER`` such answers in a row lack is dropped, if its replica was serving at none.
    - An answer without any address drops only replicas that are not serving. A name server that has
      just started, or lost its source, gives such answers, and the mesh must survive them. Replicas
      that do not serve are dropped, so that they do not count forever once all are scaled away.
    """

    def __init__(self, entries: Entries) -> None:
        self._listed = dict.fromkeys(entries.addresses)
        self._found: dict[Name, dict[str, int]] = {name: {} for name in entries.names}
        """The number of incomplete answers in a row that have lacked each address."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses, in the order in which they were added."""
        return tuple(dict.fromkeys(chain(self._listed, *self._found.values())))

    def answered(self, name: Name, answer: DnsAnswer, serving: Collection[str]) -> None:
        """Apply an answer for ``name``; ``serving`` are the addresses of replicas that currently
        serve."""
        former = self._found[name]
        # Name servers shuffle their answers; replicas keep their order.
        found = dict.fromkeys(sorted(answer.addresses), 0)
        kept = _kept(former, answer, serving) | found
        self._found[name] = {each: kept[each] for each in former if each in kept} | kept

    def change_from(self, present: Collection[str]) -> MembershipChange:
        """Return what makes a pool that has the addresses ``present`` have these."""
        here, wanted = dict.fromkeys(present), dict.fromkeys(self.addresses)
        return MembershipChange(
            tuple(each for each in wanted if each not in here),
            tuple(each for each in here if each not in wanted),
        )


def _kept(former: dict[str, int], answer: DnsAnswer, serving: Collection[str]) -> dict[str, int]:
    """Return which of the ``former`` addresses stay, even if ``answer`` lacks them, and how many
    incomplete answers in a row have lacked them."""
    if not answer.failure:
        return {} if answer.addresses else {each: 0 for each in former if each in serving}
    if not answer.addresses:
        return former
    missed = {each: 0 if each in serving else former[each] + 1 for each in former}
    return {each: times for each, times in missed.items() if times < DROPPED_AFTER}
