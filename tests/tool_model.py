"""A model that calls tools: its tokens are the bytes of scripted replies, which depend on what the
prompt asks. As the backend "scripted" a verifier serves it (see ``described_in``)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from specmesh.inference.backends.registry import ENTRY_POINTS, Backend
from specmesh.inference.model import Logits, ModelDescription
from specmesh.inference.models.chat_templates import given_template
from specmesh.inference.models.context.lookup import Context, ContextModel
from specmesh.inference.models.digests import digest_of
from specmesh.serving.templates.chat_template import ChatTemplate

END = "<|im_end|>"
SPECIAL = [
    *("<|im_start|>", END, "<think>", "</think>"),
    *("[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
]
PROMPT_ENDS = (
    *("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n"),
    *("[/INST]", "[/TOOL_RESULTS]"),
)
RESULTS = (
    re.compile(r"<tool_response>\n(.*?)\n</tool_response>", re.DOTALL),
    re.compile(r'\[TOOL_RESULTS\] \{"content": (.*?), "call_id"', re.DOTALL),
)
CITIES = ["Köln", "Bonn"]


def make_tokenizer() -> Tokenizer:
    """A token for each byte, and the special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: n for n, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


TOKENIZER = make_tokenizer()
VOCAB_SIZE = TOKENIZER.get_vocab_size()
END_ID = TOKENIZER.token_to_id(END)


def reply(prompt: str) -> str:
    """Return the reply to ``prompt``: a call for each city that is asked for, or the results."""
    is_mistral = "[INST]" in prompt
    *_, last = re.split(r"<\|im_start\|>user\n|\[INST\]", prompt.removesuffix("assistant\n"))
    results = RESULTS[is_mistral].findall(last)
    has_tools = "<tools>" in prompt or "[AVAILABLE_TOOLS]" in prompt
    cities = [city for city in CITIES if city in last]
    if results:
        said = f"It is {' and '.join(results)}."
    elif has_tools and cities:
        said = calls(cities, is_mistral=is_mistral, in_tags="<function=" in prompt)
    else:
        said = "Hello!"
    return f"hm, hm\n</think>\n\n{said}" if prompt.endswith("<think>\n") else said


def arguments(city: str) -> str:
    """The arguments of the call for ``city``, as the model writes them."""
    return f'{{"city": "{city}", "days": 2}}'


def calls(cities: Sequence[str], *, is_mistral: bool = False, in_tags: bool = False) -> str:
    if in_tags:
        return "I look.\n" + "\n".join(map(_tagged, cities))
    written = [f'{{"name": "get_weather", "arguments": {arguments(city)}}}' for city in cities]
    if is_mistral:
        return f"[TOOL_CALLS] [{', '.join(written)}]"
    return "I look.\n" + "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in written)


def _tagged(city: str) -> str:
    """The call for ``city`` as Qwen 3 Coder writes it."""
    pairs = {"city": city, "days": 2}.items()
    written = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in pairs)
    return f"<tool_call>\n<function=get_weather>\n{written}</function>\n</tool_call>"


@cache
def _ends() -> list[list[int]]:
    return [TOKENIZER.encode(end, add_special_tokens=False).ids for end in PROMPT_ENDS]


def _split(context: Sequence[int]) -> tuple[list[int], list[int]]:
    """The prompt, and what the model has said."""
    tokens = list(context)
    for end in range(len(tokens), 0, -1):
        if any(tokens[max(0, end - len(each)) : end] == each for each in _ends()):
            return tokens[:end], tokens[end:]
    return tokens, []


def next_token(context: Sequence[int]) -> int:
    """Return the token that follows ``context``."""
    prompt, said = _split(context)
    text = TOKENIZER.decode(prompt, skip_special_tokens=False)
    whole = TOKENIZER.encode(reply(text), add_special_tokens=False).ids
    return whole[len(said)] if said == whole[: len(said)] and len(said) < len(whole) else END_ID


def logits(context: Context | Sequence[int]) -> Logits:
    """Return the logits of the next token, which is certain."""
    found = np.full(VOCAB_SIZE, -100, np.float32)
    found[next_token(np.asarray(context).tolist())] = 0
    return found


def _load_target(settings: Any, ranks: object) -> ContextModel:
    source = given_template(settings)
    description = ModelDescription(
        name="scripted",
        vocab_size=VOCAB_SIZE,
        context_tokens=8192,
        end_of_text_ids=(END_ID,),
        tokenizer_json=TOKENIZER.to_str(),
        num_parameters=0,
        backend="scripted",
        weights_digest=digest_of(name="scripted"),
        chat_template=None if source is None else ChatTemplate(source, {"eos_token": END}),
    )
    return ContextModel(description, logits)


BACKEND = Backend(name="scripted", load_target=_load_target, uses=frozenset({"chat_template"}))


def described_in(folder: Path) -> None:
    """Write what makes ``folder`` one where the package of the backend is installed."""
    described = folder / "scripted_backend-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: scripted-backend\nVersion: 1.0\n"
    )
    entry = f"[{ENTRY_POINTS}]\nscripted = {__name__}:BACKEND\n"
    (described / "entry_points.txt").write_text(entry)


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    }
]
"""The tools of a request."""


def written_tools() -> list[str]:
    return [json.dumps(tool) for tool in TOOLS]
