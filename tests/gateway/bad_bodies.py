"""Sends a gateway generated requests, all within its limits and few of them right:
python -m tests.gateway.bad_bodies URL

Each follows from its number. Reads lines of "FIRST LAST AT_ONCE", and answers each, when these
requests are over, with a line that tells how many had which status; whatever has no answer raises.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from specmesh.gateway.http.http_connection import MAX_HEAD_BYTES, MAX_HEADERS, MIN_PIECE_BYTES
from specmesh.gateway.requests.parameters.responses import RESPONSES
from specmesh.gateway.requests.parameters.tables import CHAT, COMPLETIONS

FIELDS = {
    b"/v1/completions": "prompt",
    b"/v1/chat/completions": "messages",
    b"/v1/responses": "input",
}
"""The paths, and the field in which each takes its prompt."""
NAMES = (*CHAT, *COMPLETIONS, *RESPONSES)
MAX_BYTES = 8 * 2**20
ANSWER_SECONDS = 60.0

SCALARS = (
    *(None, True, False, 0, 1, -1, 2**32, 2**64, 10**40, 0.5, -0.0, 1e308),
    *("", "x", "auto", "text", "user", "é€😀", "\x00", "\ud800", "[{]}," * 9, 'a"\\' * 9),
)
UNITS = (
    *(b"{}", b"[]", b"-1", b"1", b'"a"', b'"\\ud83d"', b'"\\ud83d\\ude00"', b"NaN", b'{"a":{}}'),
    *(b'{"role":"user","content":"x"}', b'{"type":"text","text":"x"}'),
    b'"line\\n\\"quoted\\" {brace} [bracket], comma"',
)
PLACES = (
    b'{"model":"m","prompt":[%s]}',
    b'{"model":"m","prompt":[[%s]]}',
    b'{"model":"m","prompt":"x","stop":[%s]}',
    b'{"model":"m","prompt":"x","stop_token_ids":[%s]}',
    b'{"model":"m","prompt":"x","logit_bias":[%s]}',
    b'{"model":"m","messages":[%s]}',
    b'{"model":"m","messages":[{"role":"user","content":[%s]}]}',
    b'{"model":"m","messages":[{"role":"user","content":"x"}],"metadata":{%s}}',
    b'{"model":"m","messages":[{%s}]}',
    b'{"model":"m","input":[%s]}',
    b'{"model":"m","input":[{"role":"user","content":[%s]}]}',
    b'{"model":"m","messages":[{"role":"assistant","tool_calls":[%s]}]}',
    b'{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[%s]}',
    b'{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function",'
    b'"function":{"name":"f","parameters":{"a":[%s]}}}]}',
    b'{"model":"m","messages":[{"role":"user","content":"x"}],"tool_choice":{'
    b'"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[%s]}}}',
    b'{"model":"m","input":"x","tools":[%s]}',
    b'{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":[%s]}]}',
    b'{"model":"m","input":"x","tool_choice":{"type":"allowed_tools","mode":"auto","tools":[%s]}}',
    b"[%s]",
    b"{%s}",
)


def value(rng: random.Random, depth: int = 0) -> Any:
    """Anything that JSON can say, and half characters, which it can't."""
    kind = rng.random()
    if depth > 3 or kind < 0.6:
        return rng.choice(SCALARS)
    if kind < 0.8:
        return [value(rng, depth + 1) for _ in range(rng.randrange(5))]
    names = [rng.choice((*NAMES, "role", "content", "type", "x")) for _ in range(4)]
    return {name: value(rng, depth + 1) for name in names}


def small(rng: random.Random, path: bytes) -> bytes:
    """A request of which some parameters have any value, or are another call's."""
    asked: dict[str, Any] = {"model": "m"}
    message = {"role": "user", "content": "x"}
    messages = ([message], [message, value(rng)], value(rng))
    field = FIELDS[path if rng.random() < 0.7 else rng.choice(list(FIELDS))]
    texts = ("x", [1, 2], ["x", "y"], value(rng)) if field == "prompt" else messages
    asked[field] = rng.choice(texts)
    for _ in range(rng.randrange(3)):
        asked[rng.choice((*NAMES, "specmesh", "x"))] = value(rng)
    body = json.dumps(asked if rng.random() < 0.9 else value(rng)).encode()
    if rng.random() < 0.1:
        at = rng.randrange(len(body) + 1)
        body = body[:at] + rng.choice((b"", b"\xff", b'"', b"]", b"NaN")) + body[at + 1 :]
    return body


def repeated(rng: random.Random, num_bytes: int) -> bytes:
    """One thing, as often as ``num_bytes`` hold it."""
    place, unit = rng.choice(PLACES), rng.choice(UNITS)
    if place.count(b"{%s}"):
        pairs, size = [], 0
        while size < num_bytes:
            pairs.append(b'"%d":%s' % (len(pairs), unit))
            size += len(pairs[-1]) + 1
        return place % b",".join(pairs)
    return place % b",".join([unit] * (num_bytes // (len(unit) + 1) + 1))


def body(rng: random.Random, path: bytes) -> bytes:
    """A body of at most MAX_BYTES, few of them long."""
    if rng.random() < 0.93:
        return small(rng, path)
    num_bytes = int(MAX_BYTES ** rng.uniform(0.5, 1))
    made = repeated(rng, num_bytes) if rng.random() < 0.8 else small_text(rng, num_bytes)
    return made[:MAX_BYTES]


def small_text(rng: random.Random, num_bytes: int) -> bytes:
    """A request with a long text."""
    piece = rng.choice(("x", "line\n", '{"a": [1, 2]}', "é€", "😀", "\\"))
    text = piece * (num_bytes // len(json.dumps(piece)) + 1)
    return json.dumps({"model": "m", "prompt": text}).encode()


def headers(rng: random.Random) -> list[bytes]:
    """Headers within the limits."""
    lines = [b"host: x"]
    if rng.random() < 0.95:
        lines.append(b"content-type: application/json")
    for _ in range(rng.choice((0, 1, 3, MAX_HEADERS - 4))):
        name = rng.choice(
            (b"traceparent", b"tracestate", b"x-request-id", b"cookie", b"accept", b"baggage", b"x")
        )
        lines.append(name + b": " + b"a=b,;" * rng.randrange(60))
    size = sum(map(len, lines))
    if rng.random() < 0.05:
        lines.append(b"authorization: Bearer " + b"t" * rng.randrange(MAX_HEAD_BYTES - size - 999))
    if rng.random() < 0.02:
        lines.append(b"expect: 100-continue")
    return lines


def chunks(rng: random.Random, sent: bytes) -> Iterator[bytes]:
    """``sent`` in chunks."""
    size = rng.choice((MIN_PIECE_BYTES, 100, 5_000, 100_000))
    for at in range(0, len(sent), size):
        piece = sent[at : at + size]
        yield b"%x\r\n%s\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def request(number: int) -> bytes:
    """The request with this number."""
    rng = random.Random(number)
    path = rng.choice(list(FIELDS))
    lines, sent = headers(rng), body(rng, path)
    if rng.random() < 0.3:
        lines.append(b"transfer-encoding: chunked")
        sent = b"".join(chunks(rng, sent))
    else:
        lines.append(b"content-length: %d" % len(sent))
    return b"\r\n".join((b"POST " + path + b" HTTP/1.1", *lines, b"", sent))


class Client:
    """Sends requests on one connection, and opens another when that is closed."""

    def __init__(self, host: str, port: int) -> None:
        self._at = host, port
        self._reader: asyncio.StreamReader | None = None

    async def status(self, data: bytes) -> int:
        """Of the answer to ``data``."""
        if self._reader is None or self._reader.at_eof():
            self._reader, self._writer = await asyncio.open_connection(*self._at)
        self._writer.write(data)
        status, head = await self._head(self._reader)
        if b"content-length: " in head:
            length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await self._reader.readexactly(int(length))
        else:
            await self._reader.readuntil(b"0\r\n\r\n")
        if b"connection: close" in head:
            self.close()
        return status

    async def _head(self, reader: asyncio.StreamReader) -> tuple[int, bytes]:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1])
            if status != 100:
                return status, head

    def close(self) -> None:
        """Close the connection."""
        if self._reader is not None:
            self._writer.close()
        self._reader = None


async def send_all(url: str, numbers: Iterator[int], num_at_once: int) -> Counter[int]:
    """How many had which status."""
    host, _, port = url.removeprefix("http://").partition(":")
    counts = Counter[int]()

    async def one_after_the_other() -> None:
        client = Client(host, int(port))
        for number in numbers:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    counts[await client.status(request(number))] += 1
            except (TimeoutError, EOFError, ConnectionError) as error:
                raise RuntimeError(f"request {number} has no answer: {error!r}") from error
        client.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(num_at_once):
            group.create_task(one_after_the_other())
    return counts


if __name__ == "__main__":
    for line in sys.stdin:
        first, last, at_once = map(int, line.split())
        sent = asyncio.run(send_all(sys.argv[1], iter(range(first, last)), at_once))
        sys.stdout.write(json.dumps(sent) + "\n")
        sys.stdout.flush()
