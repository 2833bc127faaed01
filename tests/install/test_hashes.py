"""What images are built with has hashes, of the versions that the tests run on, or a digest."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

REPOSITORY = Path(__file__).parents[2]
IMAGES = REPOSITORY / "deploy" / "images"
PIN = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)
ADVICE = "make hashes"


def pinned(file: Path) -> dict[str, Version]:
    """The version of each package in a file of requirements."""
    return {
        canonicalize_name(name): Version(version) for name, version in PIN.findall(file.read_text())
    }


def test_there_are_hashes_of_every_version_that_the_tests_run_on_but_torchs():
    expected = pinned(REPOSITORY / "constraints.txt")
    del expected["torch"]  # each of its builds is another file
    assert pinned(IMAGES / "hashes.txt") == expected, ADVICE


@pytest.mark.parametrize("name", ["hashes.txt", "build-hashes.txt"])
def test_no_package_is_without_a_hash(name: str):
    blocks = re.split(r"\n(?=\S)", (IMAGES / name).read_text().strip())
    comment, *packages = blocks
    assert comment.startswith("#")
    assert packages
    for package in packages:
        first, *hashes = package.replace("\\\n", "\n").split("\n")
        assert PIN.match(first), first
        assert hashes, first
        assert all(re.fullmatch(r"\s+--hash=sha256:[0-9a-f]{64}\s*", each) for each in hashes), (
            first
        )


def test_what_builds_our_own_wheel_has_hashes():
    build = pinned(IMAGES / "build-hashes.txt")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    for each in map(Requirement, project["build-system"]["requires"]):
        assert each.specifier.contains(build[canonicalize_name(each.name)]), (each, ADVICE)


def installs() -> list[str]:
    """Each call of pip that brings something into an image, or builds it."""
    files = (REPOSITORY / "Containerfile", IMAGES / "install-dependencies")
    script = "\n".join(file.read_text() for file in files).replace("\\\n", " ")
    commands = re.split(r"\n|&&|\|", script)
    return [each for each in commands if re.search(r"pip (--python \S+ )?(install|wheel) ", each)]


def test_nothing_but_torch_comes_into_an_image_without_hashes():
    hashed = ("--constraint hashes.txt", "/tmp/pip.txt", "--build-constraint build-hashes.txt")
    ours_or_torchs = ("/ours/specmesh-*.whl", "$TORCH_INDEX", "/tmp/of-torch")
    assert len(installs()) > 4
    for each in installs():
        assert any(name in each for name in hashed + ours_or_torchs), each


@pytest.mark.parametrize("base", ["", "docker.io/library/python:3.11-slim-bookworm"])
def test_a_base_without_a_digest_is_refused_and_told_how_to_get_one(base):
    ended = subprocess.run(
        [IMAGES / "build"],
        env={**os.environ, "BASE": base},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert "imagetools inspect docker.io/library/python:3.11-slim-bookworm" in ended.stderr
