"""Who may look at the page: everybody on this machine reaches its port, and traces are their
owner's.

All addresses begin with a key, which only the terminal shows. The browser is started with a ticket
in its place, since every user of the machine can read the arguments of others' programs: a ticket
opens the page once, and whoever comes with it later finds it used.
"""

from __future__ import annotations

import hmac
import secrets

from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

KEY_BYTES = 16
"""128 random bits cannot be guessed."""


class Keys:
    """The key of a server, and the tickets that were given out and not used."""

    def __init__(self) -> None:
        self.key = secrets.token_urlsafe(KEY_BYTES)
        self._tickets: list[str] = []

    def ticket(self) -> str:
        """A new ticket."""
        ticket = secrets.token_urlsafe(KEY_BYTES)
        self._tickets.append(ticket)
        return ticket

    def fits(self, key: str) -> bool:
        """Whether ``key`` is the server's."""
        return _equal(key, self.key)

    def use(self, ticket: str) -> bool:
        """Whether ``ticket`` is one that nobody has used before."""
        used = [each for each in self._tickets if _equal(each, ticket)]
        for each in used:
            self._tickets.remove(each)
        return bool(used)


class Keyed:
    """Lets requests through to ``app`` whose path begins with the key, which ``app`` does not see.
    A ticket leads to the key."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        key, slash, rest = scope["path"].removeprefix("/").partition("/")
        if slash and self._keys.fits(key):
            within = {**scope, "root_path": f"/{key}"}
            await self._app(within, receive, send)
        elif slash and not rest and self._keys.use(key):
            # The fragment, which names the trace, goes on with the browser.
            await RedirectResponse(f"/{self._keys.key}/", 303, _HEADERS)(scope, receive, send)
        else:
            refused = PlainTextResponse(_REFUSED, 403, _HEADERS)
            await refused(scope, receive, send)


_REFUSED = "This is not the address that 'specmesh trace open' has printed.\n"
_HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
