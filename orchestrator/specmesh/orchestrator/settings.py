"""The settings of the orchestrator process: its command line and its environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from specmesh.orchestrator.admission.controller import MAX_WAIT_SECONDS
from specmesh.orchestrator.admission.limits import Quota
from specmesh.orchestrator.admission.request_limits import MAX_LOOKAHEAD, MAX_REQUEST_BYTES
from specmesh.orchestrator.parsing.reasoning import REASONING_FORMATS
from specmesh.orchestrator.parsing.registry import (
    DETECTED,
    check_reasoning_format,
    check_tool_format,
    tool_formats,
)
from specmesh.orchestrator.replicas.discovery.entries import Entries, read_entries
from specmesh.orchestrator.replicas.discovery.follower import EVERY_SECONDS
from specmesh.orchestrator.requests.chunk_intervals import LONGEST_INTERVAL_MS
from specmesh.orchestrator.strategies import LOSSLESS
from specmesh.serving.identity.settings import BearerSettings
from specmesh.serving.settings import MAX_PORT, RedisSettings, ServerSettings, WorkersSettings


def _check_strategy(name: str) -> str:
    """Refuse a default that may change the text; only a request may name such a strategy."""
    if name not in LOSSLESS:
        raise ValueError(f"must be one of: {', '.join(LOSSLESS)}")
    return name


def _check_entries(listed: str) -> str:
    """Refuse a list of replicas that cannot be parsed."""
    read_entries(listed)
    return listed


def _check_verifiers(listed: str) -> str:
    """Refuse a list without any replica: nothing could ever be answered."""
    if read_entries(listed) == Entries():
        raise ValueError("must name at least one replica")
    return listed


class OrchestratorSettings(BearerSettings, ServerSettings, WorkersSettings, RedisSettings):
    """Serves clients: drives drafters and verifiers to answer their requests."""

    model_config = SettingsConfigDict(env_prefix="SPECMESH_ORCHESTRATOR__")

    port: int = Field(
        50051,
        ge=0,
        le=MAX_PORT,
        description="port to listen on; clients try the default; 0 takes any free port",
    )
    max_request_bytes: int = Field(
        MAX_REQUEST_BYTES,
        ge=1024,
        le=2**30,
        description="largest request accepted, in bytes; its prompt must also fit the context",
    )
    max_held_bytes: int = Field(
        64 * 2**20,
        ge=1024,
        le=2**40,
        description="total bytes of all requests in flight, without those that have not arrived "
        "whole; the process uses up to five times as much memory for them",
    )
    verifiers: Annotated[str, AfterValidator(_check_verifiers)] = Field(
        description="the target's replicas, comma-separated: host:port for a single replica, "
        "dns:///host:port for all addresses of the name, looked up again and again"
    )
    drafters: Annotated[str, AfterValidator(_check_entries)] = Field(
        "", description="replicas of drafters, in the same format as --verifiers"
    )
    confidence: Annotated[str, AfterValidator(_check_entries)] = Field(
        "",
        description="replicas of the confidence service, in the same format as --verifiers; used "
        "by requests that name the strategy 'filter'",
    )
    resolve_seconds: float = Field(
        EVERY_SECONDS, gt=0, description="seconds between DNS lookups of the replicas' names"
    )
    strategy: Annotated[str, AfterValidator(_check_strategy)] = Field(
        "auto", description="strategy of requests that do not name one"
    )
    generation_config: Literal["auto", "none"] = Field(
        "none",
        description="sampling defaults of requests: 'auto' takes those of the model's "
        "generation_config.json, 'none' its plain distribution; all orchestrators of a mesh need "
        "the same",
    )
    max_wait_seconds: float = Field(
        MAX_WAIT_SECONDS,
        ge=0,
        description="longest time in seconds that a request may wait for admission while the mesh "
        "is full; one that is expected to wait for more than half of it is refused immediately",
    )
    share_prefixes: Literal["identity", "all"] = Field(
        "identity",
        description="who shares cached prefixes: only requests of one identity, or 'all'; 'all' is "
        "faster where many send the same text, but lets a client detect by timing what others sent",
    )
    prefix_directory: bool = Field(
        True,
        description="tell the other orchestrators through Redis which replica holds which prefix, "
        "so that the next turn of a chat is routed to that replica by any orchestrator",
    )
    max_answers_per_identity: int | None = Field(
        None, ge=1, description="maximum number of concurrent answers per identity"
    )
    max_tokens_per_minute: int | None = Field(
        None, ge=1, description="maximum number of output tokens per identity and minute"
    )
    max_verified_nodes_per_minute: int | None = Field(
        None,
        ge=1,
        description="maximum number of tree nodes, roots included, that the target verifies per "
        "identity and minute",
    )
    max_request_bytes_per_minute: int | None = Field(
        None,
        ge=1,
        description="maximum size of requests per identity and minute, in bytes: prompts, chats, "
        "and everything else that is tokenized, detokenized or rendered",
    )
    chunk_interval_ms: int = Field(
        0,
        ge=0,
        le=LONGEST_INTERVAL_MS,
        description="shortest time between two chunks of an answer in milliseconds; tokens wait "
        "for others meanwhile, so that each costs less; clients may ask for a longer one",
    )
    lookahead: int | None = Field(
        None,
        ge=1,
        le=MAX_LOOKAHEAD,
        description="draft tokens per verification, of strategies that take a lookahead, unless a "
        "request sets it; by default a number that suits the strategy",
    )
    trees: Path | None = Field(
        None,
        description="file of draft trees that 'specmesh calibrate tree' wrote for the target and "
        "the first drafter, for requests that name the strategy 'tree' and a width",
    )
    tool_format: Annotated[str, AfterValidator(check_tool_format)] = Field(
        DETECTED,
        description="format in which the model writes calls of tools: "
        f"{', '.join(tool_formats())}, 'none' if it can't call any, or 'auto', which goes by its "
        "chat template",
    )
    reasoning_format: Annotated[str, AfterValidator(check_reasoning_format)] = Field(
        DETECTED,
        description="format in which the model writes its reasoning: "
        f"{', '.join(REASONING_FORMATS)}, 'none' if it does not reason, or 'auto', which goes by "
        "its chat template",
    )
    redis_check: Literal["refuse", "warn", "off"] = Field(
        "refuse",
        description="what to do about a Redis that may evict sessions, for example because of "
        "maxmemory-policy allkeys-lru: 'refuse' does not start, 'warn' logs it; both also log "
        "settings that lose sessions with the server; 'off' checks nothing",
    )
    record_content: bool = Field(
        False, description="record the text of tokens in traces, for everybody with access to those"
    )

    @property
    def limits(self) -> Quota:
        """The limits of each identity."""
        return Quota(
            self.max_answers_per_identity,
            self.max_tokens_per_minute,
            self.max_verified_nodes_per_minute,
            self.max_request_bytes_per_minute,
        )
