"""The JSON files of a model: which of them is to blame where transformers' errors name none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers.tokenization_utils_base import FULL_TOKENIZER_FILE, TOKENIZER_CONFIG_FILE
from transformers.utils import CONFIG_NAME, GENERATION_CONFIG_NAME
from transformers.utils.hub import cached_file

from specmesh.inference.reasons import field_of, in_file, reason_of

_CONTEXT = "max_position_embeddings"
_EXTENDING = ("yarn", "linear", "dynamic")
"""The types of RoPE whose factor is that of the context's length."""


def check_context(config: Any) -> None:
    """Raise ``ValueError`` unless the configuration of a text model says how long texts may be."""
    length = getattr(config, _CONTEXT, None)
    if not isinstance(length, int) or length < 1:
        raise ValueError(f"{_CONTEXT} is {length!r}, but must be a whole number above 0")


def extended_context(config: Any) -> int | None:
    """Return to how many tokens RoPE scaling extends the context of a text model, as vLLM reckons,
    if that is more than its configuration names; else None.

    Only the author knows if it names the length before or after. Types whose scaling changes
    nothing in the length, such as Llama 3's, are left out.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") not in _EXTENDING:
        return None
    named: int = config.max_position_embeddings
    original = rope.get("original_max_position_embeddings") or named
    extended = int((rope.get("factor") or 1) * original)
    return extended if extended > named else None


def read_generation_config(name: str, revision: str | None) -> Mapping[str, object] | None:
    """Return the generation settings of the model ``name``; None if it has no such file. Raises
    ``ValueError`` for a broken one."""
    file = _path(name, GENERATION_CONFIG_NAME, revision)
    if file is None:
        return None
    with in_file(GENERATION_CONFIG_NAME):
        settings = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(settings, dict):
            raise ValueError("not a JSON object")
    return settings


@contextmanager
def naming_tokenizer_file(name: str, revision: str | None) -> Iterator[None]:
    """Turn an error of reading the tokenizer into a ``ValueError`` that names the broken file."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        blamed = _blamed_for_tokenizer(name, revision)
        raise ValueError(f"{blamed}: {reason_of(error)}") from error


@contextmanager
def naming_unknown_value(config: Mapping[str, object]) -> Iterator[None]:
    """Turn a ``KeyError`` of making a model of ``config``, whose text is only a value that
    transformers has no code for, into a ``ValueError`` that names the field."""
    try:
        yield
    except KeyError as error:
        field = field_of(config, error.args[0]) if error.args else None
        if field is None:
            raise
        raise ValueError(f"{CONFIG_NAME}: {field} {error} is unknown to transformers") from error


def _blamed_for_tokenizer(name: str, revision: str | None) -> str:
    for file in (FULL_TOKENIZER_FILE, TOKENIZER_CONFIG_FILE):
        path = _path(name, file, revision)
        if path is None:
            return f"there is no {file}"
        try:
            json.loads(path.read_bytes())
        except ValueError:
            return file
    return "the tokenizer"


def _path(name: str, file: str, revision: str | None) -> Path | None:
    """Return the path of a file of the model; None if it has no such file."""
    path = cached_file(name, file, revision=revision, _raise_exceptions_for_missing_entries=False)
    return None if path is None else Path(path)
