"""What a Redis would lose of the sessions it keeps, by how it is configured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Severity(Enum):
    """What is done about a finding."""

    REFUSE = "refuse"
    """Sessions get lost while everything works: nobody can want that."""
    WARN = "warn"
    """Sessions get lost with a server, or with two: how much that matters is the operator's
    choice."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A setting that keeps less than it could; ``text`` begins with its name and value."""

    severity: Severity
    text: str


def judge(info: Mapping[str, Any] | None, config: Mapping[str, str] | None) -> tuple[Finding, ...]:
    """What to tell an operator, worst first.

    ``info`` is the reply to INFO, ``config`` that to CONFIG GET for ``CONFIG_NAMES``; None if it
    was refused, as managed services do.
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
            f"maxmemory-policy {policy}: when memory runs short, sessions of running answers are "
            "evicted; set it to noeviction, with which writes fail instead and answers go on",
        )
    if info.get("cluster_enabled", 0):
        yield Finding(
            Severity.REFUSE,
            "cluster-enabled yes: Redis Cluster is not supported, only the sessions that belong to "
            "this node would be kept; take a primary with replicas, by redis+sentinel://",
        )


def _restart(info: Mapping[str, Any], config: Mapping[str, str]) -> Iterator[Finding]:
    """What a restart loses."""
    if info.get("aof_enabled") == 0:
        yield _warning("appendonly no", "a restart loses all sessions since the last snapshot")
    elif config.get("appendfsync") == "no":
        yield _warning("appendfsync no", "a machine that fails loses the tokens of half a minute")
    elif config.get("appendfsync") == "everysec":
        yield _warning("appendfsync everysec", "a machine that fails loses the tokens of a second")


def _failover(info: Mapping[str, Any], config: Mapping[str, str]) -> Iterator[Finding]:
    """What a failover loses, besides what was not replicated yet."""
    if info.get("role") == "slave":
        yield _warning(
            "role replica", "nothing can be stored here; REDIS_URL must lead to a primary"
        )
    elif info.get("connected_slaves", 0) and config.get("min-replicas-to-write") == "0":
        yield _warning(
            "min-replicas-to-write 0",
            "a primary cut off from its replicas takes tokens that a failover then loses; "
            "set it to 1, with min-replicas-max-lag",
        )


def _unknown(info: Mapping[str, Any] | None, config: Mapping[str, str] | None) -> Iterator[Finding]:
    if info is None:
        yield _warning("INFO is refused", "whether sessions may be evicted can't be told")
    if config is None:
        yield _warning("CONFIG GET is refused", "how soon writes are on disk can't be told")


def _warning(what: str, why: str) -> Finding:
    return Finding(Severity.WARN, f"{what}: {why}")
