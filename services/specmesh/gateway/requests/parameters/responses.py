"""Every parameter of POST /v1/responses and its standing.

``docs/openai.md`` shows the table, and a test compares it with the signature of the ``openai``
package.
"""

from __future__ import annotations

from specmesh.gateway.requests.parameters.other_servers import of_chats
from specmesh.gateway.requests.parameters.standing import Parameter, Parameters, Standing
from specmesh.gateway.requests.parameters.tables import CHAT

_SUPPORTED = (
    *("model", "input", "instructions", "max_output_tokens", "temperature", "top_p"),
    *("stream", "stream_options", "include", "top_logprobs", "text", "metadata"),
    *("tools", "tool_choice", "parallel_tool_calls"),
)
_IGNORED = (
    *("user", "store", "safety_identifier"),
    *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
)
_REFUSED: dict[str, tuple[object, ...]] = {
    "access_programs": (),
    "background": (False,),
    "background_options": (),
    "context_management": ([],),
    "conversation": (),
    "image": (),
    "max_tool_calls": (),
    "moderation": (),
    "previous_response_id": (),
    "prompt": (),
    "reasoning": ({}, {"effort": None}, {"effort": "none"}),
    "service_tier": ("auto", "default"),
    "truncation": ("disabled",),
}

OPENAI_RESPONSES: Parameters = {
    **{name: Parameter(name, Standing.SUPPORTED) for name in _SUPPORTED},
    **{name: Parameter(name, Standing.IGNORED) for name in _IGNORED},
    **{name: Parameter(name, Standing.REFUSED, neutral) for name, neutral in _REFUSED.items()},
}

_OF_CHATS = ("seed", "stop", "frequency_penalty", "presence_penalty", "logit_bias")
"""Parameters of chats that OpenAI left out of this call, but vLLM did not."""

_OF_VLLM = (
    Parameter("enable_response_messages", Standing.REFUSED, (False,)),
    Parameter("previous_input_messages", Standing.REFUSED),
    Parameter("prompt_logprobs", Standing.REFUSED),
)

RESPONSES: Parameters = {
    **of_chats(),
    **{each.name: each for each in _OF_VLLM},
    **{name: CHAT[name] for name in _OF_CHATS},
    **OPENAI_RESPONSES,
}
"""All that the call takes: other servers' parameters have the same standing as in chats."""
