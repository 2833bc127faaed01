"""``specmesh up --backend vllm``, as a user of vLLM's environment runs it."""

import asyncio
import os
import re
import signal

import psutil
from tests.e2e.answers import answer, disturbed, said
from tests.forks import surroundings
from tests.vllm import PYTHON, START_SECONDS, needs_vllm

from specmesh.client import AsyncClient
from specmesh.orchestrator.strategies import LOSSLESS, STRATEGIES

pytestmark = needs_vllm

SAMPLING = {"temperature": 0.8, "seed": 23}


async def test_up_answers_resumes_and_drains(client, prompts):
    """By every strategy that takes no heads; also when the orchestrator is killed, and while it is
    asked to end. No process is left."""
    up = await asyncio.create_subprocess_exec(
        *(PYTHON, "-c", "from specmesh.cli.main import main; main()"),
        *("up", "--backend", "vllm", "--drafter-backend", "vllm", "--port", "0"),
        *("--trace", "off", "--confidence", "0", "--drain-seconds", "30"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=surroundings(),
    )
    try:
        async with asyncio.timeout(START_SECONDS):
            pids = {}
            while "orchestrator" not in pids:
                line = (await up.stdout.readline()).decode()
                assert line, (await up.stderr.read()).decode()
                if found := re.match(r" +([\w-]+) +(\S+) +pid (\d+)", line):
                    pids[found[1]], address = int(found[3]), found[2]
        children = psutil.Process(up.pid).children(recursive=True)
        async with AsyncClient(address) as own, asyncio.timeout(120):
            for strategy in (name for name in LOSSLESS if not STRATEGIES[name].needs_heads):
                options = {**SAMPLING, "max_tokens": 32, "strategy": strategy}
                told = await answer(own, prompts[0], **options)
                assert said(told) == said(await answer(client, prompts[0], **options)), strategy

            options = {**SAMPLING, "max_tokens": 200, "ignore_end_of_text": True}
            expected = said(await answer(client, prompts[1], **options))

            async def kill():
                os.kill(pids["orchestrator"], signal.SIGKILL)

            told = await disturbed(own, prompts[1], kill, **options, strategy="dsi")
            assert said(told) == expected
            assert told.num_resumes == 1

            async def interrupt():
                up.send_signal(signal.SIGINT)

            told = await disturbed(own, prompts[1], interrupt, **options, strategy="speculative")
            assert said(told) == expected
            assert told.num_resumes == 0
            output, reports = await up.communicate()
    finally:
        if up.returncode is None:  # the test failed: take the mesh along
            up.kill()
    assert up.returncode == 0
    assert output.decode().endswith("the mesh is down\n")
    assert "orchestrator died" in reports.decode()
    assert not any(child.is_running() for child in children)
