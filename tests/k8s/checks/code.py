"""What manifests say to our processes is what those understand."""

from __future__ import annotations

import importlib
import io
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stderr
from functools import cache
from typing import Any
from unittest.mock import patch

import typer
from pydantic_settings import BaseSettings
from tests.k8s.manifests import ROLES, Manifests, Object, Pod
from tests.k8s.tools import REPOSITORY

from specmesh.load.__main__ import app as load_app
from specmesh.serving.process.command_line import parse
from specmesh.serving.rpc.health import LIVENESS, READINESS, STARTUP
from specmesh.traces.collector.settings import CollectorSettings

PROBES = {"startupProbe": STARTUP, "readinessProbe": READINESS, "livenessProbe": LIVENESS}
MIN_FAILURES = 2
STANDARD = {
    *("HF_HUB_OFFLINE", "POD_NAME", "POD_IP", "REDIS_PASSWORD"),
    *("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_CERTIFICATE"),
    *("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_KEY"),
}
"""Variables of other programs, and such as only the manifests use."""

IMAGES = {
    **{f"specmesh-{role}": role for role in ROLES},
    "specmesh-verifier-vllm": "verifier",
    "specmesh-load": "load",
    "specmesh-tools": "",
    "specmesh-demo": "",
}
"""Ours, with what each runs by itself; the last two are told by their arguments."""
USAGE_ERROR = typer.BadParameter.__base__
CONTAINERFILE = (REPOSITORY / "Containerfile").read_text()
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


@cache
def settings_of(role: str) -> type[BaseSettings]:
    """The class of the settings of ``specmesh serve ROLE``."""
    if role == "traces":
        return CollectorSettings
    module = "specmesh.gateway.settings" if role == "gateway" else f"specmesh.{role}.__main__"
    found: type[BaseSettings] = getattr(
        importlib.import_module(module), f"{role.capitalize()}Settings"
    )
    return found


def probes(manifests: Manifests) -> Iterator[str]:
    """Each role is asked for its startup, readiness and liveness, where and by the names that it
    answers to."""
    for pod in manifests.serving():
        (container,) = pod.spec["containers"]
        for kind, service in PROBES.items():
            asked = container.get(kind, {}).get("grpc", {})
            wanted = {"port": pod.ports.get("probe"), "service": service}
            if asked != wanted:
                yield f"{pod}: {kind} must ask {wanted}, not {asked}"


def patience(manifests: Manifests) -> Iterator[str]:
    """One answer that is late takes no pod out: on a busy node all would be out together."""
    for pod in manifests.pods:
        for container in pod.containers:
            probe = container.get("readinessProbe")
            if probe is not None and probe.get("failureThreshold", 3) < MIN_FAILURES:
                yield f"{pod}: is taken out by a readinessProbe that fails once"
            if "grpc" in (probe or {}) and probe.get("timeoutSeconds", 1) <= 1:
                yield f"{pod}: its readinessProbe waits for a second"


def settings(manifests: Manifests) -> Iterator[str]:
    """Every variable is a setting of the role that gets it, with a value that it takes."""
    for pod in manifests.pods:
        role = "verifier" if pod.name == "verifier-rank" else pod.name
        if role not in {*ROLES, "traces", "load"}:
            continue
        for container in pod.spec["containers"]:
            variables = manifests.environment(container)
            unknown = variables.keys() - _known(role) - STANDARD
            yield from (f"{pod}: {role} has no setting {name}" for name in sorted(unknown))
            if role == "load":
                yield from _load(pod, container)
            else:
                yield from (f"{pod}: {line}" for line in _refusal(role, tuple(variables.items())))


def _known(role: str) -> set[str]:
    if role == "load":
        return {str(each.envvar) for each in _load_command().params if each.envvar}
    fields = settings_of(role).model_fields
    prefix = str(settings_of(role).model_config["env_prefix"])
    return {(field.validation_alias or prefix + name).upper() for name, field in fields.items()}


@cache
def _refusal(role: str, variables: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    given = dict(variables)
    if given.get("REDIS_URL") == "":  # from a Secret
        given["REDIS_URL"] = "rediss://user:password@redis.example.org:6380"
    said = io.StringIO()
    with patch.dict(os.environ, given, clear=True), redirect_stderr(said):
        try:
            parse(settings_of(role), [], f"specmesh serve {role}")
        except SystemExit:
            return tuple(said.getvalue().splitlines())
    return ()


@cache
def _load_command():
    return typer.main.get_command(load_app).commands["run"]


def _load(pod: Pod, container: Object) -> Iterator[str]:
    command, *arguments = container["args"]
    if command != "run":
        yield f"{pod}: specmesh load {command} is none that is checked here"
    filled = [each.replace("$(POD_NAME)", "load-1") for each in arguments]
    try:
        _load_command().make_context("run", filled)
    except USAGE_ERROR as error:
        yield f"{pod}: specmesh load: {error.format_message()}"


def images(manifests: Manifests) -> Iterator[str]:
    """Images are those that are built, of this version, and run what the pod is for."""
    for pod in manifests.pods:
        for container in pod.containers:
            path, _, tag = container["image"].rpartition(":")
            name = path.rpartition("/")[2]
            if not name.startswith("specmesh-"):
                if not re.fullmatch(r"[a-z.]+/[\w/-]+", path) or tag in {"", "latest"}:
                    yield f"{pod}: {container['image']} must be HOST/NAME:VERSION"
                continue
            if name not in IMAGES:
                yield f"{pod}: no image {name} is built"
                continue
            if tag != PROJECT["version"]:
                yield f"{pod}: image {name} is of {tag}, not of {PROJECT['version']}"
            if container in pod.spec["containers"]:
                yield from _runs(pod, container, IMAGES[name])


def models(manifests: Manifests) -> Iterator[str]:
    """What pods of the image with the shipped models are told to load is in that image."""
    copied = r"^COPY services/specmesh/models/\S+ (/models/\S+)$"
    held = set(re.findall(copied, CONTAINERFILE, re.M))
    for pod in manifests.pods:
        for container in pod.spec["containers"]:
            if "specmesh-demo" not in container["image"]:
                continue
            told = manifests.environment(container).items()
            asked = {name: value for name, value in told if value.startswith("/models/")}
            if not asked:
                yield f"{pod}: is told no model"
            for name, value in asked.items():
                if value not in held:
                    yield f"{pod}: {name} is {value}, which its image does not have"


def _runs(pod: Pod, container: Object, runs: str) -> Iterator[str]:
    arguments: list[Any] = container.get("args", [])
    if "command" in container:
        runs = container["command"][-1].removeprefix("specmesh.")
    elif not runs:
        runs = " ".join(map(str, arguments)).removeprefix("serve ")
    if runs != pod.name.removesuffix("-rank"):
        yield f"{pod}: its image runs {runs!r}"
