"""The statuses of failed requests.

OpenTelemetry's conventions leave the span of a server without an error where its caller is to
blame, as for a request that is refused; only these statuses tell.
"""

from __future__ import annotations

_WELL = frozenset({"", "OK", "CANCELLED"})
_FIRST_ERROR = 400
CLIENT_CLOSED_REQUEST = 499
"""The HTTP status of a request whose client left before the answer."""


def is_failure(rpc_status: str, http_status: float, error_type: str) -> bool:
    """Return whether a request failed that ended with these; empty or 0 if it has none."""
    if error_type or rpc_status not in _WELL:
        return True
    return http_status >= _FIRST_ERROR and http_status != CLIENT_CLOSED_REQUEST
