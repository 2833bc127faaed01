"""This version and the one that landed last, each way round, say the same together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.answers import answer
from tests.e2e.landed import Landed, NotHere, unpack
from tests.e2e.processes import Process, Processes

from specmesh import models
from specmesh.client import AsyncClient

GREEDY = {"temperature": 0.0}
COUPLED = {"temperature": 0.8, "seed": 11}
ASKED: list[dict[str, Any]] = [
    {"strategy": strategy, "max_tokens": 16, "ignore_end_of_text": True, **sampling}
    for strategy, sampling in (
        ("speculative", GREEDY),
        ("dsi", GREEDY),
        ("autoregressive", COUPLED),
        ("dsi", COUPLED),
        ("exhaustive", COUPLED),
    )
]
FILTERED = {"strategy": "filter", "max_tokens": 16, "ignore_end_of_text": True, **GREEDY}
KEEPS_NOTHING = ("--threshold", "inf")
"""Of a confidence service: the text of ``filter`` is then the target's."""
CLIENT = str(Path(__file__).with_name("asking_client.py"))


@dataclass(frozen=True, slots=True)
class Skewed:
    """Orchestrators, each before replicas of a kind of its own."""

    landed: Landed
    processes: Processes
    orchestrators: dict[str, Process]
    """By which version they are of, and which their replicas are of."""


@pytest.fixture(scope="module")
def skewed(tmp_path_factory, shared_folder) -> Iterator[Skewed]:
    try:
        landed = Landed(unpack(tmp_path_factory.mktemp("landed"), shared_folder))
    except NotHere as absent:
        pytest.skip(str(absent))
    with closing(landed), Processes() as processes:
        yield _started(landed, processes)


def _started(landed: Landed, processes: Processes) -> Skewed:
    redis = ("--redis-url", processes.redis()[1])
    target = ("--model", str(models.path(models.TARGET)), *redis)
    drafter = ("--model", str(models.path(models.DRAFTER)), *redis)
    old = {
        "--verifiers": landed.start(processes, "specmesh.verifier", *target),
        "--drafters": landed.start(processes, "specmesh.drafter", *drafter),
        "--confidence": landed.start(processes, "specmesh.confidence", *KEEPS_NOTHING),
    }
    new = {
        "--verifiers": processes.service("verifier", *target),
        "--drafters": processes.service("drafter", *drafter),
        "--confidence": processes.service("confidence", *KEEPS_NOTHING),
    }

    def orchestrator(*flags: str) -> Process:
        return landed.start(processes, "specmesh.orchestrator", *flags)

    def flags(*kinds: dict[str, Process]) -> list[str]:
        lists = {role: ",".join(kind[role].address for kind in kinds) for role in new}
        return [part for pair in lists.items() for part in pair] + list(redis)

    return Skewed(
        landed,
        processes,
        {
            "landed before new": orchestrator(*flags(new)),
            "landed before both": landed.start(
                processes, "specmesh.orchestrator", *flags(old, new)
            ),
            "new before landed": processes.service("orchestrator", *flags(old)),
            "new before both": processes.service("orchestrator", *flags(old, new)),
        },
    )


async def by_us(target: str, prompt: str, asked: Sequence[dict[str, Any]]) -> list[list[int]]:
    async with AsyncClient(target) as client:
        return [list((await answer(client, prompt, **each)).token_ids) for each in asked]


async def by_landed(
    skewed: Skewed, targets: Sequence[str], prompt: str, asked: Sequence[dict[str, Any]]
) -> list[list[int]]:
    arguments = map(json.dumps, (targets, prompt, asked))
    client = skewed.landed.start(skewed.processes, CLIENT, *arguments)
    assert await asyncio.to_thread(client.wait_exit) == 0, client.output
    return [json.loads(line) for line in client.output.splitlines()]


async def test_every_pairing_of_versions_says_the_same(skewed, prompts):
    asked = [*ASKED, FILTERED]
    addresses = {name: process.address for name, process in skewed.orchestrators.items()}
    ours = {name: await by_us(address, prompts[0], asked) for name, address in addresses.items()}
    greedy, coupled = ours["new before both"][0], ours["new before both"][-2]
    assert greedy != coupled
    expected = [greedy] * 2 + [coupled] * 3 + [greedy]
    assert list(ours.values()) == [expected] * len(addresses)
    new = [addresses[name] for name in addresses if name.startswith("new")]
    assert await by_landed(skewed, new, prompts[0], asked) == expected * len(new)


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(
    ("begins", "goes_on"),
    [("landed before both", "new before both"), ("new before both", "landed before both")],
)
async def test_an_answer_begun_by_one_version_is_carried_on_by_the_other(
    skewed, prompts, begins, goes_on, stored
):
    # The one that landed has no `auto`, by default ours.
    asked = {"strategy": "dsi", "max_tokens": 60, "ignore_end_of_text": True, **COUPLED}
    first, second = (skewed.orchestrators[each].address for each in (begins, goes_on))
    (whole,) = await by_us(second, prompts[1], [asked])
    async with AsyncClient(first) as client:
        stream = client.generate(prompts[1], **asked)
        async for _ in stream:
            saved = stream.session
            break
        await stream.aclose()
    assert saved is not None
    assert 0 < len(saved.token_ids) < len(whole)
    if not stored:
        saved = replace(saved, session_id="nobody's")
    async with AsyncClient(second) as client:
        resumed = client.resume(saved)
        await resumed
    assert list(resumed.result.token_ids) == whole
