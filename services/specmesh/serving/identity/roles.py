"""The roles in certificates, and the methods that each role may call.

The role is the last segment of a SPIFFE id, ``spiffe://TRUST-DOMAIN/specmesh/verifier``; a segment
before it distinguishes subjects of one role. The trust domain separates meshes whose certificates
one CA signs. A server's certificate is also for the host name of its role (``host_of``), by which
the orchestrator verifies it.
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
"""The roles that may call the methods of each service. Health is open to everybody whom TLS
admits, and reflection to those with a token where tokens are required."""


@dataclass(frozen=True, slots=True)
class Proven:
    """The identity and role that a caller has proved by a certificate or a token."""

    identity: str
    role: str


TRUST_DOMAIN = "specmesh.internal"
"""The default trust domain."""


def host_of(role: str, trust_domain: str = TRUST_DOMAIN) -> str:
    """Return the host name that all certificates of a role are for, wherever the process runs."""
    return f"{role}.{trust_domain}"


def spiffe_id(trust_domain: str, role: str, name: str = "") -> str:
    """Return the SPIFFE id of a role; ``name`` distinguishes several subjects of one role."""
    return "/".join(filter(None, (f"spiffe://{trust_domain}/specmesh", name, role)))


def role_of(identity: str) -> str:
    """Return the role in a SPIFFE id; empty if it is not a specmesh id.

    No URI has a ``|``, which separates a gateway's identity from its caller's.
    """
    path = urlsplit(identity).path.strip("/").split("/")
    ours = identity.startswith("spiffe://") and len(path) > 1 and path[0] == "specmesh"
    ours = ours and "|" not in identity
    return path[-1] if ours else ""


def trust_domain_of(identity: str) -> str:
    """Return the trust domain of a SPIFFE id, in lower case; empty if it is not a specmesh id."""
    return urlsplit(identity).netloc.lower() if role_of(identity) else ""


def may_call(role: str, method: str) -> bool:
    """Return True if ``role`` may call a method, "specmesh.v1.GenerationService/Generate"."""
    return role in CALLERS.get(method.partition("/")[0], ())
