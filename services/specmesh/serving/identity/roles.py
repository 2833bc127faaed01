"""Roles: what a certificate says its bearer is, and which methods each may call.

The role is the last segment of a SPIFFE id, ``spiffe://TRUST-DOMAIN/specmesh/verifier``; what comes
before it tells bearers of one role apart. The trust domain tells meshes apart whose certificates
one CA signs. A server's certificate is also for the host name of its role (``host_of``), by which
the orchestrator knows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

VERIFIER = "verifier"
DRAFTER = "drafter"
CONFIDENCE = "confidence"
ORCHESTRATOR = "orchestrator"
GATEWAY = "gateway"
CLIENT = "client"
ROLES = (VERIFIER, DRAFTER, CONFIDENCE, ORCHESTRATOR, GATEWAY, CLIENT)

CALLERS: Mapping[str, Sequence[str]] = {
    "specmesh.mesh.v1alpha1.VerifierService": (ORCHESTRATOR,),
    "specmesh.mesh.v1alpha1.DrafterService": (ORCHESTRATOR,),
    "specmesh.mesh.v1alpha1.ConfidenceService": (ORCHESTRATOR,),
    "specmesh.mesh.v1alpha1.ModelService": (ORCHESTRATOR,),
    "specmesh.v1.GenerationService": (CLIENT, GATEWAY),
    "specmesh.v1.TokenizerService": (CLIENT, GATEWAY),
}
"""By service: the roles that may call its methods. Health and reflection are for everybody whom TLS
lets in."""


@dataclass(frozen=True, slots=True)
class Proven:
    """What a caller has proved by a certificate or a token: who it is, and its role."""

    identity: str
    role: str


TRUST_DOMAIN = "specmesh.internal"
"""That of a mesh which chose none."""


def host_of(role: str, trust_domain: str = TRUST_DOMAIN) -> str:
    """The host name that every certificate of a role in a mesh is for, wherever its bearer runs."""
    return f"{role}.{trust_domain}"


def spiffe_id(trust_domain: str, role: str, name: str = "") -> str:
    """The SPIFFE id of a role, of the bearer ``name`` if it is one of several."""
    return "/".join(filter(None, (f"spiffe://{trust_domain}/specmesh", name, role)))


def role_of(identity: str) -> str:
    """The role that a SPIFFE id names; empty if it is none of ours."""
    path = urlsplit(identity).path.strip("/").split("/")
    ours = identity.startswith("spiffe://") and len(path) > 1 and path[0] == "specmesh"
    return path[-1] if ours else ""


def trust_domain_of(identity: str) -> str:
    """The trust domain of a SPIFFE id, in lower case; empty if it is none of ours."""
    return urlsplit(identity).netloc.lower() if role_of(identity) else ""


def may_call(role: str, method: str) -> bool:
    """Whether ``role`` may call a method, "specmesh.v1.GenerationService/Generate"."""
    return role in CALLERS.get(method.partition("/")[0], ())
