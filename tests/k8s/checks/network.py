"""Network policies allow the arrows of the picture in docs/architecture.md, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.k8s.manifests import NAME, ROLES, Manifests, Object, selects
from tests.k8s.tools import REPOSITORY

_ARROW = re.compile(r"^ *(\w+) -(?:- \"[^\"]+\" -->|\. \"[^\"]+\" \.->|\.->) (\w+)$", re.MULTILINE)

PICTURE = re.search(
    r"## Processes\n\n```mermaid\n(.*?)```",
    (REPOSITORY / "docs/architecture.md").read_text(),
    re.DOTALL,
)

DRAWN = {
    "client": ("load", "clients elsewhere"),
    "collector": ("otel-collector",),
}
"""What the picture calls otherwise than the manifests."""

PORTS = {
    **dict.fromkeys(ROLES, ("grpc",)),
    "gateway": ("http",),
    "redis": ("redis", "sentinel"),
    "otel-collector": ("otlp",),
    "traces": ("otlp",),
}
"""By which ports each is called."""


class Allowed(NamedTuple):
    """A connection that policies let through."""

    caller: str
    callee: str
    port: str


@dataclass(frozen=True)
class Party:
    """Who may take part in a connection: pods here, or somebody in another namespace."""

    name: str
    labels: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    namespace: dict[str, str] | None = None
    """Labels of the other namespace; None: the mesh's own."""


ELSEWHERE = [
    Party("clients elsewhere", {}, {}, {"specmesh/clients": "true"}),
    Party("prometheus", {}, {}, {"kubernetes.io/metadata.name": "monitoring"}),
    Party("strangers", {}, {}, {"kubernetes.io/metadata.name": "default"}),
    Party("dns", {}, {"dns": 53}, {"kubernetes.io/metadata.name": "kube-system"}),
]
INTERNET = Party("the internet", {}, {"https": 443, "redis": 6379}, {})
"""Addresses outside of the cluster, which are no pods and in no namespace."""


def arrows(manifests: Manifests) -> set[Allowed]:
    """The connections that there should be: those that are drawn, and the few that are not."""
    assert PICTURE is not None
    pods = {pod.name: pod for pod in manifests.pods}
    wanted = {
        (caller, callee)
        for drawn in _ARROW.findall(PICTURE[1])
        for caller in DRAWN.get(drawn[0], drawn[:1])
        for callee in DRAWN.get(drawn[1], drawn[1:])
    }
    # Replication, the votes of Sentinels; what the Collector hands on; a generator's own spans.
    wanted |= {("redis", "redis"), ("otel-collector", "traces"), ("load", "otel-collector")}
    wanted |= {("clients elsewhere", "gateway")}
    if "gateway" in pods and "SPECMESH_GATEWAY__TOKENS" in manifests.environment(
        pods["gateway"].containers[-1]
    ):
        wanted |= {(each.name, "gateway") for each in ELSEWHERE}
    found = {
        Allowed(caller, callee, port)
        for caller, callee in wanted
        if callee in pods and (caller in pods or caller in {each.name for each in ELSEWHERE})
        for port in PORTS[callee]
        if port in pods[callee].ports
    }
    found |= {Allowed(name, "dns", "dns") for name in pods}
    found |= {
        Allowed(name, INTERNET.name, "redis")
        for name, pod in pods.items()
        if manifests.environment(pod.containers[-1]).get("REDIS_URL") == ""  # from a Secret
    }
    found |= {
        Allowed(name, INTERNET.name, "https")
        for name, pod in pods.items()
        if pod.spec.get("initContainers")  # which fetch a model
    }
    return found | {
        Allowed("prometheus", name, "metrics")
        for name, pod in pods.items()
        if "metrics" in pod.ports
    }


def allowed(manifests: Manifests) -> set[Allowed]:
    """The connections that the policies let through, both ends considered."""
    parties = [Party(pod.name, pod.labels, pod.ports) for pod in manifests.pods]
    policies = list(manifests.of("NetworkPolicy").values())
    return {
        Allowed(caller.name, callee.name, port)
        for caller in (*parties, *ELSEWHERE)
        for callee in (*parties, *ELSEWHERE, INTERNET)
        for port, number in callee.ports.items()
        if caller.namespace is None or callee.namespace is None
        if _lets(policies, "Egress", caller, callee, number)
        and _lets(policies, "Ingress", callee, caller, number)
    }


def _lets(policies: list[Object], way: str, owner: Party, other: Party, port: int) -> bool:
    """Whether the policies of ``owner`` let it call, or be called by, ``other``."""
    if owner.namespace is not None:
        return True  # whose policies are not ours to know
    own = [
        policy["spec"]
        for policy in policies
        if way in policy["spec"]["policyTypes"]
        and selects(policy["spec"]["podSelector"], owner.labels)
    ]
    rules = [rule for spec in own for rule in spec.get(way.lower(), ())]
    return not own or any(_matches(rule, way, other, port) for rule in rules)


def _matches(rule: Object, way: str, other: Party, port: int) -> bool:
    peers = rule.get("to" if way == "Egress" else "from")
    ports = rule.get("ports")
    return (peers is None or any(_is_peer(peer, other) for peer in peers)) and (
        ports is None or any(each["port"] == port for each in ports)
    )


def _is_peer(peer: Object, other: Party) -> bool:
    if "ipBlock" in peer or other is INTERNET:
        return "ipBlock" in peer and other is INTERNET
    if "namespaceSelector" in peer:
        if not selects(peer["namespaceSelector"], other.namespace or {}):
            return False
    elif other.namespace is not None:
        return False
    return "podSelector" not in peer or selects(peer["podSelector"], other.labels)


def policies(manifests: Manifests) -> Iterator[str]:
    """Where there are policies at all."""
    if not manifests.of("NetworkPolicy"):
        return
    names = {pod.name for pod in manifests.pods}
    wanted, found = arrows(manifests), allowed(manifests)
    if "verifier-rank" in names:
        # The ranks of a target take ports of their choice.
        ranks = {"verifier", "verifier-rank"}
        found = {each for each in found if not {each.caller, each.callee} <= ranks}
    for each in sorted(found - wanted):
        yield f"{each.caller} may reach {each.port} of {each.callee}, though no arrow says so"
    for each in sorted(wanted - found):
        yield f"{each.caller} can't reach {each.port} of {each.callee}"
    for name, policy in manifests.of("NetworkPolicy").items():
        selected = policy["spec"]["podSelector"].get("matchLabels", {}).get(NAME)
        if selected is not None and selected not in {*PORTS, "load"}:
            yield f"NetworkPolicy {name}: nothing is called {selected!r}"
