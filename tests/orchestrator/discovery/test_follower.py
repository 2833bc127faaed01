"""When names are looked up, and what becomes of the answers: on virtual time."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from tests.schedules.clock import VirtualLoop

from specmesh.orchestrator.replicas.discovery.entries import Entries, Name
from specmesh.orchestrator.replicas.discovery.follower import JITTER, LEAST_SECONDS, Follower
from specmesh.orchestrator.replicas.discovery.membership import DnsAnswer

NAME = Name("v.test", 5)
EVERY_S = 5.0
FOUND = DnsAnswer(("x", "y"))


@dataclass
class Peer:
    address: str
    serving: bool = True


class Pool:
    """What a follower sees of one."""

    role = "verifier"

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self.watchers: dict[Callable[[], None], None] = {}
        self.faults: list[Exception] = []
        """Raised one by one, as by a watcher, once a replica has been added or dropped."""

    def add(self, address: str) -> None:
        self.peers.append(Peer(address))
        self.change()

    def drop(self, address: str) -> None:
        self.peers = [peer for peer in self.peers if peer.address != address]
        self.change()

    def change(self) -> None:
        for watcher in list(self.watchers):
            watcher()
        if self.faults:
            raise self.faults.pop()


class Dns:
    """Says ``answer`` after ``takes_s``, and when it was asked."""

    def __init__(self, answer: DnsAnswer, takes_s: float = 0.0) -> None:
        self.answer = answer
        self.takes_s = takes_s
        self.asked_at: list[float] = []
        self.asked = asyncio.Event()
        self.faults: list[Exception] = []
        """Raised one by one instead."""

    async def __call__(self, name: Name) -> DnsAnswer:
        assert name == NAME
        self.asked_at.append(asyncio.get_running_loop().time())
        self.asked.set()
        await asyncio.sleep(self.takes_s)
        if self.faults:
            raise self.faults.pop()
        return self.answer

    @property
    def pauses(self) -> list[float]:
        return [then - now for now, then in zip(self.asked_at, self.asked_at[1:], strict=False)]


def follow(dns: Dns, play: Callable[[Pool], Awaitable[None]]) -> Pool:
    """The pool after ``play``."""

    async def followed() -> Pool:
        pool = Pool()
        follower = Follower(pool, Entries((), (NAME,)), dns, EVERY_S, random.Random(0))
        await play(pool)
        await follower.close()
        assert pool.watchers == {}
        return pool

    loop = VirtualLoop()
    try:
        return loop.run_until_complete(followed())
    finally:
        loop.close()


async def for_a_minute(pool: Pool) -> None:
    await asyncio.sleep(60)


def test_name_is_looked_up_at_once_and_then_every_few_seconds():
    dns = Dns(FOUND)
    pool = follow(dns, for_a_minute)
    assert [peer.address for peer in pool.peers] == ["x", "y"]
    assert dns.asked_at[0] == 0
    assert all(EVERY_S * (1 - JITTER) <= pause <= EVERY_S * (1 + JITTER) for pause in dns.pauses)
    assert len(set(dns.pauses)) > 1


@pytest.mark.parametrize("answer", [DnsAnswer(), DnsAnswer(failure="SERVFAIL")])
def test_lookups_that_bring_nothing_are_repeated_sooner_and_then_as_usual(answer):
    dns = Dns(answer)
    follow(dns, for_a_minute)
    expected = [1, 2, 4, *[EVERY_S] * (len(dns.pauses) - 3)]
    assert dns.pauses == pytest.approx(expected, rel=JITTER + 0.01)


def test_loss_of_a_replica_has_its_name_looked_up_but_not_all_the_time():
    dns = Dns(FOUND)

    async def play(pool: Pool) -> None:
        await asyncio.sleep(LEAST_SECONDS + 0.5)
        pool.peers[0].serving = False
        pool.change()
        await asyncio.sleep(0.01)
        assert dns.asked_at == [0, LEAST_SECONDS + 0.5]
        pool.peers[1].serving = False
        pool.change()
        await asyncio.sleep(LEAST_SECONDS)

    follow(dns, play)
    assert dns.pauses == [LEAST_SECONDS + 0.5, LEAST_SECONDS]


def test_loss_during_a_lookup_is_not_missed():
    dns = Dns(FOUND, takes_s=0.5)

    async def play(pool: Pool) -> None:
        await asyncio.sleep(1)
        pool.change()
        await asyncio.sleep(EVERY_S * (1 + JITTER))
        dns.asked.clear()
        await dns.asked.wait()
        num_asked = len(dns.asked_at)
        pool.peers[0].serving = False
        pool.change()
        await asyncio.sleep(0.5 + LEAST_SECONDS + 0.01)
        assert len(dns.asked_at) == num_asked + 1

    follow(dns, play)


def test_what_an_exception_has_left_undone_is_made_up_for_soon(caplog):
    dns = Dns(FOUND)

    async def play(pool: Pool) -> None:
        pool.faults.append(RecursionError())
        await asyncio.sleep(0.01)
        assert [peer.address for peer in pool.peers] == ["x"]
        await asyncio.sleep(LEAST_SECONDS * (1 + JITTER))
        assert [peer.address for peer in pool.peers] == ["x", "y"]
        dns.answer = DnsAnswer(("z",))
        pool.faults.append(RecursionError())
        await asyncio.sleep(2 * EVERY_S * (1 + JITTER))

    assert [peer.address for peer in follow(dns, play).peers] == ["z"]
    told = [record.getMessage() for record in caplog.records if record.exc_info]
    assert told == ["name not followed"] * 2


def test_lookup_that_raises_is_repeated(caplog):
    dns = Dns(FOUND)
    dns.faults.append(RuntimeError())
    assert [peer.address for peer in follow(dns, for_a_minute).peers] == ["x", "y"]
    assert [record.getMessage() for record in caplog.records] == ["name not followed"]


def test_trouble_is_logged_once_and_so_is_its_end(caplog):
    dns = Dns(DnsAnswer(failure="SERVFAIL"))

    async def play(pool: Pool) -> None:
        await asyncio.sleep(20)
        dns.answer = DnsAnswer()
        await asyncio.sleep(20)
        dns.answer = FOUND
        await asyncio.sleep(20)

    with caplog.at_level(logging.INFO):
        follow(dns, play)
    told = [(record.getMessage(), getattr(record, "reason", "")) for record in caplog.records]
    resolved = ["name not resolved", "name not resolved", "name resolved"]
    assert [each for each in told if each[0] != "replica added"] == list(
        zip(resolved, ["SERVFAIL", "no address", ""], strict=True)
    )
