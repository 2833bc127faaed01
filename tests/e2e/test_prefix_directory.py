"""Chats over real processes: whichever orchestrator is asked finds who holds the turns before."""

from __future__ import annotations

import random

import pytest
from redis import Redis

from specmesh.client import AsyncClient

SIMULATED = ("--backend", "simulated")
NUM_CHATS = 8
ANSWER = {"strategy": "autoregressive", "max_tokens": 8, "ignore_end_of_text": True}


@pytest.fixture
def mesh(processes):
    """Two verifiers and a Redis; what it gives starts an orchestrator, which prefers the verifiers
    in the order in which it is given them."""
    redis, url = processes.redis()
    verifiers = [processes.service("verifier", *SIMULATED, "--redis-url", url) for _ in range(2)]

    def orchestrator(*, reverse=False, flags=()):
        preferred = verifiers[::-1] if reverse else verifiers
        started = processes.orchestrator(preferred, [], "--redis-url", url, *flags)
        for each in verifiers:  # it begins as soon as it has found one of them
            started.wait_text(f'"peer": "{each.address}"')
        return started

    return redis, url, orchestrator


class Chat:
    """A chat, each turn of which may go to another orchestrator."""

    def __init__(self):
        self.said = [random.randrange(1, 256) for _ in range(200)]  # no two chats begin alike

    async def turn(self, orchestrator):
        """How many tokens of the prompt were cached."""
        async with AsyncClient(orchestrator.address) as client:
            answer = await client.generate(self.said, temperature=0, **ANSWER)
        self.said += [*answer.token_ids, 1, 2, 3]
        return answer.stats.num_cached_tokens


async def found(chats, orchestrator):
    """For how many of ``chats``, of which it knows nothing, ``orchestrator`` finds who holds them:
    all, if the machine is not too busy to say so in time."""
    return sum([await chat.turn(orchestrator) > 0 for chat in chats])


async def begun(number, orchestrator):
    """Chats whose first turn ``orchestrator`` has answered."""
    chats = [Chat() for _ in range(number)]
    for chat in chats:
        assert await chat.turn(orchestrator) == 0
    return chats


async def test_every_orchestrator_finds_what_another_has_had_read(mesh):
    _, _, orchestrator = mesh
    first, second = orchestrator(), orchestrator(reverse=True)
    assert await found(await begun(NUM_CHATS, first), second) > 0


async def test_an_orchestrator_that_was_killed_is_followed_by_one_that_finds_it_too(processes):
    _, url = processes.redis()
    verifier = processes.service("verifier", *SIMULATED)
    first = processes.orchestrator([verifier], [], "--redis-url", url)
    chats, others = [await begun(NUM_CHATS, first) for _ in range(2)]
    first.kill()
    second = processes.orchestrator([verifier], [], "--redis-url", url)
    assert await found(chats, second) > 0
    # Who comes next at the address of one that died is not taken for it.
    port = verifier.address.rpartition(":")[2]
    verifier.kill()
    assert processes.service("verifier", *SIMULATED, "--port", port).address == verifier.address
    assert await found(others, second) == 0


async def test_without_the_directory_nobody_is_told(mesh):
    _, url, orchestrator = mesh
    await begun(1, orchestrator())
    with Redis.from_url(url, username="admin", password="") as admin:
        assert admin.keys("*:holders")
        admin.flushall()
        await begun(1, orchestrator(flags=("--no-prefix-directory",)))
        # Another orchestrator may still ask the replica that has it, by chance.
        assert not admin.keys("*:holders")


async def test_chats_go_on_while_redis_is_away(mesh):
    redis, _, orchestrator = mesh
    first, chat = orchestrator(), Chat()
    await chat.turn(first)
    redis.kill()
    for _ in range(3):
        assert await chat.turn(first) > 0  # what it knows itself it goes on using
