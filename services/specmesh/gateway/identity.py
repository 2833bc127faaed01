"""Who calls the gateway, and as whom it calls the mesh.

Without tokens of its own the gateway is nobody's judge: a caller's bearer token goes with every
call that is made for it, and the orchestrators decide. With ``--tokens``, ``--jwks`` or
``--jwks-url`` it knows its callers, calls the mesh as itself, and tells it for whom.
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
from specmesh.serving.identity.bearer import SCHEME, Bearer
from specmesh.serving.identity.on_behalf import CALLER

_token: ContextVar[str] = ContextVar("token")
_name: ContextVar[str] = ContextVar("name")


async def callers_token() -> str:
    """The bearer token of the caller whose request is being answered; for ``AsyncClient``."""
    return _token.get()


def callers_name() -> Sequence[tuple[str, bytes]]:
    """Metadata that names the caller whose request is being answered; for ``AsyncClient``."""
    return ((CALLER, _name.get().encode()),)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, and through which client the mesh is called for it.

    ``identity`` is empty where it is the mesh that knows.
    """

    client: AsyncClient
    identity: str = ""


class Door(Protocol):
    """Lets requests in."""

    async def admit(self, request: Request) -> Caller:
        """Who sent it. Raises ``ApiError`` 401."""


class OpenDoor:
    """Leaves it to the mesh who may call. ``passing_on`` sends ``callers_token`` with its calls,
    ``anonymous`` none."""

    def __init__(self, anonymous: AsyncClient, passing_on: AsyncClient) -> None:
        self._anonymous = anonymous
        self._passing_on = passing_on

    async def admit(self, request: Request) -> Caller:
        """Who sent it. Raises ``ApiError`` 401 for an authorization that is no bearer token."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if not scheme or (scheme.lower() == SCHEME and not token):  # sent by clients without one
            return Caller(self._anonymous)
        if scheme.lower() != SCHEME or not token.isascii() or not token.isprintable():
            raise _refused("the authorization is no bearer token")
        _token.set(token)
        return Caller(self._passing_on)


class GuardedDoor:
    """Lets in who has a token that ``bearer`` knows; ``client`` sends ``callers_name``."""

    def __init__(self, client: AsyncClient, bearer: Bearer) -> None:
        self._client = client
        self._bearer = bearer

    async def admit(self, request: Request) -> Caller:
        """Who sent it. Raises ``ApiError`` 401."""
        try:
            proven = await self._bearer.identify(request.headers.get("authorization"))
        except UnauthenticatedStatus as error:
            raise _refused(error.message) from None
        _name.set(proven.identity)
        return Caller(self._client, proven.identity)


def _refused(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key")
