"""The orchestrator process: ``specmesh serve orchestrator``."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

import grpc.aio

from specmesh.decoding.trees.calibrated import CalibratedTrees
from specmesh.orchestrator.admission.accounts import Accounts
from specmesh.orchestrator.admission.controller import Admission
from specmesh.orchestrator.answers.request_metrics import report_early_refusal
from specmesh.orchestrator.driver.tree_file import check_trees, read_trees
from specmesh.orchestrator.replicas.discovery.entries import read_entries
from specmesh.orchestrator.replicas.discovery.follower import Follower
from specmesh.orchestrator.replicas.discovery.lookup import lookup
from specmesh.orchestrator.replicas.mesh_metrics import observe_answers, observe_replicas
from specmesh.orchestrator.replicas.pool.replica_pool import Pool
from specmesh.orchestrator.replicas.prefixes.holders import PrefixHolders
from specmesh.orchestrator.replicas.prefixes.shared_holders import SharedHolders
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.orchestrator.replicas.target import TargetRegistry
from specmesh.orchestrator.replicas.transport.connection import Channels, PlainChannels, TlsChannels
from specmesh.orchestrator.replicas.transport.peer_model import Admit
from specmesh.orchestrator.requests.answer_format import ModelFormats
from specmesh.orchestrator.requests.plan import Defaults
from specmesh.orchestrator.requests.prompts import PromptReader
from specmesh.orchestrator.servicer import GenerationServicer
from specmesh.orchestrator.settings import OrchestratorSettings
from specmesh.orchestrator.tokenizer_servicer import TokenizerServicer
from specmesh.serving.errors import ServiceError, UnavailableStatus
from specmesh.serving.identity.certificates import watched_certificate
from specmesh.serving.identity.expiry import reported_files
from specmesh.serving.identity.plaintext import check_plaintext_calls
from specmesh.serving.identity.roles import CONFIDENCE, DRAFTER, VERIFIER
from specmesh.serving.process.command_line import parse
from specmesh.serving.process.life_cycle import Supervision
from specmesh.serving.process.server import serve
from specmesh.serving.process.server_loop import run
from specmesh.serving.process.supervisor import supervise
from specmesh.serving.startup import CannotStart
from specmesh.serving.store.prefix_directory import PrefixDirectory
from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.store_watch import StoreWatch
from specmesh.v1 import generation_pb2, generation_pb2_grpc, tokenizer_pb2, tokenizer_pb2_grpc

log = logging.getLogger(__name__)

DRAFTER_SECONDS = 10.0
"""Longest wait for drafters at startup; without any, answers are decoded without speculation."""


class OrchestratorService:
    """The orchestrator as a ``Service``, which connects to the mesh and answers clients."""

    role = "orchestrator"
    names = (
        generation_pb2.DESCRIPTOR.services_by_name["GenerationService"].full_name,
        tokenizer_pb2.DESCRIPTOR.services_by_name["TokenizerService"].full_name,
    )

    def __init__(self, settings: OrchestratorSettings) -> None:
        self._settings = settings
        self._mesh: ReplicaPools | None = None
        self._followers: list[Follower] = []
        self._prompts = PromptReader()
        self._shared: SharedHolders | None = None
        self._store: SessionStore | None = None
        self._redis_certificates = reported_files((settings.redis_ca, settings.redis_cert))
        if (url := settings.redis_url) is not None:
            tls, prefix = settings.redis_tls, settings.redis_prefix
            self._store = SessionStore.from_url(url, tls=tls, prefix=prefix)
            if settings.prefix_directory:
                self._shared = SharedHolders(PrefixDirectory.from_url(url, tls=tls, prefix=prefix))
        self._store_watch: StoreWatch | None = None
        self._trees: CalibratedTrees | None = None

    async def start(self) -> None:
        """Create the pools of replicas, which connect in the background.

        Raises ``CannotStart`` if a remote replica would be called in plain text, if Redis may evict
        sessions, or if the calibrated trees can't be read."""
        self._trees = read_trees(self._settings.trees)
        if self._store is not None and self._settings.redis_check != "off":
            self._store_watch = StoreWatch(self._store)
            await self._store_watch.start(refuses=self._settings.redis_check == "refuse")
        channels = _channels(self._settings)
        self._targets = TargetRegistry()
        self._mesh = ReplicaPools(
            self._pool(
                *("verifier", "VerifierService", self._settings.verifiers),
                *(self._targets.admit_verifier, channels(VERIFIER)),
            ),
            self._pool(
                *("drafter", "DrafterService", self._settings.drafters),
                *(self._targets.admit_drafter, channels(DRAFTER)),
                dispensable=True,
            ),
            self._pool(
                *("confidence_service", "ConfidenceService", self._settings.confidence),
                *(None, channels(CONFIDENCE)),
                dispensable=True,
            ),
            admission=Admission(self._settings.max_wait_seconds),
            holders=PrefixHolders(shared=self._shared),
            shares_prefixes=self._settings.share_prefixes == "all",
            records_content=self._settings.record_content,
        )
        self._targets.follow(self._mesh.verifiers, self._mesh.drafters)
        observe_replicas(self._mesh)

    async def connect(self) -> None:
        """Return once a target replica is ready and, if drafters are configured, either a drafter
        is ready or ``DRAFTER_SECONDS`` have passed.

        Raises ``CannotStart`` if every drafter was refused, or if the calibrated trees belong to
        other models.
        """
        assert self._mesh is not None
        await self._await_verifier(self._mesh.verifiers)
        if self._mesh.drafters.configured:
            await self._await_drafters(self._mesh.drafters)
        if self._trees is not None:
            check_trees(self._trees, self._mesh.verifiers.ready, self._mesh.drafters.peers)

    def refusal(self, method: str) -> ServiceError:
        """Return why calls can't be answered yet, and report that a request is refused; another
        orchestrator may have a verifier even if all are refused here."""
        if self._mesh is None or self._mesh.verifiers.ready:
            error = UnavailableStatus("STARTING", "this orchestrator is still starting")
        else:
            error = UnavailableStatus("NO_VERIFIER", str(self._mesh.verifiers.none_usable()))
        report_early_refusal(method, error)
        return error

    def can_answer(self) -> bool:
        """Return whether a target replica is ready; drafters only make answers faster."""
        return self._mesh is not None and bool(self._mesh.verifiers.ready)

    def watched(self, watcher: Callable[[], None]) -> AbstractContextManager[None]:
        """Call ``watcher`` whenever the ready verifiers may have changed, until the block ends."""
        assert self._mesh is not None
        return self._mesh.verifiers.watched(watcher)

    def register(self, server: grpc.aio.Server) -> None:
        """Add GenerationService and TokenizerService to ``server``."""
        assert self._mesh is not None
        accounts = Accounts(self._settings.limits)
        servicer = GenerationServicer(
            self._mesh,
            self._targets,
            self._store,
            Defaults(
                *(self._settings.strategy, self._settings.lookahead, self._trees),
                as_model_says=self._settings.generation_config == "auto",
                formats=ModelFormats(self._settings.tool_format, self._settings.reasoning_format),
                chunk_interval_s=self._settings.chunk_interval_ms / 1e3,
            ),
            self._prompts,
            accounts,
        )
        generation_pb2_grpc.add_GenerationServiceServicer_to_server(servicer, server)
        tokenizer_pb2_grpc.add_TokenizerServiceServicer_to_server(
            TokenizerServicer(self._targets, self._prompts, accounts), server
        )
        observe_answers(self._mesh.admission, servicer.entrance)

    async def stop(self) -> None:
        """Close the connections to the mesh and the store, and stop the prompt readers."""
        await self._prompts.close()
        for follower in self._followers:
            await follower.close()
        if self._mesh is not None:
            await self._mesh.verifiers.close()
            await self._mesh.drafters.close()
            await self._mesh.confidence.close()
        if self._shared is not None:
            await self._shared.aclose()
        if self._store_watch is not None:
            await self._store_watch.stop()
        if self._store is not None:
            await self._store.aclose()

    def _pool(
        self,
        role: str,
        service: str,
        listed: str,
        admit: Admit | None,
        channels: Channels,
        *,
        dispensable: bool = False,
    ) -> Pool:
        """Create a pool of the replicas in ``listed`` and follow its DNS names."""
        entries = read_entries(listed)
        pool = Pool(
            *(role, f"specmesh.mesh.v1alpha1.{service}", entries.addresses, admit, channels),
            names=[str(name) for name in entries.names],
            dispensable=dispensable,
        )
        if entries.names:
            every_s = self._settings.resolve_seconds
            self._followers.append(Follower(pool, entries, lookup, every_s))
        return pool

    async def _await_verifier(self, verifiers: Pool) -> None:
        """Return once a verifier is ready. Where all are refused, another may take the place of
        one."""
        changed = asyncio.Event()
        with verifiers.watched(changed.set):
            while not verifiers.ready:
                changed.clear()
                await changed.wait()

    async def _await_drafters(self, drafters: Pool) -> None:
        try:
            await asyncio.wait_for(drafters.wait_ready(), DRAFTER_SECONDS)
        except TimeoutError:
            log.warning("no drafter is ready: answers are not speculated until one is")
            return
        refusals = [f"drafter {peer.title}: {peer.refusal}" for peer in drafters.peers]
        if not drafters.ready:
            raise CannotStart("; ".join(refusals))


def _channels(settings: OrchestratorSettings) -> Callable[[str], Channels]:
    """Return a factory of channels to the replicas of a role, with TLS if a CA is configured.

    Raises ``CannotStart`` if a remote replica would be called without TLS."""
    if settings.tls is None or settings.tls.ca is None:
        for listed in (settings.verifiers, settings.drafters, settings.confidence):
            entries = read_entries(listed)
            callees = (*entries.addresses, *(f"{each.host}:{each.port}" for each in entries.names))
            check_plaintext_calls(settings, callees, "--tls-ca")
        return lambda _: PlainChannels()
    certificate = watched_certificate(settings.tls)
    return lambda role: TlsChannels(certificate, role)


def work(settings: OrchestratorSettings, supervision: Supervision) -> int:
    """Run a process that serves until it is signalled to stop; return its exit status."""
    return run(serve(settings, OrchestratorService(settings), supervision))


if __name__ == "__main__":
    settings = parse(OrchestratorSettings, sys.argv[1:], "specmesh serve orchestrator")
    sys.exit(supervise(settings, OrchestratorService.role, work))
