"""The number of files that a process may open."""

from __future__ import annotations

import resource


def allow_all_descriptors() -> None:
    """Raise this process's limit of open files to what the operator allows. The lower one, mostly
    1,024, is for programs that call ``select``; every connection takes a descriptor."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
