"""Which chat template a model has: that of its folder, or the one given in its place."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from specmesh.inference.model import ModelNotLoadable
from specmesh.serving.templates.chat_template import ChatTemplate
from specmesh.serving.templates.template_language import BrokenTemplate, check_syntax

log = logging.getLogger(__name__)

DEFAULT = "default"
"""The name of the template for chats, where a model has several."""


def read_template(file: Path) -> str:
    """The template in ``file``. Raises ``ModelNotLoadable`` if it can't be read or is broken."""
    try:
        source = file.read_text(encoding="utf-8")
        check_syntax(source)
    except (OSError, UnicodeDecodeError, BrokenTemplate) as error:
        raise ModelNotLoadable(f"no chat template in {str(file)!r}: {error}") from error
    return source


def template_of(name: str, tokenizer: Any, given: str | None) -> ChatTemplate | None:
    """The chat template of the model ``name``, of which transformers loaded ``tokenizer``;
    ``given`` stands in for its own.

    A broken one is as good as none: the model still answers prompts of text.
    """
    source = given
    if source is None and (own := _own(name, tokenizer)) is not None:
        try:
            check_syntax(own)
            source = own
        except BrokenTemplate as error:
            log.warning("chat template broken", extra={"model": name, "reason": str(error)})
    return None if source is None else ChatTemplate(source, tokenizer.special_tokens_map)


def _own(name: str, tokenizer: Any) -> str | None:
    """What transformers read from ``chat_template.jinja``, else from ``tokenizer_config.json``."""
    template = tokenizer.chat_template
    if isinstance(template, dict):
        if DEFAULT not in template:
            listed = ", ".join(sorted(template))
            log.warning("no default chat template", extra={"model": name, "templates": listed})
        template = template.get(DEFAULT)
    return template if isinstance(template, str) else None
