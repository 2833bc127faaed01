"""Chats over real processes: whichever orchestrator is asked finds who holds the turns before."""

from __future__ import annotations

import random

import pytest

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
        return processes.orchestrator(preferred, [], "--redis-url", url, *flags)

    return redis, verifiers, orchestrator


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
    """Whether ``orchestrator`` finds who holds one of ``chats``, of which it knows nothing: each is
    asked for in time if the machine is not too busy."""
    return any([await chat.turn(orchestrator) > 0 for chat in chats])


async def begun(number, orchestrator):
    """Chats whose first turn ``orchestrator`` has answered."""
    chats = [Chat() for _ in range(number)]
    for chat in chats:
        assert await chat.turn(orchestrator) == 0
    return chats


async def test_every_orchestrator_finds_what_another_has_had_read(mesh):
    _, _, orchestrator = mesh
    first, second = orchestrator(), orchestrator(reverse=True)
    assert await found(await begun(NUM_CHATS, first), second)


async def test_an_orchestrator_that_was_killed_is_followed_by_one_that_finds_it_too(mesh):
    _, verifiers, orchestrator = mesh
    first = orchestrator()
    chats, others = [await begun(NUM_CHATS, first) for _ in range(2)]
    first.kill()
    third = orchestrator(reverse=True)
    assert await found(chats, third)
    verifiers[0].kill()  # and with it all that was noted
    assert not await found(others, third)


async def test_without_the_directory_it_is_read_again(mesh):
    _, _, orchestrator = mesh
    off = ("--no-prefix-directory",)
    first, second = orchestrator(flags=off), orchestrator(reverse=True, flags=off)
    assert not await found(await begun(3, first), second)


async def test_chats_go_on_while_redis_is_away(mesh):
    redis, _, orchestrator = mesh
    first, chat = orchestrator(), Chat()
    await chat.turn(first)
    redis.kill()
    for _ in range(3):
        assert await chat.turn(first) > 0  # what it knows itself it goes on using
