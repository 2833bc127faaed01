"""Sources of the keys that verify JSON Web Tokens: a file, or a URL of the issuer.

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
from typing import Any, Protocol

import jwt

from specmesh.serving.fetching import fetch
from specmesh.serving.identity.watched import UnusableFile, Watched

log = logging.getLogger(__name__)

OF_RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
"""The algorithms of RSA keys; a key of another type has but one."""
ALGORITHMS = OF_RSA | {"ES256", "ES384", "ES512", "EdDSA"}
"""Only asymmetric algorithms: a process that can verify a token must not be able to make one."""
REFRESH_SECONDS = 300.0
"""The interval at which a URL is fetched. A key that the issuer revokes stays valid for as long."""
RETRY_SECONDS = 10.0
"""The delay before a URL that failed is fetched again, and the shortest interval between fetches
for unknown keys, so that tokens with invented key ids can't cause a fetch each."""
FETCH_SECONDS = 5.0
"""The timeout of a fetch."""


class IssuerKey(jwt.PyJWK):
    """A key as the issuer has ``published`` it, and the ``algorithms`` of the tokens that it
    verifies: the one that it names, or all of its type, since RFC 7517 lets it name none. PyJWT
    then takes an RSA key for one of RS256."""

    def __init__(self, published: dict[str, Any]) -> None:
        super().__init__(published)
        names_none = self.key_type == "RSA" and not published.get("alg")
        self.algorithms = OF_RSA if names_none else frozenset({self.algorithm_name})


Keys = Mapping[str, IssuerKey]
"""Keys by key id, which is empty for a key without one."""


class KeySource(Protocol):
    """Knows the keys of an issuer."""

    async def open(self) -> None:
        """Return once there are keys. Raises ``UnusableFile``."""

    async def find(self, key_id: str | None) -> IssuerKey | None:
        """Return the key with an id, or the only key if the token has no id; None if there is no
        such key."""

    async def close(self) -> None:
        """Release what ``open`` acquired."""


class KeyFile:
    """The keys in a file, which is reloaded when it changes."""

    def __init__(self, path: Path) -> None:
        self._keys = Watched([path], lambda: _read(path))

    async def open(self) -> None:
        """Read the file. Raises ``UnusableFile``."""
        self._keys.current()

    async def find(self, key_id: str | None) -> IssuerKey | None:
        """Return the key with an id, or the only key if ``key_id`` is None; None if there is no
        such key."""
        return _found(self._keys.current(), key_id)

    async def close(self) -> None:
        """Do nothing."""


class KeyUrl:
    """The keys at a URL, which is fetched every ``refresh_s``, and immediately for an unknown key
    unless the last fetch was less than ``retry_s`` ago.

    While a fetch fails or returns no valid keys, the last keys count.
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
        # A fetch that is slow to end must not take a thread of the loop's default executor.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jwks")
        self._keys: Keys = {}
        self._fault = ""
        """The reason why the last fetch failed; logged once."""
        self._asked_at = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Fetch the keys, and start to refresh them. Raises ``UnusableFile``."""
        await self._ask()
        if not self._keys:
            raise UnusableFile(f"{self._url}: {self._fault}")
        self._keeping = asyncio.create_task(self._keep())

    async def find(self, key_id: str | None) -> IssuerKey | None:
        """Return the key with an id, or the only key if ``key_id`` is None; None if there is no
        such key, even after a fetch."""
        key = _found(self._keys, key_id)
        if key is not None:
            return key
        if self._asking is None and self._now() - self._asked_at < self._retry_s:
            return None
        await self._ask()
        return _found(self._keys, key_id)

    async def close(self) -> None:
        """Stop fetching."""
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
        """Fetch the keys, or wait for the fetch that is already running."""
        if self._asking is None:
            self._asked_at = self._now()
            self._asking = asyncio.create_task(self._fetch())
            self._asking.add_done_callback(self._asked)
        # The caller may be cancelled, but others wait for the same fetch.
        await asyncio.shield(self._asking)

    def _asked(self, _: asyncio.Task[None]) -> None:
        self._asking = None

    async def _fetch(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._fetch_s):
                body = await loop.run_in_executor(self._thread, fetch, self._url, self._fetch_s)
            published = json.loads(body)
            # An issuer may publish symmetric keys for other purposes: ignore them.
            self._keys = _by_id([key for key in _signing(published) if _is_asymmetric(key)])
        except TimeoutError:
            self._failed(f"no answer in {self._fetch_s:g} s")
        except Exception as error:  # no response of the URL may end the refreshing
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


def _found(keys: Keys, key_id: str | None) -> IssuerKey | None:
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
    except (ValueError, RecursionError, UnusableFile) as error:
        raise UnusableFile(f"--jwks {path} is not a usable JSON Web Key Set: {error}") from None


def _signing(published: object) -> Sequence[IssuerKey]:
    """Return the keys of a set that are for signatures; those that can't be used, as of an unknown
    type, are left out. Raises ``UnusableFile``."""
    entries = published.get("keys") if isinstance(published, dict) else None
    if not isinstance(entries, list):
        raise UnusableFile("it is no object with a list of keys")
    found = []
    try:
        for entry in entries:
            if not isinstance(entry, dict):
                continue
            with suppress(jwt.PyJWTError):
                found.append(IssuerKey(entry))
    except (ValueError, AttributeError, TypeError, LookupError) as error:
        raise UnusableFile(str(error)) from None
    # The others are for encryption, and somebody other than the issuer may hold one of them. A
    # ``use`` may be any value of JSON, which is why it is not looked up in a set.
    return [key for key in found if key.public_key_use in (None, "sig")]


def _is_asymmetric(key: IssuerKey) -> bool:
    return key.algorithm_name in ALGORITHMS


def _by_id(keys: Sequence[IssuerKey]) -> Keys:
    """Return keys by id. Raises ``UnusableFile`` for duplicate ids, for one that is not text, or
    for an empty set."""
    if not all(isinstance(key.key_id, str | None) for key in keys):
        raise UnusableFile("a kid is not text")
    named = {key.key_id or "": key for key in keys}
    if len(named) < len(keys):
        raise UnusableFile("two keys have the same kid, or lack one")
    if not named:
        raise UnusableFile("it holds no key for signatures")
    return named
