"""A new target is a new mesh: answers end on the mesh where they began, whatever else goes on."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.e2e.answers import answer, disturbed, said
from tests.e2e.processes import Process, Processes

from specmesh.client import AsyncClient, SpecmeshError

ASKED = {"max_tokens": 60, "ignore_end_of_text": True, "temperature": 0.0}
PROMPT = "begun on blue"


@dataclass(frozen=True, slots=True)
class Colour:
    """A mesh with a target of its own, and a name of its own in the Redis that it shares."""

    orchestrators: tuple[Process, ...]

    @classmethod
    def of(cls, processes: Processes, redis_url: str, name: str, seed: str) -> Colour:
        redis = ("--redis-url", redis_url, "--redis-prefix", name)
        simulated = ("--backend", "simulated", "--simulated-seed", seed)
        verifier = processes.service("verifier", *simulated, "--simulated-each-ms", "10", *redis)
        drafter = processes.service("drafter", *simulated, *redis)
        return cls(tuple(processes.orchestrator([verifier], [drafter], *redis) for _ in range(2)))

    @property
    def addresses(self) -> list[str]:
        return [each.address for each in self.orchestrators]


@pytest.fixture
def colours(processes) -> tuple[Colour, Colour]:
    url = processes.redis()[1]
    return Colour.of(processes, url, "blue", "1"), Colour.of(processes, url, "green", "2")


async def test_answers_end_where_they_began_while_new_ones_begin_elsewhere(colours):
    blue, green = colours
    async with AsyncClient(*blue.addresses) as old, AsyncClient(*green.addresses) as new:
        undisturbed = await answer(old, PROMPT, **ASKED)
        others = await answer(new, PROMPT, **ASKED)
        assert said(others) != said(undisturbed)

        async def lose_where_it_began() -> None:
            blue.orchestrators[1].kill()  # a client's answers begin at its targets in turn

        result = await disturbed(old, PROMPT, lose_where_it_began, **ASKED)
        assert result.num_resumes == 1
        assert said(result) == said(undisturbed)
        assert said(await answer(new, PROMPT, **ASKED)) == said(others)


async def test_an_answer_that_is_sent_to_the_new_mesh_is_refused_and_not_harmed(colours):
    blue, green = colours
    async with AsyncClient(blue.addresses[0]) as old, AsyncClient(green.addresses[0]) as new:
        undisturbed = await answer(old, PROMPT, **ASKED)
        stream = old.generate(PROMPT, **ASKED)
        async for _ in stream:
            saved = stream.session
            break
        await stream.aclose()
        assert saved is not None
        with pytest.raises(SpecmeshError) as refused:
            await new.resume(saved)
        assert refused.value.reason == "TARGET_REPLACED"
    async with AsyncClient(blue.addresses[1]) as other:
        resumed = other.resume(saved)
        await resumed
    assert resumed.result.token_ids == undisturbed.token_ids
