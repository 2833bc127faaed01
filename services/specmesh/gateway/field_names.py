"""The caller's names for the fields of the mesh's requests."""

from __future__ import annotations

import re
from collections.abc import Mapping

from specmesh.gateway.requests.protocol_fields import TOP_LEVEL

_FIELDS: tuple[tuple[str, str], ...] = (
    (rf"(?:sampling|stopping)\.({'|'.join(TOP_LEVEL)})", r"\1"),
    (r"stopping\.stop_strings", "stop"),
    (r"stopping\.ignore_end_of_text", "ignore_eos"),
    (r"stopping\.include_stop_string", "include_stop_str_in_output"),
    (r"sampling\.grammar(?:\.\w+)*", "response_format"),
    (r"(?:sampling|stopping|speculation)\.(\w+)", r"specmesh.\1"),
    (r"(?:prompt|text|tokens\.ids|tokens\.token_ids|tokens)", "prompt"),
    (r"chat\.(add_generation_prompt|continue_final_message)", r"\1"),
    (r"chat\.template_arguments", "chat_template_kwargs"),
    (r"chat\.tools", "tools"),
    (r"chat\.tool_choice(?:\.\w+(?:\[\d+\])?)?", "tool_choice"),
    (r"chat\.(messages\[\d+\]\.tool_calls\[\d+\])", r"\1.function"),
    (r"(?:chat\.messages|chat)", "messages"),
    (r"token_ids", "tokens"),
    (r"num_top_logprobs", "logprobs"),
    (r"request_id", "specmesh.request_id"),
)
"""Prefixes of field paths in the mesh's requests, and the parameters they belong to."""
_MESH_FIELD = re.compile(
    r"(?<![\w.'\"])(?:sampling|stopping|speculation|chat|format)\.\w+(?:\[\d+\]|\.\w+)*"
)
_INDEX = re.compile(r"\[\d+\]")
_BEFORE_PART = re.compile(r"(?=[.\[])|$")


def param_of(field: str) -> str:
    """Return the name of the request parameter for a field of ``GenerateRequest``."""
    for pattern, name in _FIELDS:
        found, count = re.subn(rf"^{pattern}(?=$|[.\[])", name, field)
        if count:
            return found
    return field


def renamed(param: str, names: Mapping[str, str]) -> str:
    """Return ``param``, such as ``prompt[1]``, with another name at its beginning: that of the
    longest beginning in ``names``, where ``[]`` stands for any index."""
    for end in reversed([each.start() for each in _BEFORE_PART.finditer(param)]):
        beginning, rest = param[:end], param[end:]
        if beginning in names:
            return names[beginning] + rest
        if ours := names.get(_INDEX.sub("[]", beginning)):
            return ours.replace("[]", "".join(_INDEX.findall(beginning))) + rest
    return param


def renamed_in(message: str, names: Mapping[str, str]) -> str:
    """Return ``message`` with the caller's names for the mesh's fields, but for quoted words."""
    return _MESH_FIELD.sub(lambda found: renamed(param_of(found[0]), names), message)
