"""Limits on requests that hold for any model; docs/protocol.md has them in a table.

Limits that depend on the model (its vocabulary, its context) are checked elsewhere.
"""

from __future__ import annotations

from specmesh.decoding.grammar import MAX_GRAMMAR_BYTES
from specmesh.decoding.logprobs import MAX_TOP_LOGPROBS
from specmesh.decoding.predict.lookahead import MAX_LOOKAHEAD
from specmesh.decoding.sampling import (
    MAX_BANNED_SEQUENCE,
    MAX_BANNED_SEQUENCES,
    MAX_LISTED_TOKENS,
    MAX_LOGIT_BIAS,
    MAX_TEMPERATURE,
)
from specmesh.decoding.trees.plan import MAX_WIDTH
from specmesh.orchestrator.strategies.options import MAX_BRANCHES
from specmesh.serving.rpc.intake import MAX_METADATA_BYTES

__all__ = [
    "MAX_ARGUMENTS",
    "MAX_ARGUMENT_BYTES",
    "MAX_ARGUMENT_DEPTH",
    "MAX_BAD_WORDS",
    "MAX_BAD_WORD_CHARS",
    "MAX_BANNED_SEQUENCE",
    "MAX_BANNED_SEQUENCES",
    "MAX_BRANCHES",
    "MAX_CACHE_SALT_CHARS",
    "MAX_EPOCH",
    "MAX_GRAMMAR_BYTES",
    "MAX_JSON_DEPTH",
    "MAX_LISTED_TOKENS",
    "MAX_LOGIT_BIAS",
    "MAX_LOOKAHEAD",
    "MAX_MESSAGES",
    "MAX_METADATA_BYTES",
    "MAX_REQUEST_BYTES",
    "MAX_REQUEST_ID_CHARS",
    "MAX_RESUME_TOKEN_BYTES",
    "MAX_SESSION_ID_CHARS",
    "MAX_STOP_STRINGS",
    "MAX_STOP_STRING_CHARS",
    "MAX_STOP_TOKENS",
    "MAX_TEMPERATURE",
    "MAX_TOOLS",
    "MAX_TOOL_BYTES",
    "MAX_TOP_LOGPROBS",
    "MAX_WIDTH",
    "SEED_BITS",
]

MAX_REQUEST_BYTES = 8 * 2**20
"""Default limit of a whole message, in bytes; ``--max-request-bytes`` sets another."""
SEED_BITS = 53
"""Seeds of 53 bits fit the numbers of every client: JavaScript's integers are exact up to there."""
MAX_BAD_WORDS = 128
MAX_BAD_WORD_CHARS = 64
MAX_STOP_TOKENS = 256
MAX_STOP_STRINGS = 16
MAX_STOP_STRING_CHARS = 256
MAX_MESSAGES = 4096
MAX_ARGUMENT_BYTES = 1 << 17
"""Limits the JSON that is parsed on the event loop."""
MAX_ARGUMENT_DEPTH = 24
"""Nesting of lists and structs. Each level is two messages, and protobuf discards unknown fields in
the first 64 messages only, so that deeper ones would go unnoticed."""
MAX_TOOLS = 128
"""OpenAI's own limit."""
MAX_TOOL_BYTES = 1 << 18
"""Limits the JSON that is parsed for each answer, and again where it is resumed."""
MAX_ARGUMENTS = 4096
"""Limits the arguments of all tools together whose types an answer has to know."""
MAX_JSON_DEPTH = 64
"""Nesting of lists and objects in JSON that a message holds as text."""
MAX_REQUEST_ID_CHARS = 128
MAX_CACHE_SALT_CHARS = 128
MAX_SESSION_ID_CHARS = 64
MAX_RESUME_TOKEN_BYTES = 64
MAX_EPOCH = 2**31 - 1
"""Epochs chosen by the store continue above this and still fit the field's 32 bits."""
