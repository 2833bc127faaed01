"""Every parameter of the two calls and its standing: one table for each call, by name.

``docs/openai.md`` shows the tables, and a test compares OpenAI's parameters with the signatures of
the ``openai`` package.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.parameters import other_servers
from specmesh.gateway.requests.parameters.standing import Parameter, Parameters, Standing

EXTENSION = "specmesh"
"""The one field of a request that is specmesh's own."""
NO_SEED = -1
"""The value by which clients of other servers ask for a random seed."""


_NEUTRAL: Mapping[str, object] = {
    "best_of": 1,
    "seed": NO_SEED,
    "frequency_penalty": 0,
    "logit_bias": {},
    "presence_penalty": 0,
    "response_format": {"type": "text"},
}
"""Values of supported parameters that mean the same as leaving them out."""


def _table(
    supported: Iterable[str], ignored: Iterable[str], refused: Mapping[str, tuple[object, ...]]
) -> Parameters:
    return {
        **{
            name: Parameter(name, Standing.SUPPORTED, (_NEUTRAL[name],) if name in _NEUTRAL else ())
            for name in supported
        },
        **{name: Parameter(name, Standing.IGNORED) for name in ignored},
        **{name: Parameter(name, Standing.REFUSED, neutral) for name, neutral in refused.items()},
    }


OPENAI_COMPLETIONS = _table(
    supported=(
        *("model", "prompt", "max_tokens", "temperature", "top_p", "n", "stop"),
        *("stream", "stream_options", "logprobs", "echo", "best_of"),
        *("seed", "frequency_penalty", "logit_bias", "presence_penalty"),
    ),
    ignored=("user",),
    refused={
        "suffix": ("",),
    },
)

OPENAI_CHAT = _table(
    supported=(
        *("model", "messages", "max_completion_tokens", "max_tokens", "temperature", "top_p"),
        *("n", "stop", "stream", "stream_options", "logprobs", "top_logprobs"),
        *("seed", "frequency_penalty", "logit_bias", "presence_penalty", "response_format"),
        *("tools", "tool_choice", "parallel_tool_calls"),
    ),
    ignored=(
        *("user", "metadata", "store", "safety_identifier"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
    ),
    refused={
        "audio": (),
        "function_call": ("none", "auto"),
        "functions": ([],),
        "modalities": (["text"],),
        "moderation": (),
        "prediction": (),
        "reasoning_effort": ("none",),
        "service_tier": ("auto", "default"),
        "verbosity": ("medium",),
        "web_search_options": (),
    },
)


COMPLETIONS: Parameters = {**other_servers.of_completions(), **OPENAI_COMPLETIONS}
CHAT: Parameters = {**other_servers.of_chats(), **OPENAI_CHAT}


def taken(
    given: Mapping[str, object], parameters: Parameters, hints: Mapping[str, str]
) -> dict[str, object]:
    """Return the parameters of ``given`` to validate: supported or ignored ones, not neutral.

    ``hints`` maps names that OpenAI doesn't have to the field to use instead. Raises ``ApiError``
    for the first parameter that is unknown, or refused and not neutral.
    """
    kept = {}
    for name, value in given.items():
        parameter = parameters.get(name)
        if parameter is None:
            if name != EXTENSION:
                raise _unusable(name, "unknown parameter {}", hints, "unknown_parameter")
            if value is not None:
                kept[name] = value
        elif not parameter.is_neutral(value):
            if parameter.standing is Standing.REFUSED:
                message = "{} is not supported here"
                raise _unusable(name, message, hints, "unsupported_parameter")
            kept[name] = value
    return kept


def _unusable(name: str, message: str, hints: Mapping[str, str], code: str) -> ApiError:
    hint = f": use {hints[name]!r}" if name in hints else ""
    return ApiError.invalid(name, message.format(repr(name[:64])) + hint, code=code)
