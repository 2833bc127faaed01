"""Typer apps as all commands of specmesh are: their help is whole, and texts are UTF-8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import HAS_RICH, TyperCommand, TyperGroup

from specmesh.serving.process.help import help_of


class App(typer.Typer):
    """A ``typer.Typer`` whose errors, but for those of the command line, are left to its caller."""

    def __init__(self, **options: Any) -> None:
        usual: dict[str, Any] = {
            "cls": _Group,
            "add_completion": False,
            "pretty_exceptions_enable": False,
        }
        super().__init__(**usual | options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """As ``Typer.command``."""
        return super().command(name, **{"cls": _Command} | options)


class _Command(TyperCommand):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        if HAS_RICH:
            formatter.write(help_of(self, ctx))
        else:  # TYPER_USE_RICH=0: plain text is wanted.
            super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        _check_texts(self, ctx)
        return super().invoke(ctx)


class _Group(TyperGroup):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        if HAS_RICH:
            formatter.write(help_of(self, ctx))
        else:
            super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        _check_texts(self, ctx)
        return super().invoke(ctx)


def _check_texts(command: TyperCommand | TyperGroup, context: Any) -> None:
    """Refuse what is no UTF-8, which Python takes in as halves of characters. Paths may be so."""
    parameters: list[Any] = command.get_params(context)
    for parameter in parameters:
        value = context.params.get(parameter.name)
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, str) and not _is_utf8(each):
                given = each.encode("utf-8", "surrogateescape")
                raise typer.BadParameter(f"{given!r} is not UTF-8", ctx=context, param=parameter)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
