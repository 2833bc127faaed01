"""Every parameter of OpenAI's two calls, and what becomes of it here: one table, by name.

``docs/openai.md`` shows it, and a test holds it against the signatures of the ``openai`` package.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from specmesh.gateway.errors import ApiError

EXTENSION = "specmesh"
"""The one field of a request that is ours."""
IGNORE_EOS = "ignore_eos"
"""What load generators send, to OpenAI's servers of others too, to get answers of equal length."""


class Standing(StrEnum):
    """What becomes of a parameter."""

    SUPPORTED = "supported"
    IGNORED = "ignored"
    """Taken and checked, but nothing follows from it: the text would be the same."""
    REFUSED = "refused"
    """A value that would change the text is an error; null and its neutral values are none."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter by name. ``neutral`` are the values that mean what leaving it out means."""

    name: str
    standing: Standing
    neutral: tuple[object, ...] = ()

    def is_neutral(self, value: object) -> bool:
        """Whether ``value`` says nothing that leaving the parameter out doesn't say."""
        # True == 1 and False == 0 in Python; not in JSON.
        return value is None or any(
            value == each and isinstance(value, bool) == isinstance(each, bool)
            for each in self.neutral
        )


Parameters = Mapping[str, Parameter]


def _table(
    supported: Iterable[str], ignored: Iterable[str], refused: Mapping[str, tuple[object, ...]]
) -> Parameters:
    return {
        **{name: Parameter(name, Standing.SUPPORTED) for name in supported},
        **{name: Parameter(name, Standing.IGNORED) for name in ignored},
        **{name: Parameter(name, Standing.REFUSED, neutral) for name, neutral in refused.items()},
    }


COMPLETIONS = _table(
    supported=(
        *("model", "prompt", "max_tokens", "temperature", "top_p", "n", "stop", "seed"),
        *("stream", "stream_options", "logprobs"),
    ),
    ignored=("user",),
    refused={
        "best_of": (1,),
        "echo": (False,),
        "frequency_penalty": (0,),
        "logit_bias": ({},),
        "presence_penalty": (0,),
        "suffix": ("",),
    },
)

CHAT = _table(
    supported=(
        *("model", "messages", "max_completion_tokens", "max_tokens", "temperature", "top_p"),
        *("n", "stop", "seed", "stream", "stream_options", "logprobs", "top_logprobs"),
    ),
    ignored=(
        *("user", "metadata", "store", "safety_identifier"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
    ),
    refused={
        "audio": (),
        "frequency_penalty": (0,),
        "function_call": ("none", "auto"),
        "functions": ([],),
        "logit_bias": ({},),
        "modalities": (["text"],),
        "moderation": (),
        "parallel_tool_calls": (True, False),  # of no tools
        "prediction": (),
        "presence_penalty": (0,),
        "reasoning_effort": ("none",),
        "response_format": ({"type": "text"},),
        "service_tier": ("auto", "default"),
        "tool_choice": ("none", "auto"),
        "tools": ([],),
        "verbosity": ("medium",),
        "web_search_options": (),
    },
)


def taken(
    given: Mapping[str, object], parameters: Parameters, hints: Mapping[str, str]
) -> dict[str, object]:
    """What of ``given`` is to be read: parameters that are supported or ignored, and not null.

    ``hints`` say of a name that OpenAI doesn't have where it goes here. Raises ``ApiError`` for the
    first parameter that is unknown, or refused and not neutral.
    """
    kept = {}
    for name, value in given.items():
        parameter = parameters.get(name)
        if parameter is None and name not in {EXTENSION, IGNORE_EOS}:
            raise _unknown(name, hints)
        if parameter is None or parameter.standing is not Standing.REFUSED:
            if value is not None:
                kept[name] = value
        elif not parameter.is_neutral(value):
            raise ApiError.invalid(
                name, f"{name!r} is not supported here", code="unsupported_parameter"
            )
    return kept


def _unknown(name: str, hints: Mapping[str, str]) -> ApiError:
    hint = f": it goes as {hints[name]!r}" if name in hints else ""
    message = f"there is no parameter {name[:64]!r}{hint}"
    return ApiError.invalid(name, message, code="unknown_parameter")
