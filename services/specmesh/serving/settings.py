"""Settings of a process: one definition gives environment variables and command line.

A role's variables start with its name and two underscores. For a Service called
``specmesh-verifier`` Kubernetes puts ``SPECMESH_VERIFIER_PORT=tcp://10.0.0.1:50061`` and the like
into every container; a Service's name ends in no hyphen, so none makes
``SPECMESH_VERIFIER__PORT``.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from specmesh.serving.intake import MAX_REQUEST_BYTES

Settings = TypeVar("Settings", bound=BaseSettings)

DEFAULT_PREFIX = "specmesh"
"""The beginning of keys in Redis."""

_INJECTED = re.compile(r"\b(tcp|udp|sctp)://")
"""Found in what Kubernetes injects for a Service's port, and in no valid setting."""
_PASSWORD = re.compile(r"://[^/@\s]*:[^/\s]+@|[?&]password=")
"""Found in a URL with a password."""


def host_pid() -> str:
    """A name for this process; in Kubernetes the host is the pod."""
    return f"{socket.gethostname()}-{os.getpid()}"


class ServerSettings(BaseSettings):
    """Settings of every server.

    A role subclasses it, adds fields and sets ``env_prefix``, which ends in two underscores.
    """

    model_config = SettingsConfigDict(frozen=True)

    host: str = Field(
        "127.0.0.1", description="address to listen on; 0.0.0.0 for every IPv4 interface"
    )
    port: int = Field(0, ge=0, le=65535, description="port to listen on; 0 takes any free one")
    name: str = Field(
        default_factory=host_pid,
        min_length=1,
        description="name of this instance in logs, traces and routing",
    )
    drain_seconds: float = Field(
        10.0, ge=0, description="how long running calls may go on after SIGTERM"
    )
    max_request_bytes: int = Field(
        MAX_REQUEST_BYTES, ge=1024, le=2**30, description="largest request that is taken in"
    )
    max_concurrent_streams: int = Field(
        1024,
        ge=1,
        lt=2**31,
        description="calls that one connection may have open; more wait at their client",
    )
    stall_seconds: float = Field(
        30.0, gt=0, description="how long a message may wait for a client that does not read"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least level that is logged"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _check_not_injected(cls, value: object) -> object:
        if isinstance(value, str) and _INJECTED.search(value):
            raise ValueError("looks like what Kubernetes injects for a Service")
        return value


def _check_redis_url(url: str) -> str:
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("must start with redis://, rediss:// or unix://")
    return url


class RedisSettings(BaseSettings):
    """Mixin for the roles that use Redis; its variable, ``REDIS_URL``, carries no prefix."""

    model_config = SettingsConfigDict(frozen=True)

    redis_url: Annotated[str, AfterValidator(_check_redis_url)] | None = Field(
        None,
        # An alias is read without the class's prefix.
        validation_alias="redis_url",
        description="Redis that keeps sessions; without it answers cannot be resumed",
    )
    redis_prefix: str = Field(
        DEFAULT_PREFIX,
        pattern=r"^[\w.-]+$",
        validation_alias="redis_prefix",
        description="what every key in Redis begins with: the same in all of a mesh, another in "
        "each mesh that shares a Redis",
    )


def parse(settings_class: type[Settings], argv: Sequence[str], prog: str) -> Settings:
    """Settings from ``argv`` (without the program's name), else environment, else defaults.

    A wrong value ends the process with status 2 and a line that names the field, as does a variable
    under its former name; ``--help`` with status 0.
    """
    problems = [*_renamed(settings_class), *_exposed(argv)]
    try:
        settings = settings_class(
            _cli_parse_args=list(argv),
            _cli_prog_name=prog,
            _cli_kebab_case=True,
            _cli_implicit_flags=True,
            _cli_hide_none_type=True,
            _cli_avoid_json=True,
            _cli_show_env_vars=True,
        )
    except ValidationError as error:
        for problem in error.errors():
            field = str(problem["loc"][0]) if problem["loc"] else "settings"
            problems.append(f"{_spellings(settings_class, field)}: {problem['msg']}")
    except SettingsError as error:
        problems.append(str(error))
    else:
        if not problems:
            return settings
    for line in problems:
        # For whoever typed the command, before any log exists.
        print(f"{prog}: error: {line}", file=sys.stderr)  # noqa: T201
    raise SystemExit(2)


def _renamed(settings_class: type[BaseSettings]) -> list[str]:
    """Errors for variables with one underscore after the role, which are former names.

    Those that Kubernetes injected are ignored.
    """
    given = {name.upper(): value for name, value in os.environ.items()}
    lines = []
    for field in settings_class.model_fields:
        variable = _variable(settings_class, field)
        old = variable.replace("__", "_")
        if old != variable and old in given and not _INJECTED.search(given[old]):
            lines.append(f"{old} is called {variable} now")
    return lines


def _exposed(argv: Sequence[str]) -> list[str]:
    """Errors for passwords among the arguments, which everybody on the machine can read."""
    if not any(_PASSWORD.search(argument) for argument in argv):
        return []
    return ["a URL with a password is for the environment: ps shows arguments to everybody"]


def _spellings(settings_class: type[BaseSettings], field: str) -> str:
    """The flag and the variable by which ``field`` can be set."""
    if field not in settings_class.model_fields:
        return field
    return f"--{field.replace('_', '-')} ({_variable(settings_class, field)})"


def _variable(settings_class: type[BaseSettings], field: str) -> str:
    aliased = settings_class.model_fields[field].validation_alias
    prefix = "" if aliased else settings_class.model_config.get("env_prefix", "")
    return f"{prefix}{field}".upper()
