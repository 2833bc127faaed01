"""``specmesh load`` in a container: 20 users whose every answer is known beforehand."""

from __future__ import annotations

import csv
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.k8s_smoke.playable import IMAGES, NAME
from tests.k8s_smoke.podman import logs, podman
from tests.k8s_smoke.pods import NotInTime, wait_until

USERS = 20
PROMPTS = 40
TOKENS = 48
STRATEGIES = ("speculative", "dsi", "branch-prediction", "autoregressive")
"""All of them say at temperature 0 what the target alone says."""
TLS = "/etc/specmesh/tls"


def write_prompts(file: Path) -> None:
    """Prompts that begin differently, so that each has an answer of its own."""
    file.write_text(
        "".join(f"{number} is the number of this prompt\n" for number in range(PROMPTS))
    )


@dataclass(frozen=True, slots=True)
class Answers:
    """What a run came to."""

    counts: dict[str, int]
    errors: dict[str, int]
    texts: dict[int, frozenset[str]]
    """By prompt, the digests of all that was answered to it."""
    report: dict[str, Any]

    def altered(self, undisturbed: Answers) -> list[int]:
        """The prompts to which something else was answered than in another run."""
        return [n for n, said in self.texts.items() if not said <= undisturbed.texts[n]]


class Load:
    """A container that asks until it is told to stop."""

    def __init__(self, network: str, certs: Path, folder: Path, name: str, *extent: str) -> None:
        self.name = f"{NAME}-load-{name}"
        self._folder = folder
        mixed = [
            part
            for strategy in STRATEGIES
            for part in ("--mix", f"1 strategy={strategy} temperature=0")
        ]
        podman(
            *("run", "--detach", "--name", self.name, "--label", NAME, "--network", network),
            *("--read-only", "--volume", f"{folder}:/load", "--volume", f"{certs}:{TLS}:ro"),
            *("--env", "COLUMNS=120", IMAGES.format("specmesh-load"), "run"),
            *("--target", "dns:///orchestrator:50051", "--tls-ca", f"{TLS}/ca.pem"),
            *("--tls-cert", f"{TLS}/client.pem", "--tls-key", f"{TLS}/client-key.pem"),
            *("--users", str(USERS), "--prompts", "/load/prompts.txt", "--retries", "5"),
            *("--output-tokens", str(TOKENS), "--ignore-end", "--timeout", "120s", *mixed),
            *("--json", f"/load/{name}.json", "--csv", f"/load/{name}.csv", *extent),
        )
        self._files = folder / f"{name}.json", folder / f"{name}.csv"

    def stop(self) -> Answers:
        """Ctrl-C: what is under way is not counted."""
        podman("kill", "--signal", "INT", self.name)
        return self.end(60)

    def end(self, within_s: float) -> Answers:
        """Wait until it is done, and read what it wrote. Raises NotInTime."""
        wait_until(f"{self.name} ended", self._has_ended, within_s)
        log = logs(self.name)
        podman("rm", self.name)
        report, table = self._files
        if not (report.exists() and table.exists()):
            raise NotInTime(f"{self.name} wrote no report: {log}")
        return _read(report, table)

    def check_running(self) -> None:
        """Raises NotInTime if it is no more."""
        if self._has_ended():
            raise NotInTime(f"{self.name} has ended: {logs(self.name)}")

    def _has_ended(self) -> bool:
        return podman("container", "inspect", "-f", "{{.State.Status}}", self.name) == "exited"


def _read(report: Path, table: Path) -> Answers:
    said = json.loads(report.read_text())
    texts: dict[int, set[str]] = {}
    counts: Counter[str] = Counter()
    with table.open(newline="") as file:
        for row in csv.DictReader(file):
            counts[row["outcome"]] += 1
            counts["resumed"] += row["num_resumes"] != "0"
            if row["outcome"] == "answered":
                texts.setdefault(int(row["conversation"]) % PROMPTS, set()).add(row["text_digest"])
    return Answers(
        dict(counts),
        dict(said["result"]["errors"]),
        {n: frozenset(each) for n, each in texts.items()},
        said,
    )
