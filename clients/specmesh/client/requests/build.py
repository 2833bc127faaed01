"""Request messages built from keyword arguments."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypedDict

from specmesh.client.requests.chats import ChatMessage, chat_turn
from specmesh.client.requests.filled import filled
from specmesh.client.requests.option_names import check_names
from specmesh.client.requests.speculation import Filter, speculation_options
from specmesh.v1 import chat_pb2, sampling_pb2
from specmesh.v1 import generation_pb2 as pb


class AcceptanceMode(StrEnum):
    """The exact meaning of "lossless" for a sampled answer."""

    COUPLED = "coupled"
    """The answer is exactly the text that the target alone generates with the same seed."""
    REJECTION = "rejection"
    """The answer has the target's distribution, with the highest acceptance."""


_ACCEPTANCE_MODES = {
    AcceptanceMode.COUPLED: sampling_pb2.ACCEPTANCE_MODE_COUPLED,
    AcceptanceMode.REJECTION: sampling_pb2.ACCEPTANCE_MODE_REJECTION,
}


def sampling_parameters(
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
    acceptance_mode: AcceptanceMode | str | None,
) -> sampling_pb2.SamplingParameters:
    """Build the message; None selects the server's default. Raises ValueError for an unknown
    mode."""
    return filled(
        sampling_pb2.SamplingParameters,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        acceptance_mode=(
            sampling_pb2.ACCEPTANCE_MODE_UNSPECIFIED
            if acceptance_mode is None
            else _ACCEPTANCE_MODES[AcceptanceMode(acceptance_mode)]
        ),
    )


Prompt = str | Sequence[int]
"""Text, which the orchestrator tokenizes, or token ids, which are used as they are."""


class GenerateOptions(TypedDict, total=False):
    """The keyword arguments of all calls that generate; one that is omitted or None has its
    default."""

    model: str
    """Name of the target model; by default the only one served."""
    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int | None
    acceptance_mode: AcceptanceMode | str | None
    max_tokens: int | None
    stop_token_ids: Sequence[int]
    stop_strings: Sequence[str]
    ignore_end_of_text: bool
    add_special_tokens: bool | None
    """Adds the special tokens that the tokenizer puts around every text, such as a
    beginning-of-text token. By default a text prompt gets them except where it already begins with
    them."""
    num_top_logprobs: int | None
    """Returns the log-probability of each token and of this many likeliest tokens at its
    position."""
    strategy: str
    filter: Filter | None
    lookahead: int | None
    num_branches: int | None
    predictor: str
    width: int | None
    shape: str
    request_id: str
    """Idempotency key: a request with an id that was used before continues that answer. By default
    the client draws one for each answer, so a retry never does the work twice."""
    timeout_s: float | None
    """Limit of the whole answer, retries and resumes included; default ``Timeouts.generate_s``."""


class TemplateOptions(TypedDict, total=False):
    """The keyword arguments that control how the model's template renders a chat."""

    add_generation_prompt: bool | None
    """Ends the prompt where the model's next message begins. This is the default."""
    continue_final_message: bool
    """Ends the prompt within the last message instead, so that the model continues it."""
    template_arguments: Mapping[str, Any] | None
    """Further variables of the template, by name."""
    content_as_text: bool
    """Treats special tokens that are spelled out in a message as plain text."""


class ChatOptions(GenerateOptions, TemplateOptions, total=False):
    """The keyword arguments of a chat."""


def chat_message(
    messages: Sequence[ChatMessage | Mapping[str, Any]], options: TemplateOptions | ChatOptions
) -> chat_pb2.Chat:
    """Build the message. Raises TypeError, naming the place, for anything that is not a message or
    not text, and ValueError for template arguments that JSON can't represent."""
    goes_on = options.get("continue_final_message", False)
    begins = options.get("add_generation_prompt")
    chat = chat_pb2.Chat(
        messages=[chat_turn(f"messages[{at}]", each) for at, each in enumerate(messages)],
        add_generation_prompt=not goes_on if begins is None else begins,
        continue_final_message=goes_on,
        content_as_text=options.get("content_as_text", False),
    )
    chat.template_arguments.update(dict(options.get("template_arguments") or {}))
    return chat


_GENERATE_OPTIONS = GenerateOptions.__annotations__
_OPTIONS = {**_GENERATE_OPTIONS, **TemplateOptions.__annotations__}
_ELSEWHERE = {"timeout_s", *TemplateOptions.__annotations__}
"""Keyword arguments that are not fields of the request: the client's own, and the chat's."""


def generate_request(
    prompt: Prompt | chat_pb2.Chat, options: GenerateOptions | ChatOptions
) -> pb.GenerateRequest:
    """Build the message for ``options``, ignoring the client's own.

    Raises TypeError for an unknown option or a value of the wrong type, and ValueError for a value
    that no request can hold.
    """
    check_names(options, _OPTIONS if isinstance(prompt, chat_pb2.Chat) else _GENERATE_OPTIONS)
    if isinstance(options.get("stop_strings"), str):  # would be read as a sequence of characters
        raise TypeError("stop_strings: expected a sequence of strings, got one string")
    given: dict[str, Any] = {
        name: value
        for name, value in options.items()
        if value is not None and name not in _ELSEWHERE
    }
    request = filled(
        pb.GenerateRequest,
        model=given.pop("model", ""),
        sampling=sampling_parameters(
            given.pop("temperature", None),
            given.pop("top_k", None),
            given.pop("top_p", None),
            given.pop("seed", None),
            given.pop("acceptance_mode", None),
        ),
        stopping=filled(
            sampling_pb2.StoppingCriteria,
            max_tokens=given.pop("max_tokens", None),
            stop_token_ids=given.pop("stop_token_ids", ()),
            stop_strings=given.pop("stop_strings", ()),
            ignore_end_of_text=given.pop("ignore_end_of_text", False),
        ),
        num_top_logprobs=given.pop("num_top_logprobs", None),
        add_special_tokens=given.pop("add_special_tokens", None),
        request_id=given.pop("request_id", "") or str(uuid.uuid4()),
        speculation=speculation_options(
            given.pop("strategy", ""), given.pop("filter", None), given
        ),
    )
    if isinstance(prompt, str):
        request.text = prompt
    elif isinstance(prompt, chat_pb2.Chat):
        request.chat.CopyFrom(prompt)
    elif isinstance(prompt, bytes | bytearray) or not isinstance(prompt, Iterable):
        kind = type(prompt).__name__
        raise TypeError(f"prompt: expected text or token ids, got {kind}")
    else:
        try:
            request.tokens.CopyFrom(pb.TokenIds(ids=prompt))
        except (TypeError, ValueError) as error:
            raise type(error)(f"prompt: {error}") from None
    return request
