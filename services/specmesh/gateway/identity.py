"""Authentication of the gateway's callers, and the identity under which it calls the mesh.

Without ``--tokens``, ``--jwks`` and ``--jwks-url`` the gateway passes a caller's bearer token on,
and the orchestrators check it. With one of them it authenticates callers itself, calls the mesh
under its own identity and names the caller in each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request

from specmesh.client import AsyncClient
from specmesh.gateway.errors import ApiError
from specmesh.serving.errors import UnauthenticatedStatus
from specmesh.serving.identity.bearer import SCHEME, Bearer, read_authorization
from specmesh.serving.identity.on_behalf import CALLER

_token: ContextVar[str] = ContextVar("token")
_name: ContextVar[str] = ContextVar("name")


async def callers_token() -> str:
    """Return the bearer token of the caller of the current request; for ``AsyncClient``."""
    return _token.get()


def callers_name() -> Sequence[tuple[str, bytes]]:
    """Return metadata that names the caller of the current request; for ``AsyncClient``."""
    return ((CALLER, _name.get().encode()),)


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request, and the client through which to call the mesh for it.

    ``identity`` is empty if only the mesh knows it.
    """

    client: AsyncClient
    identity: str = ""


class Door(Protocol):
    """Authenticates callers."""

    async def admit(self, request: Request) -> Caller:
        """Return the caller of ``request``. Raises ``ApiError`` 401."""


class OpenDoor:
    """Leaves authentication to the mesh: ``passing_on`` sends ``callers_token`` with its calls,
    ``anonymous`` sends no token."""

    def __init__(self, anonymous: AsyncClient, passing_on: AsyncClient) -> None:
        self._anonymous = anonymous
        self._passing_on = passing_on

    async def admit(self, request: Request) -> Caller:
        """Return the caller. Raises ``ApiError`` 401 unless a given authorization is a bearer
        token."""
        scheme, token = read_authorization(request.headers.get("authorization", ""))
        # Clients that have no token may send the scheme alone.
        if not scheme or (scheme == SCHEME and not token):
            return Caller(self._anonymous)
        if scheme != SCHEME or not token.isascii() or not token.isprintable():
            raise _refused("the authorization header holds no valid bearer token")
        _token.set(token)
        return Caller(self._passing_on)


class GuardedDoor:
    """Admits callers whose token ``bearer`` accepts; ``client`` sends ``callers_name``."""

    def __init__(self, client: AsyncClient, bearer: Bearer) -> None:
        self._client = client
        self._bearer = bearer

    async def admit(self, request: Request) -> Caller:
        """Return the caller of ``request``. Raises ``ApiError`` 401."""
        try:
            proven = await self._bearer.identify(request.headers.get("authorization"))
        except UnauthenticatedStatus as error:
            raise _refused(error.message) from None
        _name.set(proven.identity)
        return Caller(self._client, proven.identity)


def _refused(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key")
