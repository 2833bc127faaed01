"""The SDK where little else is: with the oldest versions that it allows, and with the newest."""

from __future__ import annotations

import re
import shutil
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from tests.install.environments import Environment, Installed, build_weights, install

from specmesh.client.testing import FakeMesh

MEGABYTE = 1_000_000

TALK = """
import asyncio, sys
from specmesh.client import AsyncClient, Client

address = sys.argv[1]
with Client(address) as client:
    print(client.complete("sync").text)

async def main():
    async with AsyncClient(address) as client:
        print((await client.chat([{"role": "user", "content": "async"}])).text)

asyncio.run(main())
unwanted = {"torch", "numpy", "redis", "transformers", "tokenizers"} & set(sys.modules)
assert not unwanted, unwanted
for name in ("torch", "numpy", "redis"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise SystemExit(f"{name} is installed")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For environments."""
    folder = tmp_path_factory.mktemp("client")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def client_only(wheel: Path, folder: Path) -> Environment:
    return Installed(folder / "newest", wheel).with_extra("")


def test_the_wheel_is_small_and_has_no_weights(
    wheel: Path, client_only: Environment, capsys: pytest.CaptureFixture[str]
):
    size = wheel.stat().st_size
    with capsys.disabled():
        print(f"\nthe client's wheel has {size / MEGABYTE:.2f} MB")  # noqa: T201
    assert size < 5 * MEGABYTE
    ended = client_only.run(
        "python", "-c", "from specmesh import models; models.path(models.TARGET)"
    )
    assert "ModuleNotFoundError" in ended.stderr


def test_the_wheel_has_no_benchmark(wheel: Path):
    with ZipFile(wheel) as packed:
        assert [name for name in packed.namelist() if name.startswith("specmesh/bench/")] == []


def test_the_weights_are_where_the_code_looks_for_them(wheel: Path, tmp_path: Path):
    both = Installed(tmp_path / "both", wheel, build_weights(tmp_path))
    program = "from specmesh import models; print(*models.path(models.DRAFTER).glob('*.json'))"
    ended = both.with_extra("").run("python", "-c", program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "tokenizer.json" in ended.stdout
    shutil.rmtree(tmp_path)


def test_a_client_alone_talks_to_a_mesh_with_the_newest_versions(client_only: Environment):
    with FakeMesh() as mesh:
        mesh.answer("one ", "two", breaks_after=1)
        mesh.answer("three ", "four", breaks_after=1)
        ended = client_only.run("python", "-W", "error", "-c", TALK, mesh.address)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == ["one two", "three four"]


def test_a_client_alone_talks_to_a_mesh_with_the_oldest_versions_that_it_allows(
    wheel: Path, folder: Path, client_only: Environment, capsys: pytest.CaptureFixture[str]
):
    oldest_only = folder / "oldest"
    venv.create(oldest_only, with_pip=False)
    install(oldest_only, *oldest(client_only))
    install(oldest_only, "--no-deps", "--no-index", str(wheel))
    (site,) = oldest_only.glob("lib/python*/site-packages")
    size = sum(file.stat().st_size for file in site.rglob("*") if file.is_file())
    with capsys.disabled():
        print(f"\na client-only environment has {size / MEGABYTE:.0f} MB")  # noqa: T201
    with FakeMesh() as mesh:
        mesh.answer("one ", "two", breaks_after=1)
        mesh.answer("three ", "four", breaks_after=1)
        ended = subprocess.run(
            [oldest_only / "bin" / "python", "-W", "error", "-c", TALK, mesh.address],
            capture_output=True,
            check=False,
            cwd=oldest_only,
            encoding="utf-8",
            timeout=60,
        )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == ["one two", "three four"]


def oldest(client_only: Environment) -> list[str]:
    """Each requirement of the SDK at its lower bound."""
    found = []
    for text in client_only.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None:
            lower = re.search(r">=([\d.]+)", str(requirement.specifier))
            assert lower, requirement
            found.append(f"{requirement.name}=={lower[1]}")
    assert len(found) == 5
    return found
