"""The bodies of POST /tokenize and POST /detokenize, which are vLLM's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.chats import ChatRequest
from specmesh.gateway.requests.completions import MAX_PROMPT_TOKENS
from specmesh.gateway.requests.fields import Fields, Uint32
from specmesh.gateway.requests.parameters.standing import Parameter, Parameters, Standing
from specmesh.gateway.requests.parameters.tables import EXTENSION
from specmesh.gateway.requests.reading import read_request

_Model = Annotated[str, Field(max_length=512)]
"""The name of a model; empty for the only one."""


def _table(supported: Iterable[str], refused: Mapping[str, tuple[object, ...]]) -> Parameters:
    return {
        **{name: Parameter(name, Standing.SUPPORTED) for name in supported},
        **{name: Parameter(name, Standing.REFUSED, neutral) for name, neutral in refused.items()},
    }


TOKENIZE_TEXT = _table(("model", "prompt", "add_special_tokens", "return_token_strs"), {})
TOKENIZE_CHAT = _table(
    (
        *("model", "messages", "add_generation_prompt", "continue_final_message"),
        *("chat_template_kwargs", "return_token_strs"),
    ),
    {
        "add_special_tokens": (False,),  # the template adds them itself
        "chat_template": (),
        "media_io_kwargs": (),
        "mm_processor_kwargs": (),
        "tools": ([],),
    },
)
DETOKENIZE = _table(("model", "tokens"), {})


class TokenizeText(Fields):
    """A text to tokenize."""

    model: _Model = ""
    prompt: str
    add_special_tokens: bool | None = None
    return_token_strs: bool = False


class TokenizeChat(ChatRequest):
    """A chat whose prompt is to be tokenized, as POST /v1/chat/completions would take it."""

    model: _Model = ""
    return_token_strs: bool = False

    @model_validator(mode="after")
    def _check_extension(self) -> Self:
        for field in self.specmesh.model_fields_set - {"content_as_text"}:
            name = f"{EXTENSION}.{field}"
            raise ApiError.invalid(name, f"{name!r} has no meaning for a prompt alone")
        return self


class Detokenize(Fields):
    """Tokens whose text is asked for."""

    model: _Model = ""
    tokens: Annotated[list[Uint32], Field(max_length=MAX_PROMPT_TOKENS, fail_fast=True)]


def tokenize_request(given: Mapping[str, object]) -> TokenizeText | TokenizeChat:
    """Validate the body ``given``. Raises ``ApiError``."""
    if given.get("messages") is None:
        return read_request(TokenizeText, given, TOKENIZE_TEXT, hints={})
    if given.get("prompt") is not None:
        raise ApiError.invalid("prompt", "'prompt' and 'messages' exclude each other")
    return read_request(TokenizeChat, given, TOKENIZE_CHAT, hints={})


def detokenize_request(given: Mapping[str, object]) -> Detokenize:
    """Validate the body ``given``. Raises ``ApiError``."""
    return read_request(Detokenize, given, DETOKENIZE, hints={})
