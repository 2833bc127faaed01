"""The orchestrator through which ways of decoding are tried."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from specmesh.cli.local.process import StartError
from specmesh.client import AsyncClient, SpecmeshError
from specmesh.tools.profile.measure.replicas import Replica


@asynccontextmanager
async def serving(client: AsyncClient, address: str, verifier: Replica) -> AsyncIterator[None]:
    """Check that the orchestrator at ``address`` serves the target of ``verifier``, before anything
    is measured that would be lost; errors of its calls then name it.

    Raises StartError if it serves another target, SpecmeshError if it can't be asked.
    """
    try:
        served = [each.target for each in await client.list_models()]
        if verifier.info.weights_digest not in {each.weights_digest for each in served}:
            names = ", ".join(each.name for each in served) or "none"
            raise StartError(
                f"the orchestrator at {address} serves another target ({names}) than the verifier "
                f"at {verifier.address} ({verifier.info.name})"
            )
        yield
    except SpecmeshError as error:
        error.add_note(f"the orchestrator is at {address}")
        raise
