"""podman, and a record of all that was made with it, to be undone."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
os.environ["CONTAINERS_CONF"] = str(REPOSITORY / "deploy/images/containers.conf")


class CommandFailed(Exception):
    """A command ended with another status than 0; the message is what it said."""


def run(*command: str | Path, timeout_s: float = 60, given: str | None = None) -> str:
    """What a command prints to standard output. Raises CommandFailed, and TimeoutExpired."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout_s, input=given
    )
    if done.returncode != 0:
        words = " ".join(map(str, command))
        raise CommandFailed(f"{words[:300]}: status {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def podman(*arguments: str | Path, timeout_s: float = 60, given: str | None = None) -> str:
    """What ``podman ARGUMENTS`` prints."""
    return run("podman", *arguments, timeout_s=timeout_s, given=given).strip()


def inspect(kind: str, name: str) -> Any:
    """What podman knows of a container, pod or network."""
    found = json.loads(podman(kind, "inspect", name))
    return found[0] if isinstance(found, list) else found


def quietly(*arguments: str, timeout_s: float = 60) -> str:
    """``podman ARGUMENTS`` for what may have happened already; returns why it failed, if it did."""
    try:
        podman(*arguments, timeout_s=timeout_s)
    except (CommandFailed, subprocess.TimeoutExpired) as error:
        return str(error)
    return ""


def logs(container: str) -> str:
    """The last lines that it wrote, to either stream."""
    command = ["podman", "logs", "--tail", "8", container]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return (done.stdout + done.stderr)[-2500:].strip()
