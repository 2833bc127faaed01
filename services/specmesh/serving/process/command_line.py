"""The command line of a server process: options and ``--help`` made from its settings."""

from __future__ import annotations

import difflib
import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsError

from specmesh.serving.process.typer_app import App
from specmesh.serving.settings import INJECTED

Settings = TypeVar("Settings", bound=BaseSettings)

_METAVARS = {int: "INTEGER", float: "FLOAT"}
_PASSWORD = re.compile(r"://[^/@\s]*:[^/\s]+@|[?&](sentinel_)?password=")
"""Matches a URL with a password."""


def parse(settings_class: type[Settings], argv: Sequence[str], prog: str) -> Settings:
    """Return settings from ``argv`` (without the program's name), else environment, else defaults.

    A wrong value, or a variable of the role that is no setting, exits with status 2 and a line that
    names it; ``--help`` exits with status 0.
    """
    taken: list[Settings] = []

    def take(**given: str | bool | None) -> None:
        values = {name: value for name, value in given.items() if value is not None}
        taken.append(_settings(settings_class, values, argv, prog))

    try:
        make_app(settings_class, take)(list(argv), prog_name=prog)
    except SystemExit:
        if not taken:
            raise
    return taken[0]


def make_app(settings_class: type[BaseSettings], take: Callable[..., None]) -> App:
    """Return a command line for ``settings_class`` that calls ``take`` with the options given."""
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in _options(settings_class)
    ]

    def command(**given: str | bool | None) -> None:
        take(**given)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app = App()
    app.command(help=settings_class.__doc__, epilog=_epilog(settings_class))(command)
    return app


def _options(settings_class: type[BaseSettings]) -> list[tuple[str, Any]]:
    """Return every field's name and option: required ones first, then the role's own, then those
    shared with other roles. Options take any text, since pydantic validates the field's value, so
    that flags and variables get the same errors."""
    options = []
    fields = settings_class.model_fields
    for name in sorted(fields, key=lambda name: _rank(settings_class, name)):
        field = fields[name]
        flag = f"--{name.replace('_', '-')}"
        is_switch = field.annotation is bool
        option = typer.Option(
            f"{flag}/--no{flag[1:]}" if is_switch else flag,
            help=_help(name, field),
            metavar=None if is_switch else _metavar(field),
            rich_help_panel=_panel(settings_class, name),
        )
        options.append((name, Annotated[bool | None if is_switch else str | None, option]))
    return options


def _rank(settings_class: type[BaseSettings], name: str) -> int:
    """Return the sort key of a field, by the position of its panel."""
    if settings_class.model_fields[name].is_required():
        return -1
    if _panel(settings_class, name) is None:
        return 0
    return settings_class.__mro__.index(_first_with(settings_class, name))


def _panel(settings_class: type[BaseSettings], name: str) -> str | None:
    """Return the title of a field's panel in ``--help``; None for the default one."""
    if settings_class.model_fields[name].is_required():
        return "Required"
    return vars(_first_with(settings_class, name)).get("help_panel")


def _first_with(settings_class: type[BaseSettings], name: str) -> type:
    """Return the class that declares the field first; subclasses may change its default."""
    return next(
        each
        for each in reversed(settings_class.__mro__)
        if name in vars(each).get("__annotations__", ())
    )


def _metavar(field: FieldInfo) -> str:
    for kind in (field.annotation, *get_args(field.annotation)):
        if get_origin(kind) is Literal:
            return f"[{'|'.join(map(str, get_args(kind)))}]"
        if kind in _METAVARS:
            return _METAVARS[kind]
    return "TEXT"


def _help(name: str, field: FieldInfo) -> str:
    words = [field.description or ""]
    if field.is_required():
        words.append("[required]")
    elif field.default_factory is None and field.default not in {None, ""}:
        words.append(f"[default: {field.default}]")
    if field.validation_alias:
        words.append(f"[env var: {name.upper()}]")
    return " ".join(words)


def _epilog(settings_class: type[BaseSettings]) -> str:
    prefix = settings_class.model_config.get("env_prefix", "").upper()
    fields = settings_class.model_fields
    example = "port" if "port" in fields else next(iter(fields))
    return (
        "Each option can also be given as an environment variable: the one shown with it, else "
        f"{prefix} and the option's name, such as {prefix}{example.upper()} for "
        f"--{example.replace('_', '-')}."
    )


def _settings(
    settings_class: type[Settings], given: dict[str, Any], argv: Sequence[str], prog: str
) -> Settings:
    problems = [*_renamed(settings_class), *_unknown(settings_class), *_exposed(argv)]
    try:
        settings = settings_class(**given)
    except ValidationError as error:
        for problem in error.errors():
            # The message of a ValueError of ours suffices; pydantic puts "Value error" before it.
            said = str(problem.get("ctx", {}).get("error", problem["msg"]))
            if problem["type"] == "missing":
                said = "must be given"
            fields = (_spellings(settings_class, str(each)) for each in problem["loc"][:1])
            problems.append(": ".join((*fields, said)))
    except SettingsError as error:
        problems.append(str(error))
    else:
        if not problems:
            return settings
    for line in problems:
        # These lines are for the person at the terminal; logging is not configured yet.
        print(f"{prog}: error: {line}", file=sys.stderr)  # noqa: T201
    raise SystemExit(2)


def _renamed(settings_class: type[BaseSettings]) -> list[str]:
    """Return errors for variables with one underscore after the role, which are former names.

    Variables injected by Kubernetes are ignored.
    """
    given = {name.upper(): value for name, value in os.environ.items()}
    lines = []
    for field in settings_class.model_fields:
        variable = _variable(settings_class, field)
        old = variable.replace("__", "_")
        if old != variable and old in given and not INJECTED.search(given[old]):
            lines.append(f"{old} has been renamed to {variable}")
    return lines


def _unknown(settings_class: type[BaseSettings]) -> list[str]:
    """Return errors for variables with the role's prefix that set nothing, such as misspelt ones.

    Variables injected by Kubernetes have one underscore after the role.
    """
    prefix = settings_class.model_config.get("env_prefix", "").upper()
    fields = {name.upper(): name for name in settings_class.model_fields}
    known = {_variable(settings_class, name) for name in fields.values()}
    lines = []
    for variable in sorted({name.upper() for name in os.environ} - known):
        if prefix and variable.startswith(prefix):
            line = f"{variable} is no setting"
            for close in difflib.get_close_matches(variable.removeprefix(prefix), fields, 1):
                line += f"; is {_variable(settings_class, fields[close])} meant?"
            lines.append(line)
    return lines


def _exposed(argv: Sequence[str]) -> list[str]:
    """Return errors for passwords in arguments, which everybody on the machine can read."""
    if not any(_PASSWORD.search(argument) for argument in argv):
        return []
    return ["give a URL with a password in the environment: ps shows arguments to everybody"]


def _spellings(settings_class: type[BaseSettings], field: str) -> str:
    """Return the flag and the variable that set ``field``."""
    if field not in settings_class.model_fields:
        return field
    return f"--{field.replace('_', '-')} ({_variable(settings_class, field)})"


def _variable(settings_class: type[BaseSettings], field: str) -> str:
    aliased = settings_class.model_fields[field].validation_alias
    prefix = "" if aliased else settings_class.model_config.get("env_prefix", "")
    return f"{prefix}{field}".upper()
