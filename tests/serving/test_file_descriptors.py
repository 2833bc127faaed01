"""A process may open as many files as its operator allows."""

from __future__ import annotations

import resource

from specmesh.serving.process.resources import allow_all_descriptors


def test_the_lower_limit_is_raised_to_the_higher_one():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
    try:
        allow_all_descriptors()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
