"""Checks of a local mesh's options, made before any of its processes starts to load.

Each function with one argument is an option's callback: it returns the value or raises
BadParameter.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import typer

from specmesh.cli.local.models import DRAFTER_BACKENDS, EngineBackend
from specmesh.serving.store import redis_url
from specmesh.serving.templates import model_names

Value = TypeVar("Value")


def check_model(name: str | None) -> str | None:
    """Refuse a folder that is missing or does not hold a model."""
    return name if name is None else _refuse(model_names.check_model, name)


def check_drafters(names: Sequence[str] | None) -> Sequence[str] | None:
    """Refuse the same, and a misspelt name of a drafter without a model."""
    for name in names or ():
        if name in DRAFTER_BACKENDS:
            continue
        check_model(name)
        if not Path(name).exists():
            _refuse_misspelt(name, DRAFTER_BACKENDS)
    return names


def check_folder(folder: Path | None) -> Path | None:
    """Refuse anything but a folder with a model or heads."""
    return folder if folder is None else _refuse(model_names.check_folder, folder)


def check_strategy(name: str) -> str:
    """Refuse a strategy that does not exist or can't be the default."""
    try:
        # Imported here, since most commands work without the orchestrator's packages.
        from specmesh.orchestrator.strategies import LOSSLESS, STRATEGIES
    except ModuleNotFoundError:  # the orchestrator will report it
        return name
    if name in LOSSLESS:
        return name
    if name in STRATEGIES:
        raise typer.BadParameter(
            f"{name!r} may change the text, so only a request may choose it; "
            f"the default must be one of: {', '.join(LOSSLESS)}"
        )
    _refuse_misspelt(name, LOSSLESS)
    raise typer.BadParameter(f"{name!r} is not one of: {', '.join(LOSSLESS)}")


def check_heads(strategy: str, heads: Path | None) -> None:
    """Raise BadParameter if the default ``strategy`` needs heads and there are none."""
    try:
        from specmesh.orchestrator.strategies import STRATEGIES
    except ModuleNotFoundError:  # as above
        return
    if STRATEGIES[strategy].needs_heads and heads is None:
        raise typer.BadParameter(
            f"{strategy!r} needs a target with --heads", param_hint="--strategy"
        )


def check_trees(file: Path | None) -> Path | None:
    """Refuse a file that does not hold trees."""
    try:
        from specmesh.orchestrator.driver.tree_file import read_trees
        from specmesh.serving.startup import CannotStart
    except ModuleNotFoundError:  # as above
        return file
    try:
        read_trees(file)
    except CannotStart as error:
        raise typer.BadParameter(str(error).removeprefix("--trees ")) from None
    return file


def check_calibration(file: Path | None) -> Path | None:
    """Refuse a file that does not hold a calibration."""
    try:
        from specmesh.serving.calibration_file import read_calibration
        from specmesh.serving.startup import CannotStart
    except ModuleNotFoundError:  # the confidence service will report it
        return file
    try:
        read_calibration(file)
    except CannotStart as error:
        raise typer.BadParameter(str(error).removeprefix("--calibration ")) from None
    return file


def check_template(file: Path | None) -> Path | None:
    """Refuse a file that does not hold a chat template."""
    if file is None:
        return None
    try:
        from specmesh.serving.templates.template_language import BrokenTemplate, check_syntax
    except ModuleNotFoundError:  # the verifiers will report it
        return file
    try:
        check_syntax(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, BrokenTemplate) as error:
        raise typer.BadParameter(f"cannot read a chat template from {file}: {error}") from None
    return file


def check_redis_url(url: str | None) -> str | None:
    """Refuse a URL that is not a valid one for Redis."""
    return url if url is None else _refuse(redis_url.check_redis_url, url)


def check_port(port: int) -> int:
    """Refuse a port on which this machine can't listen; 0 stands for any free one."""
    with socket.socket() as listener:
        # As servers do, so that lingering connections of an earlier server are no obstacle.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            why = os.strerror(error.errno or 0).lower()
            raise typer.BadParameter(
                f"cannot listen on port {port}: {why}; another mesh may be running, "
                "and --port 0 takes any free port"
            ) from None
    return port


def check_backend(backend: EngineBackend) -> EngineBackend:
    """Refuse vLLM if it is not installed in this environment."""
    if backend is EngineBackend.VLLM and find_spec("vllm") is None:
        raise typer.BadParameter("vLLM is not installed in this environment: see docs/vllm.md")
    return backend


def _refuse_misspelt(name: str, known: Iterable[str]) -> None:
    """Raise BadParameter if ``name`` looks like a misspelling of one of ``known``."""
    _refuse(lambda each: model_names.check_misspelt(each, known), name)


def _refuse(check: Callable[[Value], object], value: Value) -> Value:
    """Return ``value``; turn the ValueError of ``check`` into a BadParameter."""
    try:
        check(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return value
