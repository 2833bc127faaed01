"""Where the keys come from that JSON Web Tokens are checked with: a file, or a URL of their issuer.

Both hold a JSON Web Key Set (RFC 7517).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import jwt

from specmesh.serving.identity.watched import UnusableFile, Watched

log = logging.getLogger(__name__)

ALGORITHMS = frozenset(
    {
        *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
        *("ES256", "ES384", "ES512", "EdDSA"),
    }
)
"""Asymmetric ones alone: who can check a token must not be able to make one."""
REFRESH_SECONDS = 300.0
"""How often a URL is asked: an issuer's key is believed that much longer than the issuer does."""
RETRY_SECONDS = 10.0
"""After how long a URL that failed is asked again, and how soon for a key that is not known: tokens
with invented keys must not have it asked all the time."""
FETCH_SECONDS = 5.0
"""How long a URL may take to answer."""

Keys = Mapping[str, jwt.PyJWK]
"""By key id; that of a key without one is empty."""


class KeySource(Protocol):
    """Knows the keys of an issuer."""

    async def open(self) -> None:
        """Return once there are keys. Raises ``UnusableFile``."""

    async def find(self, key_id: str | None) -> jwt.PyJWK | None:
        """The key with an id, without one the only key there is; None if there is none."""

    async def close(self) -> None:
        """Let go of what ``open`` took."""


class KeyFile:
    """The keys of a file, which is read again when it changes."""

    def __init__(self, path: Path) -> None:
        self._keys = Watched([path], lambda: _read(path))

    async def open(self) -> None:
        """Read the file. Raises ``UnusableFile``."""
        self._keys.current()

    async def find(self, key_id: str | None) -> jwt.PyJWK | None:
        """The key with an id, without one the only key there is; None if there is none."""
        return _found(self._keys.current(), key_id)

    async def close(self) -> None:
        """Do nothing."""


class KeyUrl:
    """The keys at a URL, which is asked every ``refresh_s``, and for a key that is not known at
    once, ``retry_s`` after the last time at the earliest.

    While it does not answer, or with something else than keys, the last ones count.
    """

    def __init__(
        self,
        url: str,
        *,
        refresh_s: float = REFRESH_SECONDS,
        retry_s: float = RETRY_SECONDS,
        fetch_s: float = FETCH_SECONDS,
    ) -> None:
        self._url = url
        self._refresh_s = refresh_s
        self._retry_s = retry_s
        self._fetch_s = fetch_s
        # Its deadline is for each read of the socket; ours is for all of it.
        named = {"User-Agent": "specmesh"}  # some issuers refuse that of Python's own library
        self._client = jwt.PyJWKClient(url, cache_jwk_set=False, headers=named, timeout=fetch_s)
        # Of its own: what hangs must not take threads from others.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jwks")
        self._keys: Keys = {}
        self._fault = ""
        """Why the last attempt failed; logged once."""
        self._asked_at = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Fetch the keys, and keep them new. Raises ``UnusableFile``."""
        await self._ask()
        if not self._keys:
            raise UnusableFile(f"{self._url}: {self._fault}")
        self._keeping = asyncio.create_task(self._keep())

    async def find(self, key_id: str | None) -> jwt.PyJWK | None:
        """The key with an id, without one the only key there is; None if there is none."""
        key = _found(self._keys, key_id)
        if key is not None:
            return key
        if self._asking is None and self._now() - self._asked_at < self._retry_s:
            return None
        await self._ask()
        return _found(self._keys, key_id)

    async def close(self) -> None:
        """Ask no more."""
        for task in (self._keeping, self._asking):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._retry_s if self._fault else self._refresh_s)
            await self._ask()

    async def _ask(self) -> None:
        """Ask the URL, or wait for the answer that somebody else waits for."""
        if self._asking is None:
            self._asked_at = self._now()
            self._asking = asyncio.create_task(self._fetch())
            self._asking.add_done_callback(self._asked)
        # Whoever waits may go away; the answer is for the others, too.
        await asyncio.shield(self._asking)

    def _asked(self, _: asyncio.Task[None]) -> None:
        self._asking = None

    async def _fetch(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._fetch_s):
                published = await loop.run_in_executor(self._thread, self._client.fetch_data)
            # What an issuer signs other things with is none of ours.
            self._keys = _by_id([key for key in _signing(published) if _is_asymmetric(key)])
        except TimeoutError:
            self._failed(f"no answer in {self._fetch_s:g} s")
        except Exception as error:  # a URL may answer anything, and must not end the watch on it
            self._failed(str(error) or type(error).__name__)
        else:
            if self._fault:
                log.info("keys fetched again", extra={"url": self._url})
            self._fault = ""

    def _failed(self, fault: str) -> None:
        if not self._fault:
            log.warning("keys not fetched", extra={"url": self._url, "reason": fault})
        self._fault = fault

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _found(keys: Keys, key_id: str | None) -> jwt.PyJWK | None:
    if key_id is None:
        return next(iter(keys.values())) if len(keys) == 1 else None
    return keys.get(key_id)


def _read(path: Path) -> Keys:
    try:
        keys = _signing(json.loads(path.read_text()))
        for key in keys:
            if not _is_asymmetric(key):
                raise UnusableFile(f"{key.algorithm_name} is not an asymmetric algorithm")
        return _by_id(keys)
    except (ValueError, UnusableFile) as error:
        raise UnusableFile(f"{path} is no JSON Web Key Set: {error}") from None


def _signing(published: object) -> Sequence[jwt.PyJWK]:
    """The keys of a set that are for signatures. Raises ``UnusableFile``."""
    try:
        found = jwt.PyJWKSet.from_dict(published)  # type: ignore[arg-type] # it may be anything
    except (ValueError, AttributeError, TypeError, jwt.PyJWTError) as error:
        raise UnusableFile(str(error)) from None
    # Others are for encryption: whoever holds one of those need not be the issuer.
    return [key for key in found if key.public_key_use in {None, "sig"}]


def _is_asymmetric(key: jwt.PyJWK) -> bool:
    return key.algorithm_name in ALGORITHMS


def _by_id(keys: Sequence[jwt.PyJWK]) -> Keys:
    """Raises ``UnusableFile``."""
    named = {key.key_id or "": key for key in keys}
    if len(named) < len(keys):
        raise UnusableFile("two keys have the same kid, or none")
    if not named:
        raise UnusableFile("it holds no key for signatures")
    return named
