"""The chat template of a model: its own, or one given instead."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from specmesh.inference.model import ModelNotLoadable
from specmesh.serving.templates.chat_template import ChatTemplate
from specmesh.serving.templates.template_language import BrokenTemplate, check_syntax

log = logging.getLogger(__name__)

DEFAULT, TOOL_USE = "default", "tool_use"
"""The names of the templates for chats, and for chats with tools, if a model has several."""


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
    if given is not None:
        return ChatTemplate(given, tokenizer.special_tokens_map)
    own = _own(name, tokenizer)
    if DEFAULT not in own:
        return None
    return ChatTemplate(own[DEFAULT], tokenizer.special_tokens_map, own.get(TOOL_USE, ""))


def _own(name: str, tokenizer: Any) -> dict[str, str]:
    """Return by name the templates that transformers read from ``chat_template.jinja`` and the
    files beside it, else from ``tokenizer_config.json``; only those that are used and valid."""
    templates = tokenizer.chat_template
    if isinstance(templates, str):
        templates = {DEFAULT: templates}
    if not isinstance(templates, dict):
        return {}
    if DEFAULT not in templates:
        listed = ", ".join(sorted(templates))
        log.warning(
            "model has no default chat template", extra={"model": name, "templates": listed}
        )
    valid = {}
    for used in (DEFAULT, TOOL_USE):
        if not isinstance(source := templates.get(used), str):
            continue
        try:
            check_syntax(source)
            valid[used] = source
        except BrokenTemplate as error:
            log.warning("chat template is broken", extra={"model": name, "reason": str(error)})
    return valid
