"""What a process logs while kernels are compiled: its first start takes long because of it."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)


def tell_of_compiling() -> None:
    """Log that a kernel is being compiled, since the disk does not have it."""
    log.info(
        "compiling kernels for this processor: a minute or two, once where the disk keeps them"
    )
