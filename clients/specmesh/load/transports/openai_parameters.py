"""The parameters of OpenAI's API that some servers refuse."""

from __future__ import annotations

from specmesh.load.workload.variations import SAMPLING

OPTIONAL = ("seed", "stream_options", "max_tokens")
"""Parameters that can be left out or renamed."""

SENT = frozenset(
    (*OPTIONAL, *SAMPLING, "model", "prompt", "messages", "stream", "ignore_eos", "specmesh")
)
"""The names of a request's parameters, which no other can take."""
