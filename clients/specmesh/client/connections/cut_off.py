"""Calls that are cancelled because their connection is closed, not by whoever waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from specmesh.client.connections.channels import Endpoint, client_closed
from specmesh.client.errors import SpecmeshError, Unavailable


@asynccontextmanager
async def cut_off_is_an_error(target: Endpoint) -> AsyncIterator[None]:
    """Raise Unavailable if the call in the block was cancelled because ``target`` was suspended,
    and Cancelled if because it was closed; a cancellation by the waiting task passes through."""
    num_suspensions = target.num_suspensions
    try:
        yield
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        broke: SpecmeshError
        if target.is_closed:
            broke = client_closed()
        elif target.num_suspensions > num_suspensions:
            broke = Unavailable("the connection was suspended", code=grpc.StatusCode.UNAVAILABLE)
        else:
            raise
        cancelled.with_traceback(None)  # as in `from_rpc_error`
    else:
        return
    raise broke
