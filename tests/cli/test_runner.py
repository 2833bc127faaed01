"""Ctrl-C, once and twice."""

import asyncio
import os
import signal
import sys

import pytest
import typer

from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.runner import run, until_signalled


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_first_signal_cancels_and_the_second_kills(number):
    stopping, killed = asyncio.Event(), asyncio.Event()

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await killed.wait()

    task = asyncio.create_task(until_signalled(work(), killed.set))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        os.kill(os.getpid(), number)
        await stopping.wait()
        assert not task.done()
        os.kill(os.getpid(), number)
        assert await task == ExitStatus.INTERRUPTED


async def test_work_that_ends_by_itself_gives_its_status():
    async def work():
        return 3

    assert await until_signalled(work(), lambda: None) == 3


def test_a_package_that_is_missed_late_is_told_in_one_line(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    async def work():
        from matplotlib.figure import Figure  # noqa: F401

    with pytest.raises(typer.Exit) as ended:
        run(work())
    assert ended.value.exit_code == ExitStatus.FAILED
    said = capsys.readouterr().err
    assert said == "specmesh: matplotlib.figure is not installed: pip install 'specmesh[local]'\n"
