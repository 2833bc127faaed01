"""The transport to any OpenAI-compatible server, by streamed ``/v1/completions`` or
``/v1/chat/completions``."""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
from aiohttp.http import HttpProcessingError
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from specmesh.load.transports.masking import masked
from specmesh.load.transports.mesh_transport import messages
from specmesh.load.transports.openai_events import StreamedAnswer, count, failed, parsed
from specmesh.load.transports.transport import (
    OUT_OF_DESCRIPTORS,
    Heard,
    LoadRequest,
    RequestFailed,
    Served,
    Told,
)

_DEADLINE = "DEADLINE_EXCEEDED"
_DONE = b"[DONE]"
_LOOK_UP_S = 60.0
_MAX_LINE_BYTES = 1 << 20
_propagator = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True)
class OpenAiDoor:
    """An OpenAI-compatible server at ``url``. ``token`` is sent as a bearer token;
    ``commands/asked.py`` ensures that plain HTTP carries it only on this machine. Parameters in
    ``left_out`` are omitted from requests, and those in ``renamed`` are sent under another name."""

    url: str
    model: str = ""
    chat: bool = False
    token: str | None = None
    ca: Path | None = None
    left_out: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """Return a name such as ``OpenAI http://127.0.0.1:8000/v1/completions``."""
        return f"OpenAI {masked(self.endpoint)}"

    @property
    def base(self) -> str:
        """Return the base of all paths: ``url``, with ``/v1`` unless it has a path of its own."""
        url = self.url.rstrip("/")
        return url if urlsplit(url).path else f"{url}/v1"

    @property
    def endpoint(self) -> str:
        """Return the URL of requests."""
        return f"{self.base}/{'chat/' if self.chat else ''}completions"

    def asking_for(self, model: str) -> OpenAiDoor:
        """Return a copy for that model."""
        return replace(self, model=model)

    def open(self) -> OpenAiTransport:
        """Create a transport with its own connection pool."""
        return OpenAiTransport(self)


class OpenAiTransport:
    """A transport over HTTP, with one connection for each request under way."""

    def __init__(self, door: OpenAiDoor) -> None:
        self._door = door
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, call: LoadRequest, heard: Heard) -> Told | None:
        """Read an answer to its end; return None if ``heard`` cancelled it. Raises
        RequestFailed."""
        body = {
            **self._asked(call),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        answer = StreamedAnswer()
        try:
            async with asyncio.timeout(call.timeout_s), self._post(body) as response:
                async for data in _events(response):
                    if data == _DONE:
                        break
                    if not all(heard(*chunk) for chunk in answer.read(parsed(data))):
                        return None
                else:
                    # Some servers omit [DONE] after the finish reason.
                    if not answer.has_finished:
                        raise RequestFailed("BAD_STREAM", "the stream ended before the answer did")
        except TimeoutError:
            raise RequestFailed(
                _DEADLINE, f"the answer did not end within {call.timeout_s:g} s"
            ) from None
        except aiohttp.ClientError as error:
            raise _broken(error) from error
        except HttpProcessingError as error:  # A line exceeds _MAX_LINE_BYTES.
            raise RequestFailed("BAD_STREAM", error.message) from error
        return answer.told

    async def served(self) -> Served:
        """Call ``/v1/models``, where specmesh's gateway names its strategies. Raises
        RequestFailed."""
        assert self._session is not None, "the transport is not open"
        url = f"{self._door.base}/models"
        try:
            async with asyncio.timeout(_LOOK_UP_S), self._session.get(url) as response:
                await _check(response)
                listed = (await response.json())["data"]
                found = {str(model["id"]): model for model in listed}
        except (TimeoutError, LookupError, TypeError, ValueError) as error:
            why = f"{masked(url)}: {type(error).__name__}: {error}"
            raise RequestFailed("CONNECTION", why) from error
        except aiohttp.ClientError as error:
            raise _broken(error) from error
        if not found:
            raise RequestFailed("UNAVAILABLE", f"{masked(url)}: the server lists no model")
        model = self._door.model or next(iter(found))
        return Served(model, any("specmesh" in each for each in found.values()))

    async def count_tokens(self, text: str) -> int:
        """Return the number of prompt tokens that the server reports as usage. Raises
        RequestFailed."""
        limits = {"max_tokens": 1, "temperature": 0}
        said = {"model": self._door.model, **limits, **self._prompt((text,))}
        try:
            async with asyncio.timeout(_LOOK_UP_S), self._post(said) as response:
                await _check(response)
                found = count((await response.json())["usage"]["prompt_tokens"])
        except (LookupError, TypeError, ValueError):
            found = None
        except TimeoutError:
            raise RequestFailed(_DEADLINE, f"no answer within {_LOOK_UP_S:g} s") from None
        except aiohttp.ClientError as error:
            raise _broken(error) from error
        if not found:
            raise RequestFailed("NO_USAGE", "the server does not report the tokens of a prompt")
        return found

    async def __aenter__(self) -> Self:
        token, ca = self._door.token, self._door.ca
        tls = ssl.create_default_context(cafile=ca) if ca else True
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls),
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=_MAX_LINE_BYTES // 2,
            headers={"Authorization": f"Bearer {token}"} if token else {},
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._session is not None:
            await self._session.close()

    def _post(self, body: Mapping[str, Any]) -> Any:
        assert self._session is not None, "the transport is not open"
        headers: dict[str, str] = {}
        _propagator.inject(headers)
        door = self._door
        sent = {
            door.renamed.get(name, name): value
            for name, value in body.items()
            if name not in door.left_out
        }
        return self._session.post(door.endpoint, json=sent, headers=headers)

    def _asked(self, call: LoadRequest) -> dict[str, Any]:
        variation = call.variation
        body: dict[str, Any] = {
            "model": self._door.model,
            **self._prompt(call.said, call.system),
            **variation.sampling,
            "seed": call.sampling_seed,
        }
        if call.max_tokens is not None:
            body["max_tokens"] = call.max_tokens
        if call.ignore_end:
            body["ignore_eos"] = True
        if variation.strategy or variation.options:
            strategy = {"strategy": variation.strategy} if variation.strategy else {}
            body["specmesh"] = {**strategy, **variation.options}
        return body

    def _prompt(self, said: tuple[str, ...], system: tuple[str, ...] = ()) -> dict[str, Any]:
        if self._door.chat:
            return {"messages": messages(said, system)}
        return {"prompt": "".join(said)}


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the data of each server-sent event. Raises RequestFailed."""
    await _check(response)
    async for line in response.content:
        if line.startswith(b"data:"):
            yield line[5:].strip()


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.ok:
        return
    try:
        body = await response.json()
    except (aiohttp.ClientError, ValueError):
        body = None
    error = body.get("error") if isinstance(body, dict) else body
    failure = failed(error, f"HTTP_{response.status}")
    wait = response.headers.get("Retry-After", "")
    if wait.isdecimal():  # It may also be a date.
        failure.retry_after_s = float(wait)
    raise failure


def _broken(error: aiohttp.ClientError) -> RequestFailed:
    if isinstance(error, aiohttp.ClientConnectorError):
        ours = error.os_error.errno in {errno.EMFILE, errno.ENFILE}
        reason = OUT_OF_DESCRIPTORS if ours else "CONNECTION"
        return RequestFailed(reason, f"{error.host}:{error.port}: {error.os_error}")
    return RequestFailed("CONNECTION", f"{type(error).__name__}: {error}")
