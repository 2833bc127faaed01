"""The orchestrator process: ``specmesh serve orchestrator``."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Literal

import grpc.aio
from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from specmesh.decoding.trees.calibrated import CalibratedTrees
from specmesh.orchestrator.admission.accounts import Accounts
from specmesh.orchestrator.admission.controller import MAX_WAIT_SECONDS, Admission
from specmesh.orchestrator.admission.limits import Quota
from specmesh.orchestrator.admission.request_limits import MAX_LOOKAHEAD, MAX_REQUEST_BYTES
from specmesh.orchestrator.driver.tree_file import check_trees, read_trees
from specmesh.orchestrator.replicas.calls.mesh_calls import ReplicaPools
from specmesh.orchestrator.replicas.discovery.entries import read_entries
from specmesh.orchestrator.replicas.discovery.follower import EVERY_SECONDS, Follower
from specmesh.orchestrator.replicas.discovery.lookup import lookup
from specmesh.orchestrator.replicas.mesh_metrics import observe
from specmesh.orchestrator.replicas.pool.replica_pool import Pool
from specmesh.orchestrator.replicas.prefixes.holders import PrefixHolders
from specmesh.orchestrator.replicas.prefixes.shared_holders import SharedHolders
from specmesh.orchestrator.replicas.target import TargetRegistry
from specmesh.orchestrator.replicas.transport.connection import Channels, PlainChannels, TlsChannels
from specmesh.orchestrator.replicas.transport.peer import Admit
from specmesh.orchestrator.requests.plan import Defaults
from specmesh.orchestrator.requests.prompts import PromptReader
from specmesh.orchestrator.servicer import GenerationServicer
from specmesh.orchestrator.strategies import LOSSLESS
from specmesh.orchestrator.tokenizer_servicer import TokenizerServicer
from specmesh.serving.identity.certificates import watched_certificate
from specmesh.serving.identity.expiry import reported_files
from specmesh.serving.identity.plaintext import check_plaintext_calls
from specmesh.serving.identity.roles import CONFIDENCE, DRAFTER, VERIFIER
from specmesh.serving.identity.settings import BearerSettings
from specmesh.serving.process.command_line import parse
from specmesh.serving.process.event_loop import run
from specmesh.serving.process.server import serve
from specmesh.serving.settings import MAX_PORT, RedisSettings, ServerSettings
from specmesh.serving.startup import CannotStart
from specmesh.serving.store.prefix_directory import PrefixDirectory
from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.store_watch import StoreWatch
from specmesh.v1 import generation_pb2, generation_pb2_grpc, tokenizer_pb2, tokenizer_pb2_grpc

log = logging.getLogger(__name__)

DRAFTER_SECONDS = 10.0
"""How long the start waits for drafters; without any, answers come without speculation."""


def _check_strategy(name: str) -> str:
    """Refuse a default that may change the text: only a request may name such a strategy."""
    if name not in LOSSLESS:
        raise ValueError(f"must be one of: {', '.join(LOSSLESS)}")
    return name


def _check_entries(listed: str) -> str:
    """Refuse a list of replicas that can't be read."""
    read_entries(listed)
    return listed


class OrchestratorSettings(BearerSettings, ServerSettings, RedisSettings):
    """Serves clients: drives drafters and verifiers to answer their requests."""

    model_config = SettingsConfigDict(env_prefix="SPECMESH_ORCHESTRATOR__")

    port: int = Field(
        50051,
        ge=0,
        le=MAX_PORT,
        description="port to listen on, which clients try by default; 0 takes any free one",
    )
    max_request_bytes: int = Field(
        MAX_REQUEST_BYTES,
        ge=1024,
        le=2**30,
        description="largest request that is taken in; a prompt must fit the context besides",
    )
    max_held_bytes: int = Field(
        64 * 2**20,
        ge=1024,
        le=2**40,
        description="bytes of all requests under way; the process takes up to five times as much "
        "memory for them",
    )
    verifiers: Annotated[str, AfterValidator(_check_entries)] = Field(
        description="the target's replicas, comma-separated: host:port for one, dns:///host:port "
        "for all to which DNS resolves the name, as they come and go"
    )
    drafters: Annotated[str, AfterValidator(_check_entries)] = Field(
        "", description="drafters, in the same way"
    )
    confidence: Annotated[str, AfterValidator(_check_entries)] = Field(
        "",
        description="replicas of the confidence service, in the same way; for requests that name "
        "the strategy 'filter'",
    )
    resolve_seconds: float = Field(
        EVERY_SECONDS, gt=0, description="how often names of replicas are looked up in DNS"
    )
    strategy: Annotated[str, AfterValidator(_check_strategy)] = Field(
        "speculative", description="strategy of requests that name none"
    )
    max_wait_seconds: float = Field(
        MAX_WAIT_SECONDS,
        ge=0,
        description="how long a request may wait for its turn while the mesh is full; who would "
        "wait longer is refused at once",
    )
    share_prefixes: Literal["identity", "all"] = Field(
        "identity",
        description="who shares cached prefixes; 'all' is faster where many send the same, and "
        "lets each find out by timing what others have sent",
    )
    prefix_directory: bool = Field(
        True,
        description="tell the other orchestrators through Redis which replica holds which prefix, "
        "so that the next turn of a chat finds it at any of them",
    )
    max_answers_per_identity: int | None = Field(
        None, ge=1, description="answers that one identity may have at once"
    )
    max_tokens_per_minute: int | None = Field(
        None, ge=1, description="output tokens that one identity may have in a minute"
    )
    max_verified_nodes_per_minute: int | None = Field(
        None,
        ge=1,
        description="nodes of trees, roots included, that the target may verify in a minute for "
        "one identity",
    )
    max_request_bytes_per_minute: int | None = Field(
        None,
        ge=1,
        description="bytes of requests that one identity may send in a minute: prompts, chats, and "
        "all else that is tokenized, detokenized or rendered",
    )
    lookahead: int | None = Field(
        None,
        ge=1,
        le=MAX_LOOKAHEAD,
        description="draft tokens a verification covers; by default what suits the strategy",
    )
    trees: Path | None = Field(
        None,
        description="file of trees that 'specmesh calibrate tree' wrote of the target and the "
        "first drafter, for requests that name the strategy 'tree' and a width",
    )
    redis_check: Literal["refuse", "warn", "off"] = Field(
        "refuse",
        description="what is done about a Redis that may evict sessions, as maxmemory-policy "
        "allkeys-lru does: nothing starts, or it is logged like settings that lose sessions with "
        "a server, or settings are not looked at",
    )
    record_content: bool = Field(
        False, description="put the texts of tokens into traces, for whoever may read those"
    )

    @property
    def limits(self) -> Quota:
        """What each identity may use."""
        return Quota(
            self.max_answers_per_identity,
            self.max_tokens_per_minute,
            self.max_verified_nodes_per_minute,
            self.max_request_bytes_per_minute,
        )


class OrchestratorService:
    """The orchestrator as a ``Service``: connects to the mesh and answers clients."""

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
        """Look for the mesh. Raises ``CannotStart`` if a replica elsewhere would be called in plain
        text, if Redis may evict sessions, or if calibrated trees can't be read."""
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

    async def connect(self) -> None:
        """Return once a replica of the target is ready and, if there are drafters, one of them or
        ``DRAFTER_SECONDS`` have passed.

        Raises ``CannotStart`` if every drafter was refused, or if calibrated trees are of other
        models.
        """
        assert self._mesh is not None
        await self._mesh.verifiers.wait_ready()
        if self._mesh.drafters.configured:
            await self._await_drafters(self._mesh.drafters)
        if self._trees is not None:
            check_trees(self._trees, self._mesh.verifiers.ready, self._mesh.drafters.peers)

    def can_answer(self) -> bool:
        """Whether a replica of the target is ready; without drafters answers are slower."""
        return self._mesh is not None and bool(self._mesh.verifiers.ready)

    def watched(self, watcher: Callable[[], None]) -> AbstractContextManager[None]:
        """Call ``watcher`` whenever a verifier may have come or gone, while the block lasts."""
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
            Defaults(self._settings.strategy, self._settings.lookahead, self._trees),
            self._prompts,
            accounts,
        )
        generation_pb2_grpc.add_GenerationServiceServicer_to_server(servicer, server)
        tokenizer_pb2_grpc.add_TokenizerServiceServicer_to_server(
            TokenizerServicer(self._targets, self._prompts, accounts), server
        )
        observe(self._mesh, servicer.entrance)

    async def stop(self) -> None:
        """Close the connections to the mesh and the store, and end what reads prompts."""
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
        """A pool that has the replicas of ``listed`` and follows its names."""
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

    async def _await_drafters(self, drafters: Pool) -> None:
        try:
            await asyncio.wait_for(drafters.wait_ready(), DRAFTER_SECONDS)
        except TimeoutError:
            log.warning("no drafter is ready: answers come unspeculated until one is")
            return
        refusals = [f"drafter {peer.title}: {peer.refusal}" for peer in drafters.peers]
        if not drafters.ready:
            raise CannotStart("; ".join(refusals))


def _channels(settings: OrchestratorSettings) -> Callable[[str], Channels]:
    """What opens channels to the replicas of a role: with TLS where there is a CA to believe.

    Raises ``CannotStart`` if replicas elsewhere would be called without."""
    if settings.tls is None or settings.tls.ca is None:
        for listed in (settings.verifiers, settings.drafters, settings.confidence):
            entries = read_entries(listed)
            callees = (*entries.addresses, *(f"{each.host}:{each.port}" for each in entries.names))
            check_plaintext_calls(settings, callees, "--tls-ca")
        return lambda _: PlainChannels()
    certificate = watched_certificate(settings.tls)
    return lambda role: TlsChannels(certificate, role)


if __name__ == "__main__":
    settings = parse(OrchestratorSettings, sys.argv[1:], "specmesh serve orchestrator")
    sys.exit(run(serve(settings, OrchestratorService(settings))))
