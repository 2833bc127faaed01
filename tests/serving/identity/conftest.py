"""Certificates of every role, and a server that says who called it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.servers import running_server

from specmesh.mesh.v1alpha1 import verifier_pb2, verifier_pb2_grpc
from specmesh.serving import caller
from specmesh.serving.certs.authority import Authority, CertificateSubject, Issued
from specmesh.serving.certs.folder import bearers, make
from specmesh.serving.errors import error_info
from specmesh.serving.identity.settings import BearerSettings
from specmesh.serving.settings import ServerSettings
from specmesh.v1 import generation_pb2, generation_pb2_grpc, served_model_pb2

GENERATION = "/specmesh.v1.GenerationService/"
VERIFIER = "/specmesh.mesh.v1alpha1.VerifierService/"
TRUST_DOMAIN = "test.internal"
DAY = timedelta(days=1)


class Settings(BearerSettings, ServerSettings):
    pass


class Service(
    verifier_pb2_grpc.VerifierServiceServicer, generation_pb2_grpc.GenerationServiceServicer
):
    role = "orchestrator"
    names = ("specmesh.v1.GenerationService", "specmesh.mesh.v1alpha1.VerifierService")

    def __init__(self) -> None:
        self.callers: list[str] = []
        """Who called, once for each message that was answered."""

    async def start(self) -> None:
        pass

    def register(self, server: grpc.aio.Server) -> None:
        verifier_pb2_grpc.add_VerifierServiceServicer_to_server(self, server)
        generation_pb2_grpc.add_GenerationServiceServicer_to_server(self, server)

    async def stop(self) -> None:
        pass

    async def Verify(self, request, context):  # noqa: N802
        self.callers.append(caller.identity())
        return verifier_pb2.VerifyResponse()

    async def VerifyEach(self, request_iterator, context):  # noqa: N802
        async for _ in request_iterator:
            await asyncio.sleep(0)
            self.callers.append(caller.identity())
            yield verifier_pb2.VerifyEachResponse()

    async def ListModels(self, request, context):  # noqa: N802
        self.callers.append(caller.identity())
        return served_model_pb2.ListModelsResponse()

    async def Generate(self, request, context):  # noqa: N802
        for _ in range(2):
            await asyncio.sleep(0)
            self.callers.append(await asyncio.create_task(_identity()))
            yield generation_pb2.GenerateResponse()


async def _identity() -> str:
    return caller.identity()


@pytest.fixture(scope="session")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a CA and certificates of all roles, and of the clients alice and bob."""
    folder = tmp_path_factory.mktemp("certs")
    make(folder, TRUST_DOMAIN, bearers(TRUST_DOMAIN, (), ("alice", "bob")), DAY, force=False)
    return folder


@pytest.fixture
def certs(issued: Path, tmp_path: Path) -> Path:
    """A copy of them to change."""
    return Path(shutil.copytree(issued, tmp_path / "certs"))


def flags(certs: Path, name: str) -> dict[str, Path]:
    """Settings of TLS with the certificate ``name``."""
    return {
        "tls_cert": certs / f"{name}.pem",
        "tls_key": certs / f"{name}-key.pem",
        "tls_ca": certs / "ca.pem",
    }


def put(certs: Path, name: str, issued: Issued) -> None:
    (certs / f"{name}.pem").write_bytes(issued.certificate_pem)
    (certs / f"{name}-key.pem").write_bytes(issued.key_pem)


def authority_in(certs: Path) -> Authority:
    return Authority.load((certs / "ca.pem").read_bytes(), (certs / "ca-key.pem").read_bytes())


def client_of(role: str) -> CertificateSubject:
    return CertificateSubject(role, f"spiffe://{TRUST_DOMAIN}/specmesh/{role}")


@pytest.fixture
def service() -> Service:
    return Service()


Serve = Callable[..., Any]


@pytest.fixture
async def serve(service: Service) -> AsyncIterator[Serve]:
    """Serves under settings and gives the port."""
    async with AsyncExitStack() as stack:

        async def serving(**settings: Any) -> str:
            parsed = Settings(drain_seconds=0, **settings)
            address = await stack.enter_async_context(running_server(parsed, service))
            return str(address).rpartition(":")[2]

        yield serving


Dial = Callable[..., grpc.aio.Channel]


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """Opens a channel of its own to a port, with the certificate ``name`` in a folder."""
    channels = []

    def dialled(port: str, certs: Path, name: str | None, ca: Path | None = None) -> Any:
        pair = [None, None]
        if name is not None:
            pair = [(certs / f"{name}{end}.pem").read_bytes() for end in ("-key", "")]
        credentials = grpc.ssl_channel_credentials((ca or certs / "ca.pem").read_bytes(), *pair)
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels.append(grpc.aio.secure_channel(f"localhost:{port}", credentials, options))
        return channels[-1]

    yield dialled
    for channel in channels:
        await channel.close()


def list_models(channel: grpc.aio.Channel, token: str | None = None) -> Any:
    metadata = None if token is None else (("authorization", f"Bearer {token}"),)
    return channel.unary_unary(f"{GENERATION}ListModels")(b"", metadata=metadata, timeout=10)


def verify(channel: grpc.aio.Channel, request: bytes = b"") -> Any:
    return channel.unary_unary(f"{VERIFIER}Verify")(request, timeout=10)


async def refusal(call: Any) -> tuple[grpc.StatusCode, str | None]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    info = error_info(raised.value)
    return raised.value.code(), info and info.reason
