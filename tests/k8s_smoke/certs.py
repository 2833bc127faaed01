"""Certificates by ``specmesh certs``, as files for clients and as Secrets for pods."""

from __future__ import annotations

from pathlib import Path

from tests.k8s_smoke.playable import IMAGES, Object, secret
from tests.k8s_smoke.podman import podman

SERVERS = ("orchestrator", "verifier", "drafter", "confidence", "gateway")


def make(folder: Path, uid: int) -> list[Object]:
    """Fill ``folder`` by the tools image; returns the Secrets tls-ROLE."""
    folder.mkdir()
    folder.chmod(0o777)
    hosts = [part for host in ("orchestrator", "gateway") for part in ("--host", host)]
    podman(
        *("run", "--rm", "--read-only", "--user", f"{uid}", "--volume", f"{folder}:/certs"),
        *(IMAGES.format("specmesh-tools"), "certs", "--out", "/certs", *hosts),
    )
    return [
        secret(
            f"tls-{role}",
            {
                "tls.crt": (folder / f"{role}.pem").read_text(),
                "tls.key": (folder / f"{role}-key.pem").read_text(),
                "ca.crt": (folder / "ca.pem").read_text(),
            },
        )
        for role in SERVERS
    ]
