"""Calls a verifier that computes nothing and a bare echo, in turns."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import grpc
from hdrh.histogram import HdrHistogram

from specmesh.cli.local.cores import available, place
from specmesh.cli.local.logs import serving_address
from specmesh.cli.local.process import PORT, ProcessSpec
from specmesh.cli.local.supervisor import Supervisor
from specmesh.v1 import verifier_pb2 as pb
from specmesh.v1.verifier_pb2_grpc import VerifierServiceStub

if TYPE_CHECKING:  # The asynchronous stub exists for the type checker only.
    from specmesh.v1.verifier_pb2_grpc import VerifierServiceAsyncStub

_NUM_WARM_UP = 300
_CALL_TIMEOUT_S = 10.0
_LONGEST_NS = 10**10
_SIGNIFICANT_DIGITS = 3
_NUM_PREFIX_TOKENS = 64
_LOOKAHEAD = 4


@dataclass(frozen=True, slots=True)
class HopTimes:
    """Round trips as one client sees them, one at a time, in milliseconds."""

    num_calls: int
    p50_ms: float
    p99_ms: float
    echo_p50_ms: float
    echo_p99_ms: float
    ratio: float
    """``p50_ms`` over ``echo_p50_ms``."""
    open_p50_ms: float
    """A request on an open call (VerifyEach), as the orchestrator sends them."""
    open_p99_ms: float
    echo_open_p50_ms: float
    echo_open_p99_ms: float


async def measure_hops(num_calls: int) -> HopTimes:
    """Time ``num_calls`` calls to each of two fresh processes. Raises StartError.

    They alternate, so that other load on the machine affects both alike.
    """
    with TemporaryDirectory(prefix="specmesh-hops-") as directory:
        supervisor = Supervisor(
            Path(directory), start_timeout_s=60, stop_timeout_s=5, report=_ignore
        )
        try:
            addresses = await supervisor.start(*_specs())
            return await _measure(addresses[0], addresses[1], num_calls)
        finally:
            await supervisor.stop()


def _ignore(line: str) -> None:
    """A server that dies makes the next call fail, which says enough."""


def _specs() -> tuple[ProcessSpec, ProcessSpec]:
    # Only one of the two works at a time, so they can share a core without harm.
    cores = place(available(), num_verifiers=1, threads=1).verifiers[0]
    empty = ("specmesh.verifier", "--backend", "empty", "--port", PORT, "--name", "empty")
    return (
        ProcessSpec("verifier", (sys.executable, "-m", *empty), serving_address, cores=cores),
        ProcessSpec(
            "echo",
            (sys.executable, "-m", "specmesh.bench.hops.echo_server"),
            serving_address,
            cores=cores,
        ),
    )


async def _measure(verifier: str, echo: str, num_calls: int) -> HopTimes:
    async with grpc.aio.insecure_channel(verifier) as one, grpc.aio.insecure_channel(echo) as two:
        stubs = (VerifierServiceStub(one), VerifierServiceStub(two))
        calls: list[_Called | _OnOpenCall] = [_Called(stub) for stub in stubs]
        calls += [_OnOpenCall(stub) for stub in stubs]
        histograms = tuple(HdrHistogram(1, _LONGEST_NS, _SIGNIFICANT_DIGITS) for _ in calls)
        for number in range(_NUM_WARM_UP + num_calls):
            for call, histogram in zip(calls, histograms, strict=True):
                elapsed_ns = await call()
                if number >= _NUM_WARM_UP:
                    histogram.record_value(elapsed_ns)
    p50, p99, echo_p50, echo_p99, *on_open_calls = (
        histogram.get_value_at_percentile(percentile) / 1e6
        for histogram in histograms
        for percentile in (50, 99)
    )
    return HopTimes(num_calls, p50, p99, echo_p50, echo_p99, p50 / echo_p50, *on_open_calls)


class _Called:
    """Times one call of Verify."""

    def __init__(self, stub: VerifierServiceAsyncStub) -> None:
        self._stub = stub

    async def __call__(self) -> int:
        request = _request()
        began_ns = time.perf_counter_ns()
        await self._stub.Verify(request, timeout=_CALL_TIMEOUT_S)
        return time.perf_counter_ns() - began_ns


class _OnOpenCall:
    """Times one request of VerifyEach."""

    def __init__(self, stub: VerifierServiceAsyncStub) -> None:
        self._call = stub.VerifyEach()

    async def __call__(self) -> int:
        message = pb.VerifyEachRequest(request=_request())
        began_ns = time.perf_counter_ns()
        async with asyncio.timeout(_CALL_TIMEOUT_S):
            await self._call.write(message)
            await self._call.read()
        return time.perf_counter_ns() - began_ns


def _request() -> pb.VerifyRequest:
    request = pb.VerifyRequest()
    request.prefix.token_ids.extend(range(_NUM_PREFIX_TOKENS))
    # The empty model's every token is 0, so the whole draft is accepted.
    request.tree.token_ids.extend([0] * _LOOKAHEAD)
    request.tree.parents.extend(range(_LOOKAHEAD))
    request.sampling.temperature = 0
    return request
