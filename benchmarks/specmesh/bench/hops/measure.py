"""The measurement: calls to a verifier that computes nothing, the same over mTLS, and a bare echo,
in turns."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import grpc
from hdrh.histogram import HdrHistogram

from specmesh.cli.local.cores import available, place
from specmesh.cli.local.logs import serving_address
from specmesh.cli.local.process import PORT, ProcessSpec
from specmesh.cli.local.supervisor import Supervisor
from specmesh.mesh.v1alpha1 import verifier_pb2 as pb
from specmesh.mesh.v1alpha1.verifier_pb2_grpc import VerifierServiceStub
from specmesh.serving.certs.folder import bearers, make
from specmesh.serving.identity.certificates import TlsFiles, role_channel, watched_certificate
from specmesh.serving.identity.roles import ORCHESTRATOR, VERIFIER

if TYPE_CHECKING:  # The asynchronous stub exists for the type checker only.
    from specmesh.mesh.v1alpha1.verifier_pb2_grpc import VerifierServiceAsyncStub

_NUM_WARM_UP = 300
_CALL_TIMEOUT_S = 10.0
_LONGEST_NS = 10**10
_SIGNIFICANT_DIGITS = 3
_NUM_PREFIX_TOKENS = 64
_LOOKAHEAD = 4
_TRUST_DOMAIN = "hops.internal"


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
    tls_p50_ms: float
    """The same verifier over mTLS, as the orchestrator of a mesh with certificates calls it."""
    tls_p99_ms: float
    tls_open_p50_ms: float
    tls_open_p99_ms: float
    tls_ratio: float
    """``tls_p50_ms`` over ``p50_ms``."""
    tls_open_ratio: float
    """``tls_open_p50_ms`` over ``open_p50_ms``."""


async def measure_hops(num_calls: int) -> HopTimes:
    """Time ``num_calls`` calls to each of three fresh processes. Raises StartError.

    They alternate, so that other load on the machine affects all equally.
    """
    with TemporaryDirectory(prefix="specmesh-hops-") as directory:
        folder = Path(directory)
        certs = folder / "certs"
        make(certs, _TRUST_DOMAIN, bearers(_TRUST_DOMAIN, (), ()), timedelta(days=1), force=False)
        supervisor = Supervisor(folder, start_timeout_s=60, stop_timeout_s=5, report=_ignore)
        try:
            verifier, echo, tls = await supervisor.start(*_specs(certs))
            mine = watched_certificate(_files(certs, ORCHESTRATOR)).current()
            async with (
                grpc.aio.insecure_channel(verifier) as one,
                grpc.aio.insecure_channel(echo) as two,
                role_channel(tls, VERIFIER, mine) as three,
            ):
                stubs = [VerifierServiceStub(channel) for channel in (one, two, three)]
                return await _measure(stubs, num_calls)
        finally:
            await supervisor.stop()


def _ignore(line: str) -> None:
    """Ignore the line: a server that dies makes the next call fail, which says enough."""


def _specs(certs: Path) -> tuple[ProcessSpec, ...]:
    # Only one of them works at a time, so they can share a core.
    cores = place(available(), num_verifiers=1, threads=1).verifiers[0]
    empty = ("specmesh.verifier", "--backend", "empty", "--port", PORT, "--name")
    files = _files(certs, VERIFIER)
    tls = ("--tls-cert", str(files.cert), "--tls-key", str(files.key), "--tls-ca", str(files.ca))
    commands = {
        "verifier": (*empty, "verifier"),
        "echo": ("specmesh.bench.hops.echo_server",),
        "tls-verifier": (*empty, "tls-verifier", *tls),
    }
    return tuple(
        ProcessSpec(name, (sys.executable, "-P", "-m", *command), serving_address, cores=cores)
        for name, command in commands.items()
    )


def _files(certs: Path, role: str) -> TlsFiles:
    return TlsFiles(certs / f"{role}.pem", certs / f"{role}-key.pem", certs / "ca.pem")


async def _measure(stubs: Sequence[VerifierServiceAsyncStub], num_calls: int) -> HopTimes:
    """Time a verifier, an echo and a verifier over mTLS."""
    calls: list[_Called | _OnOpenCall] = [*map(_Called, stubs), *map(_OnOpenCall, stubs)]
    histograms = [HdrHistogram(1, _LONGEST_NS, _SIGNIFICANT_DIGITS) for _ in calls]
    for number in range(_NUM_WARM_UP + num_calls):
        for call, histogram in zip(calls, histograms, strict=True):
            elapsed_ns = await call()
            if number >= _NUM_WARM_UP:
                histogram.record_value(elapsed_ns)
    p50, echo_p50, tls_p50, open_p50, echo_open_p50, tls_open_p50 = _ms(histograms, 50)
    p99, echo_p99, tls_p99, open_p99, echo_open_p99, tls_open_p99 = _ms(histograms, 99)
    return HopTimes(
        num_calls=num_calls,
        p50_ms=p50,
        p99_ms=p99,
        echo_p50_ms=echo_p50,
        echo_p99_ms=echo_p99,
        ratio=p50 / echo_p50,
        open_p50_ms=open_p50,
        open_p99_ms=open_p99,
        echo_open_p50_ms=echo_open_p50,
        echo_open_p99_ms=echo_open_p99,
        tls_p50_ms=tls_p50,
        tls_p99_ms=tls_p99,
        tls_open_p50_ms=tls_open_p50,
        tls_open_p99_ms=tls_open_p99,
        tls_ratio=tls_p50 / p50,
        tls_open_ratio=tls_open_p50 / open_p50,
    )


def _ms(histograms: Sequence[HdrHistogram], percentile: int) -> list[float]:
    return [histogram.get_value_at_percentile(percentile) / 1e6 for histogram in histograms]


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
