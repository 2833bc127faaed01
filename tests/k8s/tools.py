"""The programs of `make k8s-check`, in an environment of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
K8S = REPOSITORY / "k8s"
BIN = REPOSITORY / ".venv-k8s/bin"
KUBERNETES = "1.37.0"
"""The version whose schemas manifests are held to."""

needs_tools = pytest.mark.skipif(
    not (BIN / "kubectl").exists(), reason="there is no kubectl: `make k8s-check` installs it"
)


def run(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run one of the programs to its end, whatever that is."""
    return subprocess.run(
        [BIN / program, *arguments], capture_output=True, text=True, check=False, timeout=300
    )


def kustomize(folder: Path) -> str:
    """What `kubectl apply -k` would send; a warning is an error."""
    done = run("kubectl", "kustomize", folder)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


def validate(*files: Path) -> list[str]:
    """What is wrong with manifests by the schemas of Kubernetes, misspelt fields included."""
    done = run("kubernetes-validate", "--strict", "-k", KUBERNETES, *files)
    said = (done.stdout + done.stderr).splitlines()
    # Kinds that it doesn't know are passed over with a warning.
    return [line for line in said if line and not line.startswith("INFO")]
