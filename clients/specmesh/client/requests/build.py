"""Request messages built from keyword arguments."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from specmesh.client.requests.chats import ChatMessage, ToolChoice, chat_turn, chosen, written_tools
from specmesh.client.requests.filled import filled, filled_from, naming
from specmesh.client.requests.option_names import check_names
from specmesh.client.requests.sampling import (
    SamplingOptions,
    StoppingOptions,
    sampling_parameters,
)
from specmesh.client.requests.speculation import Filter, speculation_options
from specmesh.v1 import chat_pb2, sampling_pb2
from specmesh.v1 import generation_pb2 as pb

Prompt = str | Sequence[int]
"""Text, which the orchestrator tokenizes, or token ids, which are used as they are."""


class GenerateOptions(SamplingOptions, StoppingOptions, total=False):
    """The keyword arguments of all calls that generate; one that is omitted or None has its
    default."""

    model: str
    """Name of the target model; by default the only one served."""
    add_special_tokens: bool | None
    """Adds the special tokens that the tokenizer puts around every text, such as a
    beginning-of-text token. By default a text prompt gets them except where it already begins with
    them."""
    cache_salt: str
    """Separates the cached prefixes of this request from those of requests with another salt."""
    keep_special_tokens: bool
    """Includes special tokens in the text, except for one that ends the answer."""
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
    chunk_interval_s: float | None
    """The shortest time between two chunks, up to 0.5: tokens wait for others meanwhile, so that
    each costs the mesh less. By default a chunk comes as soon as there are tokens, or, where only
    the whole answer is awaited, a quarter of a second after the one before."""
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
    """Treats special tokens that are spelled out in messages and tools as plain text."""
    tools: Sequence[Mapping[str, Any] | str] | None
    """The tools that the model may call, as in OpenAI's API, or as the JSON of that."""
    tool_choice: ToolChoice | None
    """Makes the model call tools. By default it decides."""


class ChatOptions(GenerateOptions, TemplateOptions, total=False):
    """The keyword arguments of a chat."""


def chat_message(
    messages: Sequence[ChatMessage | Mapping[str, Any]], options: TemplateOptions | ChatOptions
) -> chat_pb2.Chat:
    """Build the message. Raises TypeError or ValueError, naming the place, for anything that is not
    a message or a tool, for a text that none can hold, and for template arguments that JSON can't
    represent."""
    goes_on = options.get("continue_final_message", False)
    begins = options.get("add_generation_prompt")
    chat = filled(
        chat_pb2.Chat,
        messages=[chat_turn(f"messages[{at}]", each) for at, each in enumerate(messages)],
        add_generation_prompt=not goes_on if begins is None else begins,
        continue_final_message=goes_on,
        content_as_text=options.get("content_as_text", False),
        tools=written_tools(options.get("tools")),
    )
    if (choice := options.get("tool_choice")) is not None:
        chat.tool_choice.CopyFrom(chosen(choice))
    if (arguments := options.get("template_arguments")) is not None:
        if not isinstance(arguments, Mapping):
            kind = type(arguments).__name__
            raise TypeError(f"template_arguments: expected a mapping, got {kind}")
        with naming("template_arguments: "):
            chat.template_arguments.update(dict(arguments))
    return chat


_GENERATE_OPTIONS = GenerateOptions.__annotations__
_OPTIONS = {**_GENERATE_OPTIONS, **TemplateOptions.__annotations__}
_ELSEWHERE = {"chunk_interval_s", "timeout_s", *TemplateOptions.__annotations__}
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
        model=given.get("model", ""),
        sampling=sampling_parameters(given),
        stopping=filled_from(sampling_pb2.StoppingCriteria, given),
        num_top_logprobs=given.get("num_top_logprobs"),
        add_special_tokens=given.get("add_special_tokens"),
        keep_special_tokens=given.get("keep_special_tokens"),
        cache_salt=given.get("cache_salt"),
        request_id=given.get("request_id") or str(uuid.uuid4()),
        speculation=speculation_options(given),
    )
    if isinstance(prompt, str):
        with naming("prompt: "):
            request.text = prompt
    elif isinstance(prompt, chat_pb2.Chat):
        request.chat.CopyFrom(prompt)
    elif isinstance(prompt, bytes | bytearray) or not isinstance(prompt, Iterable):
        kind = type(prompt).__name__
        raise TypeError(f"prompt: expected text or token ids, got {kind}")
    else:
        with naming("prompt: "):
            request.tokens.CopyFrom(pb.TokenIds(ids=prompt))
    return request
