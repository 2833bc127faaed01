"""The peers of a pool that can be called, and which of them meet a need."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import NamedTuple, Self

from specmesh.orchestrator.replicas.need import Need
from specmesh.orchestrator.replicas.transport.peer import Peer


class ReadyPeers:
    """The ready ``peers``. Every call and every event of an answer asks for those that meet its
    need, which change only when a peer comes or goes."""

    def __init__(self, peers: Iterable[Peer] = ()) -> None:
        self.peers = distinct(peers)
        """One for each process: one found at several addresses is called at the first of them."""
        self.kinds = list(dict.fromkeys(each.kind for each in self.peers))
        """Their distinct models, in the order of their addresses."""
        self.hosts = frozenset(_host(each.address) for each in self.peers)
        """The hosts of their addresses, by which containers of one machine seem apart."""
        self._able: dict[tuple[object, ...], _Able] = {}
        """Those with the model and the features of each need so far."""

    def __bool__(self) -> bool:
        return bool(self.peers)

    def that_meet(self, need: Need, only: Collection[str] | None = None) -> list[Peer]:
        """Return the peers that meet ``need`` and are in ``only`` (None means any). The list must
        not be changed."""
        able = self._able.get(need.abilities)
        if able is None:
            able = self._able[need.abilities] = _Able.of(filter(need.able, self.peers))
        if need.num_tokens <= able.least_capacity and only is None:
            return able.peers
        return [
            peer
            for peer in able.peers
            if need.num_tokens <= peer.kv_capacity_tokens and (only is None or peer.address in only)
        ]


class _Able(NamedTuple):
    """Peers with the model and the features of a need."""

    peers: list[Peer]
    least_capacity: float
    """Tokens that the KV cache of each of them can hold."""

    @classmethod
    def of(cls, peers: Iterable[Peer]) -> Self:
        listed = list(peers)
        return cls(listed, min((each.kv_capacity_tokens for each in listed), default=math.inf))


def _host(address: str) -> str:
    return "unix" if address.startswith("unix") else address.rpartition(":")[0]


def distinct(peers: Iterable[Peer]) -> list[Peer]:
    """Return the first peer of each process."""
    first: dict[str, Peer] = {}
    for peer in peers:
        first.setdefault(peer.identity, peer)
    return list(first.values())
