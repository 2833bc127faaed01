"""The command line of one service of the mesh."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from specmesh.cli.local.logs import serving_address
from specmesh.cli.local.process import PORT, ProcessSpec

MODEL_NICENESS = {"verifier": 5, "drafter": 5, "confidence": 5}
"""The niceness of roles that compute, so that those which only pass messages on go first: a message
takes little of a forward's time, but may wait for its processor as long as a whole forward."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def service_spec(
    role: str,
    name: str,
    arguments: Sequence[str],
    *,
    port: str = PORT,
    threads: int = 1,
    environment: Mapping[str, str] | None = None,
    cores: frozenset[int] = frozenset(),
) -> ProcessSpec:
    """Return the process ``python -P -m specmesh.ROLE`` called ``name``; ``threads`` is the size of
    its libraries' thread pools. By ``-P`` files in the current folder are not taken for modules."""
    return ProcessSpec(
        name=name,
        command=(
            *(sys.executable, "-P", "-m", f"specmesh.{role}"),
            *("--host", "127.0.0.1", "--port", port, "--name", name),
            *arguments,
        ),
        ready=serving_address,
        environment={
            **dict.fromkeys(_THREAD_VARIABLES, str(threads)),
            **(environment or {}),
        },
        cores=cores,
        niceness=MODEL_NICENESS.get(role, 0),
    )
