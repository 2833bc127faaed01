"""The process that runs chat templates: ``python -m specmesh.orchestrator.chats.sandbox``.

A template is code from a model's folder. Jinja's sandbox keeps it from reaching Python, but not
from looping forever or filling the memory, so it runs in a process whose time and memory the kernel
limits. The process ends by itself: by SIGPROF once a chat has taken too much processor time, or
when the orchestrator has ended for any reason.

Jobs arrive on standard input and answers leave on standard output, each as JSON after its length.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections.abc import Sequence
from functools import partial
from typing import IO, Any

from specmesh.orchestrator.chats.call_shapes import with_calls_readable
from specmesh.orchestrator.chats.shapes import Message, heeds, readable
from specmesh.serving.templates.template_language import render

CPU_SECONDS = 1.0
"""Processor time limit of a chat; a thousand messages take about a hundredth of it."""
MEMORY_BYTES = 1 << 29
"""Memory limit of the process, Python included."""
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


def _answer(
    source: str, variables: dict[str, Any], max_bytes: int, needed: Sequence[str] = ()
) -> dict[str, str]:
    """Return the prompt under "text", or why there is none: the reason under "refused", or under
    "ignored" the first of the ``needed`` variables that the template ignores."""

    def prompt(messages: Sequence[Message], **changed: None) -> str:
        return render(source, {**variables, "messages": messages, **changed}, max_bytes)

    def tried(messages: Sequence[Message], **changed: None) -> str:
        text = prompt(messages, **changed)
        if len(text.encode()) > max_bytes:
            raise ValueError("the rendered text was cut because it is too long")
        return text

    try:
        messages = readable(with_calls_readable(variables["messages"], tried), tried)
        text = prompt(messages)
        for name in needed:
            if not heeds(name, text, partial(tried, messages)):
                return {"ignored": name}
        return {"text": text}
    except MemoryError:
        reason = f"it takes more than {MEMORY_BYTES >> 20} MiB of memory"
    except Exception as error:  # a template can raise any exception
        reason = str(error) or type(error).__name__
    # A template can produce half a surrogate pair, which is not valid text.
    return {"refused": reason[:MAX_REASON_CHARS].encode(errors="replace").decode()}


def write_frame(file: IO[bytes], message: dict[str, Any]) -> None:
    """Send a job or an answer."""
    data = json.dumps(message, ensure_ascii=False).encode()
    file.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
    file.flush()


def read_frame(file: IO[bytes]) -> dict[str, Any] | None:
    """Return the next job or answer; None if the other side has ended."""
    length = int.from_bytes(file.read(LENGTH_BYTES), "big")
    data = file.read(length)
    return json.loads(data) if data and len(data) == length else None


if __name__ == "__main__":
    main()
