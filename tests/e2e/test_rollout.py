"""A rolling restart of every role in turn, under a load of 20 streams: nobody notices."""

from __future__ import annotations

import asyncio
import csv
import json
import signal
import sys
from pathlib import Path

from tests.e2e.answers import answer
from tests.e2e.processes import Process, Processes, launch
from tests.e2e.rolling import Balancer, Replica, balancing
from tests.forks import surroundings
from tests.ports import free_port

from specmesh.client import AsyncClient
from specmesh.load.generators.generator import digest_of

TOKENS = 24
PROMPTS = [f"Prompt number {number}, which is of no further interest." for number in range(7)]
SIMULATED = ("--backend", "simulated", "--simulated-seed", "7")
MIX = (
    *("--mix", "4 strategy=dsi temperature=0.8"),
    *("--mix", "4 strategy=speculative"),
    *("--mix", "1 strategy=autoregressive"),
    *("--mix", "1 strategy=filter"),
)


class Mesh:
    """Replicas of every role, behind addresses that stay."""

    def __init__(self, processes: Processes, redis_url: str) -> None:
        def replicas(role: str, count: int, *flags: str) -> list[Replica]:
            return [Replica(processes, role, flags, str(free_port())) for _ in range(count)]

        redis = ("--redis-url", redis_url)
        self.verifiers = replicas("verifier", 3, *SIMULATED, "--simulated-each-ms", "16", *redis)
        self.drafters = replicas("drafter", 2, *SIMULATED, "--simulated-each-ms", "1", *redis)
        # Nothing is kept without the target, or the text would depend on who could be asked.
        self.confidence = replicas("confidence", 2, "--threshold", "inf")
        peers = {
            "--verifiers": self.verifiers,
            "--drafters": self.drafters,
            "--confidence": self.confidence,
        }
        flags = [
            part
            for flag, those in peers.items()
            for part in (flag, ",".join(each.address for each in those))
        ]
        # As long as a client may take to connect anew to the one that was restarted before.
        staying = ("--drain-delay-seconds", "1.5")
        # A slow machine may have room for a few of the streams: the others wait for their turn.
        waiting = ("--max-wait-seconds", "60")
        self.orchestrators = replicas("orchestrator", 2, *flags, *redis, *staying, *waiting)
        self.orchestrators[1].flags += ("--drain-seconds", "0.1")  # it hands its answers over
        listed = ",".join(each.address for each in self.orchestrators)
        leaving = ("--drain-delay-seconds", "4")  # longer than an answer takes
        self.gateways = replicas("gateway", 2, "--orchestrators", listed, *leaving)
        self._processes = processes

    async def start(self) -> None:
        for those in (
            [*self.verifiers, *self.drafters, *self.confidence],
            self.orchestrators,
            self.gateways,
        ):
            await asyncio.gather(*(each.start() for each in those))

    async def roll(self, balancer: Balancer) -> None:
        """Replace all, one at a time; of gateways the new one is there before the old one goes."""
        for each in (*self.verifiers, *self.drafters, *self.confidence, *self.orchestrators):
            await each.restart()
        for old in self.gateways:
            new = Replica(self._processes, "gateway", old.flags, str(free_port()))
            await new.start()
            await balancer.add(new)
            await old.end()


class Load:
    """``specmesh load run`` in a process of its own, until it is interrupted."""

    def __init__(self, folder: Path, name: str, *flags: str) -> None:
        self._report, self._rows = folder / f"{name}.json", folder / f"{name}.csv"
        prompts = folder / f"{name}.txt"
        prompts.write_text("\n".join(PROMPTS))
        wanted = ("--json", str(self._report), "--csv", str(self._rows))
        asked = ("--prompts", str(prompts), "--output-tokens", str(TOKENS), "--ignore-end")
        command = (sys.executable, "-m", "specmesh.load", "run", "--duration", "10m")
        self.process = Process(name, launch((*command, *flags, *asked, *wanted), surroundings()))

    async def ended(self) -> tuple[dict, list[dict]]:
        """What came of it: the result, and a row for each request."""
        self.process.send(signal.SIGINT)
        await asyncio.to_thread(self.process.wait_exit)
        rows = list(csv.DictReader(self._rows.read_text().splitlines()))
        return json.loads(self._report.read_text())["result"], rows


async def test_a_rolling_restart_of_every_role_fails_and_alters_no_answer(processes, tmp_path):
    mesh = Mesh(processes, processes.redis()[1])
    await mesh.start()
    async with balancing() as balancer:
        for gateway in mesh.gateways:
            await balancer.add(gateway)
        targets = [part for each in mesh.orchestrators for part in ("--target", each.address)]
        expected = await undisturbed(mesh.orchestrators[0].address)
        loads = [
            Load(tmp_path, "sdk", *targets, "--users", "16", *MIX),
            Load(tmp_path, "http", "--openai", balancer.url, "--users", "4"),
        ]
        processes.started += [load.process for load in loads]
        await asyncio.sleep(1)  # so that every stream has begun; nothing says so
        await mesh.roll(balancer)
        found = [await load.ended() for load in loads]
    for result, rows in found:
        assert result["errors"] == {}
        answered = [row for row in rows if row["outcome"] == "answered"]
        assert len(answered) >= 20
        for row in answered:
            prompt = PROMPTS[int(row["conversation"]) % len(PROMPTS)]
            assert row["text_digest"] == expected[prompt], (row, prompt)
    assert found[0][0]["counts"]["resumed"] > 0


async def undisturbed(target: str) -> dict[str, str]:
    """The digest of the answer to each prompt."""
    async with AsyncClient(target) as client:
        options = {"max_tokens": TOKENS, "ignore_end_of_text": True, "temperature": 0.0}
        said = [await answer(client, prompt, **options) for prompt in PROMPTS]
    assert len({each.text for each in said}) == len(PROMPTS)
    return {prompt: digest_of(each.text) for prompt, each in zip(PROMPTS, said, strict=True)}


async def test_connections_that_end_of_age_in_the_middle_of_calls_fail_and_alter_no_answer(
    processes,
):
    """The graces are far too short, so that calls are cut off: replicas' and clients' alike."""
    aged = ("--max-connection-age-seconds", "0.4", "--max-connection-grace-seconds", "0.3")
    redis = ("--redis-url", processes.redis()[1])
    slow = (*SIMULATED, "--simulated-each-ms", "25")
    verifiers = [processes.service("verifier", *slow, *aged, *redis) for _ in range(2)]
    drafters = [processes.service("drafter", *SIMULATED, *aged, *redis)]
    orchestrator = processes.orchestrator(verifiers, drafters, *aged, *redis)
    options = {"max_tokens": 80, "ignore_end_of_text": True, "temperature": 0.0}
    async with AsyncClient(orchestrator.address) as client:
        first, *others = await asyncio.gather(
            *(answer(client, PROMPTS[0], **options) for _ in range(6))
        )
    assert {each.token_ids for each in others} == {first.token_ids}
    assert first.num_resumes + sum(each.num_resumes for each in others) > 0
