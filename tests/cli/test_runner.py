"""Ctrl-C, once and twice."""

import asyncio
import os
import signal
import sys

import pytest
import typer

from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.runner import run, until_signalled


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (signal.SIGINT, signal.SIGINT),
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGHUP, signal.SIGTERM),
    ],
)
async def test_the_first_signal_cancels_and_the_second_kills(first, second):
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
        os.kill(os.getpid(), first)
        await stopping.wait()
        assert not task.done()
        os.kill(os.getpid(), second)
        assert await task == ExitStatus.INTERRUPTED


async def test_a_terminal_that_goes_away_kills_nothing_however_often_it_is_told():
    stopping, told, killed = asyncio.Event(), asyncio.Event(), []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await told.wait()

    task = asyncio.create_task(until_signalled(work(), lambda: killed.append(True)))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        os.kill(os.getpid(), signal.SIGHUP)
        await stopping.wait()
        os.kill(os.getpid(), signal.SIGHUP)
        asyncio.get_running_loop().call_later(0.05, told.set)
        assert await task == ExitStatus.INTERRUPTED
    assert killed == []


async def test_a_terminal_that_goes_away_ends_nothing_where_that_is_ignored():
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as by nohup
    try:

        async def work():
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0)
            return 3

        assert await until_signalled(work(), lambda: None) == 3
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, former)


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
