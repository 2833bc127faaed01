"""The number of files and connections that a process may have open."""

from __future__ import annotations

import resource


def allow_all_descriptors() -> None:
    """Raise this process's limit to what the operator allows. The lower one, mostly 1,024, is for
    programs that call ``select``; every connection takes a descriptor."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
