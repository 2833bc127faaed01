"""The Typer app of all commands, with help that is never truncated, dataclasses of options and a
check for UTF-8."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import typer
from typer.core import HAS_RICH, TyperCommand, TyperGroup

from specmesh.serving.process.help import help_of
from specmesh.serving.process.options import expanded
from specmesh.serving.process.wrong_values import plain_words

_SURROGATES = re.compile("[\ud800-\udfff]")
_USAGE = 2
"""The exit status of a command line that is wrong."""


class App(typer.Typer):
    """A ``typer.Typer`` that handles only errors of the command line; others go to its caller."""

    def __init__(self, **options: Any) -> None:
        usual: dict[str, Any] = {
            "cls": _Group,
            "add_completion": False,
            "pretty_exceptions_enable": False,
        }
        super().__init__(**usual | options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """Register a command, as ``Typer.command`` does; see ``expanded`` for its parameters."""
        return _expanding(super().command(name, **{"cls": _Command} | options))

    def callback(self, **options: Any) -> Callable[[Any], Any]:
        """Register the callback of a group in the same way."""
        return _expanding(super().callback(**options))


def _expanding(register: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def registered(command: Any) -> Any:
        register(expanded(command))
        return command

    return registered


class _Command(TyperCommand):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        if HAS_RICH:
            formatter.write(help_of(self, ctx))
        else:  # TYPER_USE_RICH=0 asks for plain text.
            super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with plain_words():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        _check_texts(self, ctx)
        return super().invoke(ctx)


class _Group(TyperGroup):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        if HAS_RICH:
            formatter.write(help_of(self, ctx))
        else:
            super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            # Typer raises an error here for which it then shows nothing.
            typer.echo(ctx.get_help(), err=True)
            ctx.exit(_USAGE)
        with plain_words():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        _check_texts(self, ctx)
        return super().invoke(ctx)


def _check_texts(command: TyperCommand | TyperGroup, context: Any) -> None:
    """Refuse texts that are not UTF-8, which Python decodes to lone surrogates; paths may be so.
    Those that are become what they say, also where the locale made surrogates of them."""
    parameters: list[Any] = command.get_params(context)
    for parameter in parameters:
        value = context.params.get(parameter.name)
        several = isinstance(value, list | tuple)
        given = list(value) if several else [value]
        try:
            read = list(map(_utf8, given))
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=context, param=parameter) from None
        if read != given:
            context.params[parameter.name] = read if several else read[0]


def _utf8(value: Any) -> Any:
    """Return a text as UTF-8 says it, and anything else as it is. Raises ValueError."""
    if not isinstance(value, str) or not _SURROGATES.search(value):
        return value
    try:
        return os.fsencode(value).decode("utf-8")
    except UnicodeError:
        given = value.encode("utf-8", "surrogateescape")
        raise ValueError(f"{given!r} is not UTF-8") from None
