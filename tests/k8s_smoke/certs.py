"""Certificates by ``specmesh certs``, as files for clients and as the contents of Secrets."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.k8s_smoke.playable import IMAGES
from tests.k8s_smoke.podman import podman

SERVERS = ("orchestrator", "verifier", "drafter", "confidence", "gateway")
USER = 10001
"""Who reads them in the pods."""


def make(folder: Path) -> dict[str, Path]:
    """Fill ``folder`` by the tools image; returns a folder for each Secret, tls-ROLE."""
    folder.mkdir()
    os.chown(folder, USER, USER)
    hosts = [part for host in ("orchestrator", "gateway") for part in ("--host", host)]
    podman(
        *("run", "--rm", "--read-only", "--volume", f"{folder}:/certs"),
        *(IMAGES.format("specmesh-tools"), "certs", "--out", "/certs", *hosts),
        timeout_s=180,
    )
    return {f"tls-{role}": _secret(folder, role) for role in SERVERS}


def _secret(folder: Path, role: str) -> Path:
    made = folder.parent / f"tls-{role}"
    made.mkdir()
    named = {"tls.crt": f"{role}.pem", "tls.key": f"{role}-key.pem", "ca.crt": "ca.pem"}
    for name, file in named.items():
        shutil.copyfile(folder / file, made / name)
        os.chown(made / name, USER, USER)
        (made / name).chmod(0o400)
    return made
