"""A chat template can neither run for ever, nor fill the memory, nor outlive its orchestrator."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from specmesh.orchestrator.chats import sandbox
from specmesh.orchestrator.chats.renderer import INHERITED, ChatRenderer
from specmesh.serving.errors import InvalidArgument, ResourceExhaustedStatus

MOST = 1 << 20
EMPTY = {"messages": []}
"""A chat whose template need not show anything."""
FOR_EVER = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"

DOUBLING = (
    "{% set n = namespace(x='x') %}{% for _ in range(40) %}{% set n.x = n.x ~ n.x %}{% endfor %}"
)


@pytest.fixture
async def renderer():
    renderer = ChatRenderer()
    yield renderer
    await renderer.close()
    assert children() == []


def children() -> list[psutil.Process]:
    """The processes of sandboxes that this process has."""
    return [child for child in psutil.Process().children() if sandbox.__name__ in child.cmdline()]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (FOR_EVER, "more than 1 s of processor time"),
        ("{{ 9 ** (9 ** 9) }}", "more than 1 s of processor time"),
        ("{{ 'x' * 10 ** 10 }}", "more than 512 MiB of memory"),
        (DOUBLING, "more than"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
    ids=["loop", "one operation", "large string", "doubling", "recursion"],
)
async def test_costly_template_is_refused_and_the_next_chat_is_not(renderer, source, said):
    with pytest.raises(InvalidArgument, match=said) as refused:
        await renderer.render(source, EMPTY, MOST)
    assert refused.value.reason == "CHAT_REFUSED"
    assert await renderer.render("{{ x }}", EMPTY | {"x": "fine"}, MOST) == "fine"


async def test_the_event_loop_goes_on_while_a_template_runs_for_ever(renderer):
    await renderer.render("", EMPTY, MOST)
    pauses, loop = [0.0], asyncio.get_running_loop()

    async def tick() -> None:
        while True:
            began = loop.time()
            await asyncio.sleep(0.001)
            pauses.append(loop.time() - began)

    ticking = asyncio.create_task(tick())
    with pytest.raises(InvalidArgument):
        await renderer.render(FOR_EVER, EMPTY, MOST)
    ticking.cancel()
    assert len(pauses) > 10
    assert max(pauses) < sandbox.CPU_SECONDS / 2


async def test_one_process_renders_all_chats_and_another_takes_its_place(renderer):
    texts = await asyncio.gather(
        *(renderer.render("{{ n }}", EMPTY | {"n": n}, MOST) for n in range(50))
    )
    assert texts == [str(n) for n in range(50)]
    (process,) = children()
    process.kill()
    await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert await renderer.render("again", EMPTY, MOST) == "again"
    assert children() != [process]


async def test_chats_whose_clients_have_gone_do_not_disturb_the_next(renderer):
    gone = [
        asyncio.create_task(renderer.render("{{ n }}", EMPTY | {"n": "x"}, MOST)) for _ in range(20)
    ]
    await asyncio.sleep(0)
    for task in gone[::2]:
        task.cancel()
    assert await renderer.render("{{ n }}", EMPTY | {"n": "y"}, MOST) == "y"
    assert {await task for task in gone[1::2]} == {"x"}


async def test_chat_for_which_there_is_no_room_to_wait_is_refused(monkeypatch):
    monkeypatch.setattr("specmesh.orchestrator.chats.renderer.MAX_WAITING", 1)
    renderer = ChatRenderer()
    try:
        admitted = [asyncio.create_task(renderer.render("fine", EMPTY, MOST)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ResourceExhaustedStatus) as refused:
            await renderer.render("fine", EMPTY, MOST)
        assert refused.value.reason == "OVERLOADED"
        assert refused.value.retry_after_s
        assert [await task for task in admitted] == ["fine", "fine"]
    finally:
        await renderer.close()


async def test_text_is_cut_where_it_becomes_too_long(renderer):
    text = await renderer.render("{% for _ in range(9999) %}ä{% endfor %}", EMPTY, 100)
    assert text == "ä" * 51


async def test_passwords_are_not_in_the_environment_of_templates(renderer, monkeypatch):
    monkeypatch.setenv("REDIS_URL", "redis://:secret@127.0.0.1:1")
    await renderer.render("", EMPTY, MOST)
    (process,) = children()
    assert set(process.environ()) <= {*INHERITED, "LC_CTYPE"}


def test_the_process_ends_with_its_orchestrator_also_within_a_loop():
    for job in (None, {"source": FOR_EVER, "variables": EMPTY, "max_bytes": 1}):
        with subprocess.Popen(
            [sys.executable, "-m", sandbox.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        ) as process:
            if job is not None:
                sandbox.write_frame(process.stdin, job)
            process.stdin.close()
            assert process.wait(60) == (-signal.SIGPROF if job else 0)


async def test_a_process_that_hangs_is_killed(renderer, monkeypatch):
    await renderer.render("", EMPTY, MOST)
    monkeypatch.setattr("specmesh.orchestrator.chats.renderer.MOST_SECONDS", 0.2)
    (process,) = children()
    process.suspend()
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="status -9"):
        await renderer.render("", EMPTY, MOST)
    assert time.monotonic() - began < 20
