"""Unary calls, tried at one target after the other until the deadline."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import grpc

from specmesh.client.connections.channels import Endpoint
from specmesh.client.connections.cut_off import cut_off_is_an_error
from specmesh.client.connections.metadata import Metadata
from specmesh.client.connections.recovery import Recovery, RetryPolicy, is_lost, out_of_time
from specmesh.client.connections.status import from_rpc_error
from specmesh.client.errors import DeadlineExceeded, SpecmeshError
from specmesh.client.hooks import BrokenCall, Hooks
from specmesh.client.telemetry import callers_metadata

R = TypeVar("R")
Invoke = Callable[[Endpoint, float, Metadata], Awaitable[R]]
"""A function that calls a target, with a timeout in seconds and metadata."""


async def call(
    targets: Iterator[Endpoint], limits: RetryPolicy, hooks: Hooks, invoke: Invoke[R]
) -> R:
    """Return the response of the first target that gives one; only for idempotent calls.

    Raises a SpecmeshError: Cancelled if the client is closed meanwhile.
    """
    now = asyncio.get_running_loop().time
    deadline = now() + limits.timeout_s
    recovery = Recovery(limits, random.Random())  # noqa: S311 - jitter need not be unguessable
    broken: SpecmeshError | None = None
    while True:
        target = next(targets)
        num_suspensions = target.num_suspensions
        try:
            return await _once(target, max(deadline - now(), 0), invoke)
        except DeadlineExceeded as error:
            raise out_of_time(error, broken) from broken
        except SpecmeshError as error:
            if target.is_closed:
                raise error.with_traceback(None) from None  # as in `from_rpc_error`
            if target.num_suspensions > num_suspensions:
                continue  # The next call begins after `reopen`, and nothing is broken.
            broken = error
            if is_lost(error):
                target.broke(error)
            pause_s = recovery.pause_s(error, has_begun=False)
            if pause_s is None or now() + pause_s > deadline:
                raise
            hooks.broke(BrokenCall(target.address, error, recovery.num_broken, pause_s, ""))
        await asyncio.sleep(pause_s)


async def _once(target: Endpoint, timeout_s: float, invoke: Invoke[R]) -> R:
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), cut_off_is_an_error(target):
                metadata = (*await target.metadata(), *callers_metadata())
                return await invoke(target, timeout_s, metadata)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error.with_traceback(None)
    raise DeadlineExceeded(
        f"no answer within {timeout_s:g} s", code=grpc.StatusCode.DEADLINE_EXCEEDED
    )
