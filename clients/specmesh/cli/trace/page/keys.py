"""Access control of the page: every user of this machine can reach its port, but only the owner of
the traces may see them.

All paths begin with a key, which only the terminal shows. Since every user can read the arguments
of all processes, the browser is started with a ticket instead: it opens the page once, and is
refused afterwards.
"""

from __future__ import annotations

import hmac
import secrets

from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

KEY_BYTES = 16
"""Size of keys and tickets; 128 random bits can't be guessed."""


class Keys:
    """The key of a server, and its unused tickets."""

    def __init__(self) -> None:
        self.key = secrets.token_urlsafe(KEY_BYTES)
        self._tickets: list[str] = []

    def ticket(self) -> str:
        """Issue a ticket."""
        ticket = secrets.token_urlsafe(KEY_BYTES)
        self._tickets.append(ticket)
        return ticket

    def fits(self, key: str) -> bool:
        """Return whether ``key`` is the server's."""
        return _equal(key, self.key)

    def use(self, ticket: str) -> bool:
        """Use a ticket; return whether it is one that was not used before."""
        used = [each for each in self._tickets if _equal(each, ticket)]
        for each in used:
            self._tickets.remove(each)
        return bool(used)


class Keyed:
    """Middleware that passes requests to ``app`` if their path begins with the key, which it
    removes. A ticket redirects to the key."""

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
            # The browser keeps the fragment, which names the trace, across the redirect.
            await RedirectResponse(f"/{self._keys.key}/", 303, _HEADERS)(scope, receive, send)
        else:
            refused = PlainTextResponse(_REFUSED, 403, _HEADERS)
            await refused(scope, receive, send)


_REFUSED = "This is not the address that 'specmesh trace open' printed.\n"
_HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
