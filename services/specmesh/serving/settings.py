"""Settings of a process: one definition gives environment variables and command line."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

Settings = TypeVar("Settings", bound=BaseSettings)


def host_pid() -> str:
    """A name for this process; in Kubernetes the host is the pod."""
    return f"{socket.gethostname()}-{os.getpid()}"


class ServerSettings(BaseSettings):
    """What every server is told. A role subclasses it, adds fields and sets ``env_prefix``."""

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
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least level that is logged"
    )


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


def parse(settings_class: type[Settings], argv: Sequence[str], prog: str) -> Settings:
    """Settings from ``argv`` (without the program's name), else environment, else defaults.

    A wrong value ends the process with status 2 and a line that names the field; ``--help``
    with status 0.
    """
    try:
        return settings_class(
            _cli_parse_args=list(argv),
            _cli_prog_name=prog,
            _cli_kebab_case=True,
            _cli_implicit_flags=True,
            _cli_hide_none_type=True,
            _cli_avoid_json=True,
        )
    except ValidationError as error:
        for problem in error.errors():
            field = str(problem["loc"][0]) if problem["loc"] else "settings"
            print(  # noqa: T201 - for whoever typed the command, before any log exists
                f"{prog}: error: {_spellings(settings_class, field)}: {problem['msg']}",
                file=sys.stderr,
            )
    except SettingsError as error:
        print(f"{prog}: error: {error}", file=sys.stderr)  # noqa: T201
    raise SystemExit(2)


def _spellings(settings_class: type[BaseSettings], field: str) -> str:
    """How a person may have set ``field``: as a flag or as a variable."""
    if field not in settings_class.model_fields:
        return field
    aliased = settings_class.model_fields[field].validation_alias
    prefix = "" if aliased else settings_class.model_config.get("env_prefix", "")
    return f"--{field.replace('_', '-')} ({prefix.upper()}{field.upper()})"
