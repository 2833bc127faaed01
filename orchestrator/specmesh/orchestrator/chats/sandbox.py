"""The process that runs chat templates: ``python -m specmesh.orchestrator.chats.sandbox``.

A template is code from a model's folder. Jinja's sandbox keeps it from reaching Python, but not
from looping for ever or filling the memory, so it runs where the kernel limits both. The process
ends by itself: by SIGPROF once a chat has taken too much processor time, or when the orchestrator
has gone, however it went.

Jobs come on standard input and answers leave on standard output, each as JSON behind its length.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections.abc import Sequence
from typing import IO, Any

from specmesh.orchestrator.chats.shapes import Message, readable
from specmesh.serving.templates.template_language import render

CPU_SECONDS = 1.0
"""What a chat may take; a thousand messages take some hundredth of it."""
MEMORY_BYTES = 1 << 29
"""What the process may take, Python included."""
MAX_REASON_CHARS = 1024
LENGTH_BYTES = 4


def main() -> None:
    """Answer one job after the other until standard input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    while (job := read_frame(sys.stdin.buffer)) is not None:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        answer = _answer(**job)
        signal.setitimer(signal.ITIMER_PROF, 0)
        write_frame(sys.stdout.buffer, answer)


def _answer(source: str, variables: dict[str, Any], max_bytes: int) -> dict[str, str]:
    """The text, under "text", or under "refused" why there is none."""

    def prompt(messages: Sequence[Message]) -> str:
        return render(source, {**variables, "messages": messages}, max_bytes)

    def tried(messages: Sequence[Message]) -> str:
        text = prompt(messages)
        if len(text.encode()) > max_bytes:
            raise ValueError("too long, and not whole")
        return text

    try:
        return {"text": prompt(readable(variables["messages"], tried))}
    except MemoryError:
        reason = f"it takes more than {MEMORY_BYTES >> 20} MiB of memory"
    except Exception as error:  # a template can raise whatever Python can
        reason = str(error) or type(error).__name__
    # A template can make half a surrogate pair, which is no text.
    return {"refused": reason[:MAX_REASON_CHARS].encode(errors="replace").decode()}


def write_frame(file: IO[bytes], message: dict[str, Any]) -> None:
    """Send a job or an answer."""
    data = json.dumps(message, ensure_ascii=False).encode()
    file.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
    file.flush()


def read_frame(file: IO[bytes]) -> dict[str, Any] | None:
    """The next job or answer; None if the other side has ended."""
    length = int.from_bytes(file.read(LENGTH_BYTES), "big")
    data = file.read(length)
    return json.loads(data) if data and len(data) == length else None


if __name__ == "__main__":
    main()
