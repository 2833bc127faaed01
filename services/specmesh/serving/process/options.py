"""Commands whose parameters are dataclasses: each field is an option, or again such a dataclass."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from operator import itemgetter
from typing import Annotated, Any, get_args

import typer


def expanded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``command`` with the options of its dataclasses as parameters, for Typer to read.

    A field's annotation and default are those of an option. Options keep the order in which
    ``command`` and the dataclasses declare them, and their names must differ. A dataclass may have
    a ``help_panel``, the title of its options in ``--help``.
    """
    options, call = _flat(command)

    @functools.wraps(command)
    def called(**given: Any) -> Any:
        return call(given)

    called.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in options}
    return called


def _flat(
    make: Callable[..., Any],
) -> tuple[list[inspect.Parameter], Callable[[Mapping[str, Any]], Any]]:
    """Return the options of a command or dataclass, and its call with their values by name."""
    options: list[inspect.Parameter] = []
    arguments: dict[str, Callable[[Mapping[str, Any]], Any]] = {}
    for name, each in inspect.signature(make, eval_str=True).parameters.items():
        if isinstance(each.annotation, type) and is_dataclass(each.annotation):
            own, arguments[name] = _flat(each.annotation)
            options += own
        else:
            options.append(_option(make, each))
            arguments[name] = itemgetter(name)
    return options, lambda given: make(**{name: of(given) for name, of in arguments.items()})


def _option(make: Callable[..., Any], parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter of ``make`` with the panel and the default that a dataclass gives it."""
    annotation, default = parameter.annotation, parameter.default
    if is_dataclass(make):
        if panel := getattr(make, "help_panel", None):
            kind, option = get_args(annotation)
            option = copy(option)
            option.rich_help_panel = panel
            annotation = Annotated[kind, option]
        factories = {each.name: each.default_factory for each in fields(make)}
        if (factory := factories[parameter.name]) is not MISSING:
            default = factory()
    return parameter.replace(annotation=annotation, default=default, kind=parameter.KEYWORD_ONLY)


def is_typed(context: typer.Context, name: str) -> bool:
    """Return whether an option is on the command line itself, and not a variable's or a default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
