"""The chat template of a model: its own, or one given instead."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from specmesh.inference.model import ModelNotLoadable
from specmesh.serving.templates.chat_template import ChatTemplate
from specmesh.serving.templates.template_language import BrokenTemplate, check_syntax

log = logging.getLogger(__name__)

DEFAULT = "default"
"""The name of the template for chats if a model has several templates."""


def given_template(settings: Any) -> str | None:
    """Return the template in the file that ``settings`` name; None if they name none, or have no
    such setting. Raises ``ModelNotLoadable`` if it can't be read or is broken."""
    file: Path | None = getattr(settings, "chat_template", None)
    if file is None:
        return None
    try:
        source = file.read_text(encoding="utf-8")
        check_syntax(source)
    except (OSError, UnicodeDecodeError, BrokenTemplate) as error:
        raise ModelNotLoadable(
            f"cannot read a chat template from {str(file)!r}: {error}"
        ) from error
    return source


def template_of(name: str, tokenizer: Any, given: str | None) -> ChatTemplate | None:
    """Return the chat template of the model ``name`` with transformers' ``tokenizer``, or ``given``
    if that is set.

    A broken template is ignored: the model still answers text prompts.
    """
    source = given
    if source is None and (own := _own(name, tokenizer)) is not None:
        try:
            check_syntax(own)
            source = own
        except BrokenTemplate as error:
            log.warning("chat template is broken", extra={"model": name, "reason": str(error)})
    return None if source is None else ChatTemplate(source, tokenizer.special_tokens_map)


def _own(name: str, tokenizer: Any) -> str | None:
    """Return the template that transformers read from ``chat_template.jinja``, else from
    ``tokenizer_config.json``."""
    template = tokenizer.chat_template
    if isinstance(template, dict):
        if DEFAULT not in template:
            listed = ", ".join(sorted(template))
            log.warning(
                "model has no default chat template", extra={"model": name, "templates": listed}
            )
        template = template.get(DEFAULT)
    return template if isinstance(template, str) else None
