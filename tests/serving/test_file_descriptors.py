"""A process may open as many files as its operator allows, and tells when that is not enough."""

from __future__ import annotations

import asyncio
import os
import resource

import pytest

from specmesh.serving.process import resources
from specmesh.serving.process.resources import allow_all_descriptors, report_lack_of_descriptors


@pytest.fixture
def limits():
    """The limits of open files, which a test may lower."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_lower_limit_is_raised_to_the_higher_one(limits):
    _, most = limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, most), most))
    allow_all_descriptors()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most)


async def test_a_process_that_can_open_no_more_says_so_once_each_time(limits, monkeypatch, caplog):
    monkeypatch.setattr(resources, "PERIOD_SECONDS", 0)
    _, most = limits
    free = os.open(os.devnull, os.O_RDONLY)  # the lowest number that is free
    os.close(free)
    reporting = asyncio.create_task(report_lack_of_descriptors())
    told = []
    for limit in (limits[0], free, free, limits[0], free):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
        await asyncio.sleep(0)
        told.append(len(caplog.records))
    reporting.cancel()
    assert told == [0, 1, 1, 1, 2]
    assert "too many open files" in caplog.text
