"""The numbers of entries in a request, which are checked before anything else: a request of the
largest size has room for millions, and each of them costs fifty times its bytes once it is copied.
"""

from __future__ import annotations

from operator import attrgetter

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import MOST_ENTRIES
from specmesh.orchestrator.admission.request_limits import (
    MAX_ARGUMENTS,
    MAX_BAD_WORDS,
    MAX_GRAMMAR_BYTES,
    MAX_MESSAGES,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKENS,
    MAX_TOOLS,
)
from specmesh.v1 import generation_pb2

_MOST = {
    **{f"sampling.{name}": most for name, most in MOST_ENTRIES.items()},
    "sampling.bad_words": MAX_BAD_WORDS,
    "sampling.grammar.choice.texts": MAX_GRAMMAR_BYTES,  # each takes a byte at least
    "stopping.stop_token_ids": MAX_STOP_TOKENS,
    "stopping.stop_strings": MAX_STOP_STRINGS,
    "chat.messages": MAX_MESSAGES,
    "chat.tools": MAX_TOOLS,
    "chat.tool_choice.names": MAX_TOOLS,
    "format.tool_names": MAX_TOOLS,
    "format.arguments": MAX_ARGUMENTS,
}
_ENTRIES = [(path, attrgetter(path), most) for path, most in _MOST.items()]


def check_entries(request: generation_pb2.GenerateRequest) -> None:
    """Raise ``InvalidField`` if a field has more entries than any model allows. Numbers of tokens
    are left to the model; they are cheap."""
    for path, entries, most in _ENTRIES:
        if len(entries(request)) > most:
            raise InvalidField(path, f"has more than {most} entries")
