"""What the mesh is played from: programs, a base without a registry, and the images."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from tests.k8s_smoke.podman import REPOSITORY, CommandFailed, podman, run

PACKAGES = {
    "podman": "podman",
    "runc": "runc",
    "debootstrap": "debootstrap",
    "nft": "nftables",
    "nsenter": "util-linux",
}
"""Debian's package by the program in it that is needed."""
ROLES = ("orchestrator", "confidence", "gateway", "load", "tools", "verifier", "drafter", "demo")
BASE = "localhost/specmesh-base:smoke"
BUILT_S = 3600.0


def install_programs() -> str:
    """Install with apt what is missing; returns what was. Raises CommandFailed."""
    if os.geteuid() != 0:
        raise CommandFailed("it must run as root: containers, networks and their rules are made")
    missing = [package for program, package in PACKAGES.items() if not shutil.which(program)]
    # The base has Debian's Python, for which pip must choose wheels.
    if subprocess.run(["/usr/bin/python3", "-c", "import ensurepip"], check=False).returncode:
        missing.append("python3-venv")
    if missing:
        run("apt-get", "update", "-qq", timeout_s=300)
        run("apt-get", "install", "-y", "-qq", *missing, timeout_s=600)
    return f"installed {', '.join(missing)}" if missing else "all there"


def make_base() -> str:
    """The base of the images, unless it is there from an earlier run."""
    if _is_there(BASE) and _is_there(f"{BASE}-build"):
        return "there from an earlier run"
    run(REPOSITORY / "deploy/images/debian-base", BASE, timeout_s=900)
    return "made of Debian's packages"


def download_wheels(folder: Path) -> str:
    """All that is installed in the images, chosen by the base's Python, unless it is there from an
    earlier run that wanted the same."""
    hashes = (f"deploy/images/{name}" for name in ("hashes.txt", "build-hashes.txt"))
    wanted = [REPOSITORY / name for name in ("pyproject.toml", "constraints.txt", *hashes)]
    digest = sha256(b"".join(file.read_bytes() for file in wanted)).hexdigest()
    stamp = folder.with_name(f"{folder.name}-of")
    if stamp.exists() and stamp.read_text() == digest:
        return "there from an earlier run"
    environment = folder.with_name(f"{folder.name}-venv")
    python = environment / "bin/python"
    if not python.exists():
        run("/usr/bin/python3", "-m", "venv", environment)
        constraints = REPOSITORY / "constraints.txt"
        run(python, "-m", "pip", "install", "-q", "-c", constraints, "pip", timeout_s=300)
    run("env", f"PYTHON={python}", REPOSITORY / "deploy/images/wheels", folder, timeout_s=1800)
    stamp.write_text(digest)
    return f"{len(list(folder.iterdir()))} files"


def build(wheels: Path) -> str:
    """All images, without a network; returns the table of their sizes."""
    return run(
        "env",
        *(f"BASE={BASE}", f"BUILD_BASE={BASE}-build", "TAG=smoke", f"WHEELS={wheels}"),
        REPOSITORY / "deploy/images/build",
        timeout_s=BUILT_S,
    )


def check() -> str:
    """Each image runs what it is for, as nobody in particular, and has no shell. Raises
    CommandFailed."""
    for role in ROLES:
        image = f"localhost/specmesh-{role}:smoke"
        podman("run", "--rm", "--read-only", "--network", "none", image, "--help")
        try:
            podman("run", "--rm", "--entrypoint", "sh", image, "-c", "")
        except CommandFailed:
            continue
        raise CommandFailed(f"{image} has a shell")
    return "each runs with a read-only root, none has a shell"


def _is_there(image: str) -> bool:
    done = subprocess.run(["podman", "image", "exists", image], check=False)
    return done.returncode == 0


def cache() -> Path:
    """Where wheels stay from one run to the next."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "specmesh-smoke"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"wheels-{sys.platform}"
