"""Parameters that OpenAI's API doesn't have but clients of other servers send: one table for both
calls.

Nearly all are vLLM's, which other servers and load generators have taken over. Most ask for what
specmesh doesn't do. Their neutral values pass all the same, since many clients send every default.
``docs/openai.md`` shows the table, and ``make outside`` holds it against vLLM's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from specmesh.gateway.requests.standing import Parameter, Parameters, Standing

SUPPORTED, IGNORED, REFUSED = Standing


@dataclass(frozen=True, slots=True)
class OtherParameter:
    """The values that ask for nothing, and what becomes of any other in each of the two calls."""

    neutral: tuple[object, ...] = ()
    completions: Standing = REFUSED
    chats: Standing = REFUSED


_NULL_ALONE = OtherParameter()

OTHER_SERVERS = {
    "add_generation_prompt": OtherParameter((True,), chats=SUPPORTED),
    # Of a chat the template adds them, if any are to be there.
    "add_special_tokens": OtherParameter((False,), completions=SUPPORTED),
    "allowed_token_ids": _NULL_ALONE,
    "bad_words": OtherParameter(([],)),
    "best_of": OtherParameter((1,)),
    "cache_salt": _NULL_ALONE,
    "chat_template": _NULL_ALONE,
    "chat_template_kwargs": OtherParameter(({},), chats=SUPPORTED),
    "continue_final_message": OtherParameter((False,), chats=SUPPORTED),
    "documents": OtherParameter(([],)),
    "ec_transfer_params": _NULL_ALONE,
    "echo": OtherParameter((False,)),
    "ignore_eos": OtherParameter(completions=SUPPORTED, chats=SUPPORTED),
    "include_reasoning": OtherParameter((True,)),
    "include_stop_str_in_output": OtherParameter((False,)),
    "kv_transfer_params": _NULL_ALONE,
    "length_penalty": OtherParameter((1,)),
    "logprob_token_ids": OtherParameter(([],)),
    "media_io_kwargs": _NULL_ALONE,
    "metadata": OtherParameter(completions=IGNORED, chats=IGNORED),
    "min_p": OtherParameter((0,)),
    "min_tokens": OtherParameter((0,)),
    "mm_payload": OtherParameter(("tensors", "none")),  # of no pictures
    "mm_processor_kwargs": _NULL_ALONE,
    "priority": OtherParameter((0,)),
    "prompt_embeds": _NULL_ALONE,
    "prompt_logprobs": _NULL_ALONE,
    "repetition_detection": _NULL_ALONE,
    "repetition_penalty": OtherParameter((1,)),
    "request_id": _NULL_ALONE,
    "response_format": OtherParameter(({"type": "text"},)),
    "return_mm_kwargs": OtherParameter((False,)),
    "return_prompt_text": OtherParameter((False,)),
    "return_token_ids": OtherParameter((False,)),
    "return_token_offsets": OtherParameter((False,)),
    "return_tokens_as_token_ids": OtherParameter((False,)),
    "routed_experts_prompt_start": OtherParameter((0,)),
    "session_id": _NULL_ALONE,
    "skip_special_tokens": OtherParameter((True,)),
    "spaces_between_special_tokens": OtherParameter((True,)),
    "stop_token_ids": OtherParameter(([],)),
    "stream_interval": OtherParameter((1,)),
    "structured_outputs": _NULL_ALONE,
    "thinking_token_budget": _NULL_ALONE,
    "top_k": OtherParameter((-1, 0)),
    "truncate_prompt_tokens": _NULL_ALONE,
    "truncation_side": OtherParameter(("left", "right")),  # of a prompt that is not truncated
    "use_beam_search": OtherParameter((False,)),
    "vllm_xargs": _NULL_ALONE,
    "watermarking": OtherParameter((False,)),
}


def of_completions() -> Parameters:
    """The table as completions have it."""
    return {name: _parameter(name, each, each.completions) for name, each in OTHER_SERVERS.items()}


def of_chats() -> Parameters:
    """The table as chats have it."""
    return {name: _parameter(name, each, each.chats) for name, each in OTHER_SERVERS.items()}


def _parameter(name: str, other: OtherParameter, standing: Standing) -> Parameter:
    # What is supported is read, whatever its value.
    return Parameter(name, standing, other.neutral if standing is REFUSED else ())
