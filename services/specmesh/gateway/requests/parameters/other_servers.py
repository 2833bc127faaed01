"""Parameters that OpenAI's API doesn't have but clients of other servers send: one table for both
calls.

Nearly all are vLLM's, which other servers and load generators have adopted. Neutral values of those
that are not supported are accepted all the same, since many clients send every default.
``docs/openai.md`` shows the table, and ``make outside`` compares it with vLLM's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from specmesh.gateway.requests.parameters.standing import Parameter, Parameters, Standing

SUPPORTED, IGNORED, REFUSED = Standing


@dataclass(frozen=True, slots=True)
class OtherParameter:
    """A parameter's neutral values, and the standing of any other value in each of the calls."""

    neutral: tuple[object, ...] = ()
    """Values that change nothing; they pass where the parameter is refused."""
    neutral_if_refused: tuple[object, ...] = ()
    """Values that pass in a call that refuses others, but mean something in the other call."""
    completions: Standing = REFUSED
    chats: Standing = REFUSED


_NULL_ALONE = OtherParameter()


def _supported(*neutral: object) -> OtherParameter:
    return OtherParameter(neutral, completions=SUPPORTED, chats=SUPPORTED)


OTHER_SERVERS = {
    "add_generation_prompt": OtherParameter(neutral_if_refused=(True,), chats=SUPPORTED),
    # In a chat the template adds special tokens itself.
    "add_special_tokens": OtherParameter(neutral_if_refused=(False,), completions=SUPPORTED),
    "allowed_token_ids": _supported(),
    "bad_words": _supported([]),
    "best_of": OtherParameter(neutral_if_refused=(1,), completions=SUPPORTED),
    "cache_salt": _supported(),
    "chat_template": _NULL_ALONE,
    "chat_template_kwargs": OtherParameter(({},), chats=SUPPORTED),
    "continue_final_message": OtherParameter((False,), chats=SUPPORTED),
    "documents": OtherParameter(([],)),
    "ec_transfer_params": _NULL_ALONE,
    "echo": OtherParameter((False,), completions=SUPPORTED),
    "guided_choice": _supported(),
    "guided_decoding_backend": _NULL_ALONE,
    "guided_grammar": _supported(),
    "guided_json": _supported(),
    "guided_regex": _supported(),
    "guided_whitespace_pattern": _NULL_ALONE,
    "ignore_eos": _supported(),
    "include_reasoning": OtherParameter((True,), chats=SUPPORTED),
    "include_stop_str_in_output": _supported(False),
    "kv_transfer_params": _NULL_ALONE,
    "length_penalty": OtherParameter((1,)),
    "logprob_token_ids": OtherParameter(([],)),
    "media_io_kwargs": _NULL_ALONE,
    "metadata": OtherParameter(completions=IGNORED, chats=IGNORED),
    "min_p": _supported(0),
    "min_tokens": _supported(0),
    "mm_payload": OtherParameter(("tensors", "none")),  # no effect without images
    "mm_processor_kwargs": _NULL_ALONE,
    "priority": OtherParameter((0,)),
    "prompt_embeds": _NULL_ALONE,
    "prompt_logprobs": _supported(),
    "repetition_detection": _NULL_ALONE,
    "repetition_penalty": _supported(1),
    "request_id": _NULL_ALONE,
    "response_format": _supported({"type": "text"}),
    "return_mm_kwargs": OtherParameter((False,)),
    "return_prompt_text": OtherParameter((False,)),
    "return_token_ids": OtherParameter((False,)),
    "return_token_offsets": OtherParameter((False,)),
    "return_tokens_as_token_ids": OtherParameter((False,)),
    "routed_experts_prompt_start": OtherParameter((0,)),
    "session_id": _NULL_ALONE,
    "skip_special_tokens": OtherParameter(completions=SUPPORTED, chats=SUPPORTED),
    "spaces_between_special_tokens": OtherParameter((True,)),
    "stop_token_ids": _supported([]),
    "stream_interval": OtherParameter((1,)),
    "structural_tag": _NULL_ALONE,
    "structured_outputs": _supported(),
    "thinking_token_budget": _NULL_ALONE,
    "top_k": _supported(-1, 0),
    "truncate_prompt_tokens": _NULL_ALONE,
    "truncation_side": OtherParameter(("left", "right")),  # no effect without truncation
    "use_beam_search": OtherParameter((False,)),
    "vllm_xargs": _NULL_ALONE,
    "watermarking": OtherParameter((False,)),
}


def of_completions() -> Parameters:
    """Return the table for completions."""
    return {name: _parameter(name, each, each.completions) for name, each in OTHER_SERVERS.items()}


def of_chats() -> Parameters:
    """Return the table for chats."""
    return {name: _parameter(name, each, each.chats) for name, each in OTHER_SERVERS.items()}


def _parameter(name: str, other: OtherParameter, standing: Standing) -> Parameter:
    # A supported parameter is read whatever its value, which may undo a default of the model's.
    neutral = (*other.neutral, *other.neutral_if_refused) if standing is REFUSED else ()
    return Parameter(name, standing, neutral)
