"""Findings about a Redis configuration by which stored sessions can be lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Severity(Enum):
    """The consequence of a finding."""

    REFUSE = "refuse"
    """Sessions get lost while everything works, which nobody can want."""
    WARN = "warn"
    """Sessions get lost if one or two servers fail, which an operator may accept."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A setting that is less durable than possible; ``text`` begins with its name and value."""

    severity: Severity
    text: str


def judge(info: Mapping[str, Any] | None, config: Mapping[str, str] | None) -> tuple[Finding, ...]:
    """Return findings for the operator, worst first.

    ``info`` is the reply to INFO, ``config`` that to CONFIG GET for ``CONFIG_NAMES``; each is None
    if the command was refused, as managed services do.
    """
    known = {} if config is None else config
    found = [*_unknown(info, config), *_restart(info or {}, known), *_failover(info or {}, known)]
    if info is not None:
        found += _refused(info)
    return tuple(sorted(found, key=lambda finding: finding.severity is not Severity.REFUSE))


CONFIG_NAMES = ("appendfsync", "min-replicas-to-write")


def _refused(info: Mapping[str, Any]) -> Iterator[Finding]:
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if info.get("maxmemory", 0) and policy != "noeviction":
        yield Finding(
            Severity.REFUSE,
            f"maxmemory-policy {policy}: sessions of running answers are evicted when memory runs "
            "short; set it to noeviction, so that writes fail instead and answers go on",
        )
    if info.get("cluster_enabled", 0):
        yield Finding(
            Severity.REFUSE,
            "cluster-enabled yes: Redis Cluster is not supported, and only sessions that belong to "
            "this node would be stored; use a primary with replicas, by redis+sentinel://",
        )


def _restart(info: Mapping[str, Any], config: Mapping[str, str]) -> Iterator[Finding]:
    """Yield findings about losses by a restart."""
    if info.get("aof_enabled") == 0:
        yield _warning("appendonly no", "a restart loses all sessions since the last snapshot")
    elif config.get("appendfsync") == "no":
        yield _warning("appendfsync no", "if the machine fails, the last 30 s of tokens are lost")
    elif config.get("appendfsync") == "everysec":
        yield _warning("appendfsync everysec", "if the machine fails, the last second is lost")


def _failover(info: Mapping[str, Any], config: Mapping[str, str]) -> Iterator[Finding]:
    """Yield findings about losses by a failover, besides tokens that were not replicated yet."""
    if info.get("role") == "slave":
        yield _warning(
            "role replica", "nothing can be stored on a replica; REDIS_URL must lead to a primary"
        )
    elif info.get("connected_slaves", 0) and config.get("min-replicas-to-write") == "0":
        yield _warning(
            "min-replicas-to-write 0",
            "a primary cut off from its replicas accepts tokens that a failover then loses; "
            "set it to 1, with min-replicas-max-lag",
        )


def _unknown(info: Mapping[str, Any] | None, config: Mapping[str, str] | None) -> Iterator[Finding]:
    if info is None:
        yield _warning("INFO is refused", "it is unknown whether sessions may be evicted")
    if config is None:
        yield _warning("CONFIG GET is refused", "it is unknown how soon writes are on disk")


def _warning(what: str, why: str) -> Finding:
    return Finding(Severity.WARN, f"{what}: {why}")
