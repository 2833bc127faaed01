"""Backends are found by registration, those of other packages as well."""

import os
import subprocess
import sys

import pytest

from specmesh.drafter.__main__ import DrafterService, DrafterSettings
from specmesh.inference.backends import registry
from specmesh.inference.backends.registry import backends, names
from specmesh.inference.model import ModelNotLoadable
from specmesh.verifier.__main__ import VerifierService, VerifierSettings

ADDED = """
from typing import ClassVar
from pydantic import Field
from pydantic_settings import BaseSettings
from specmesh.inference.backends.registry import Backend
from specmesh.inference.models.simulated.empty import EmptyModel

class EchoSettings(BaseSettings):
    help_panel: ClassVar[str] = "Echo"
    echo_delay_ms: float = Field(0.0, description="how long an echo takes")

def load_target(settings, ranks):
    print("asked for", settings.echo_delay_ms)
    return EmptyModel()

BACKEND = Backend(name="echo", load_target=load_target, target_settings=EchoSettings)
"""


@pytest.fixture
def with_package(tmp_path):
    """Run a program in a process where a package that adds a backend is installed."""
    (tmp_path / "echo_backend.py").write_text(ADDED)
    described = tmp_path / "echo_backend-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-backend\nVersion: 1.0\n")
    entry = f"[{registry.ENTRY_POINTS}]\necho = echo_backend:BACKEND\n"
    (described / "entry_points.txt").write_text(entry)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    def run(*command):
        environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "80"}
        command = [sys.executable, *command]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    return run


def test_a_package_adds_a_backend_with_its_options(with_package):
    helped = with_package("-m", "specmesh.verifier", "--help").stdout
    assert "echo" in helped
    assert "--echo-delay-ms" in helped
    program = (
        "from specmesh.verifier.__main__ import VerifierService, VerifierSettings\n"
        "VerifierService(VerifierSettings(backend='echo', echo_delay_ms=2.5)).load()"
    )
    assert with_package("-c", program).stdout == "asked for 2.5\n"


@pytest.mark.parametrize(("role", "lacks"), [("verifier", "ngram"), ("drafter", "empty")])
def test_a_role_offers_the_backends_that_serve_it(role, lacks):
    assert lacks in backends()
    assert lacks not in names(role)


def test_a_backend_that_there_is_not_is_refused_with_what_was_probably_meant():
    with pytest.raises(ValueError, match=r"must be one of transformers, .*; did you mean vllm\?"):
        VerifierSettings(backend="vlm")


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"heads": "folder"}, "--heads: backend 'simulated' does not use it"),
        ({"units": "cpu:0,cpu:1"}, "--units is only for --backend units"),
        ({"engine_options": "--x"}, "--engine-options is only for --backend vllm"),
    ],
    ids=["heads", "units", "engine options"],
)
def test_what_means_nothing_to_a_backend_is_refused(setting, why):
    with pytest.raises(ModelNotLoadable, match=why):
        VerifierService(VerifierSettings(backend="simulated", **setting)).load()


def test_a_backend_without_heads_says_why():
    why = "--heads: backend 'vllm' does not use it: vLLM's workers don't return the hidden states"
    with pytest.raises(ModelNotLoadable, match=why):
        VerifierService(VerifierSettings(backend="vllm", model="m", heads="folder")).load()


def test_a_setting_of_other_backends_is_refused_with_the_names_of_them_all():
    named_all = "--tokenizer is only for --backend ngram or prompt-lookup or random"
    with pytest.raises(ModelNotLoadable, match=named_all):
        DrafterService(DrafterSettings(backend="simulated", tokenizer="any")).load()
