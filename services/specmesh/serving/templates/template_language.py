"""The language of chat templates: Jinja in a sandbox, with transformers' additions.

Templates render exactly the text that transformers' ``apply_chat_template`` renders. The sandbox
keeps them from reaching Python, but not from running forever or exhausting the memory: callers that
render untrusted templates must limit both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from specmesh.serving.templates.chat_template import MAX_TEMPLATE_BYTES


class BrokenTemplate(Exception):
    """The source is not a valid template; the message says where and why."""


def check_syntax(source: str) -> None:
    """Raise ``BrokenTemplate`` unless ``source`` is a valid template.

    It is only parsed: compiling would evaluate constant expressions, which can take forever.
    """
    num_bytes = len(source.encode(errors="replace"))
    if num_bytes > MAX_TEMPLATE_BYTES:
        raise BrokenTemplate(f"it has {num_bytes} bytes, more than {MAX_TEMPLATE_BYTES}")
    try:
        _ENVIRONMENT.parse(source)
    except TemplateSyntaxError as error:
        raise BrokenTemplate(f"line {error.lineno}: {error.message}") from error
    except RecursionError as error:
        raise BrokenTemplate("it is nested too deeply") from error


def render(source: str, variables: Mapping[str, Any], max_bytes: int) -> str:
    """Render the template with ``variables``; stop after the piece with which the text exceeds
    ``max_bytes`` in UTF-8.

    Raises any error of Jinja or Python, and ``TemplateError`` if the template itself raises.
    """
    pieces, num_bytes = [], 0
    for piece in _compiled(source).generate(variables):
        pieces.append(piece)
        num_bytes += len(piece.encode())
        if num_bytes > max_bytes:
            break
    return "".join(pieces)


@lru_cache(maxsize=1)
def _compiled(source: str) -> Template:
    return _ENVIRONMENT.from_string(source)


class _Generation(Extension):
    """The tag ``{% generation %}``, which marks the model's own text for training and has no effect
    here."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _PlainNamespace(Namespace):
    """A namespace that refuses names with a leading underscore, which are special in Python."""

    def __init__(self, /, *args: Any, **attributes: Any) -> None:
        given = dict(*args, **attributes)
        for name in given:
            _check_name(name)
        super().__init__(given)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"{name!r} begins with an underscore")


def _raise_exception(message: object) -> NoReturn:
    raise TemplateError(str(message))


def _strftime_now(format: str) -> str:  # noqa: A002
    return datetime.now().strftime(format)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON without escapes for HTML, unlike Jinja's own filter."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, loopcontrols],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    environment.globals["namespace"] = _PlainNamespace
    return environment


_ENVIRONMENT = _environment()
