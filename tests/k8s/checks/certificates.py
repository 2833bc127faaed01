"""Certificates by cert-manager are such as the mesh believes."""

from __future__ import annotations

from collections.abc import Iterator

from tests.k8s.manifests import ROLES, Manifests

from specmesh.serving.identity.roles import CLIENT, host_of, role_of


def certificates(manifests: Manifests) -> Iterator[str]:
    """Each says its bearer's role, and is for the names by which it is called."""
    for name, certificate in manifests.of("Certificate").items():
        spec = certificate["spec"]
        if spec.get("isCA"):
            continue
        role = name if name in ROLES else CLIENT
        if [role_of(uri) for uri in spec["uris"]] != [role]:
            yield f"Certificate {name}: its one URI must say the role {role}, not {spec['uris']}"
        if role != CLIENT and host_of(role) not in spec["dnsNames"]:
            yield f"Certificate {name}: must be for {host_of(role)}"
        if role in {"orchestrator", "gateway"} and role not in spec["dnsNames"]:
            yield f"Certificate {name}: must be for {role}, as clients call it"
        if spec["issuerRef"]["name"] not in manifests.of("Issuer"):
            yield f"Certificate {name}: there is no Issuer {spec['issuerRef']['name']!r}"
