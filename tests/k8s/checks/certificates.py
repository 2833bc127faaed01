"""Certificates by cert-manager are such as the mesh believes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.k8s.checks import collector
from tests.k8s.manifests import ROLES, Manifests

from specmesh.serving.identity.roles import CLIENT, TRUST_DOMAIN, host_of, role_of, trust_domain_of

SERVICES = ("redis", "otel-collector", "traces")
"""Servers that are no role of the mesh."""
_CLEAR = re.compile(r"^(redis(\+sentinel)?|http)://")


def clear_text(manifests: Manifests) -> Iterator[str]:
    """Where processes of the mesh speak TLS, nothing that they send goes in clear text."""
    settings = [
        (pod, manifests.environment(container))
        for pod in manifests.pods
        for container in pod.containers
    ]
    if not any(name.endswith("TLS_CERT") for _, found in settings for name in found):
        return
    for pod, found in settings:
        for name, value in found.items():
            if _CLEAR.match(value):
                yield f"{pod}: {name} is {value}: in clear text, beside TLS"
    for name, config in manifests.of("ConfigMap").items():
        if name.startswith("otel-collector"):
            for exporter, each in collector.merged(config)["exporters"].items():
                if each.get("tls", {}).get("insecure"):
                    yield f"{name}: exporter {exporter} sends in clear text, beside TLS"


def certificates(manifests: Manifests) -> Iterator[str]:
    """Each says its bearer's role, and is for the names by which it is called."""
    for name, certificate in manifests.of("Certificate").items():
        spec = certificate["spec"]
        if spec.get("isCA"):
            continue
        if spec["issuerRef"]["name"] not in manifests.of("Issuer"):
            yield f"Certificate {name}: there is no Issuer {spec['issuerRef']['name']!r}"
        if name in SERVICES:
            if spec.get("uris") or name not in spec["dnsNames"]:
                yield f"Certificate {name}: must be for {name} and have no identity"
            continue
        role = name if name in ROLES else CLIENT
        if [role_of(uri) for uri in spec["uris"]] != [role]:
            yield f"Certificate {name}: its one URI must say the role {role}, not {spec['uris']}"
        host = host_of(role, trust_domain_of(spec["uris"][0]) or TRUST_DOMAIN)
        if role != CLIENT and host not in spec["dnsNames"]:
            yield f"Certificate {name}: must be for {host}"
        if role in {"orchestrator", "gateway"}:
            called = {f"{role}{end}" for end in ("", *_ends(manifests))}
            if missing := called - {*spec["dnsNames"]}:
                yield f"Certificate {name}: must be for {sorted(missing)}, as clients call it"


def _ends(manifests: Manifests) -> Iterator[str]:
    """The ends that clients of other namespaces add to the name of a Service."""
    for namespace in manifests.of("Namespace"):
        yield from (f".{namespace}.svc", f".{namespace}.svc.cluster.local")
