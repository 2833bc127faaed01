"""The validation of a body, and its refusals under the caller's names and in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError

from specmesh.gateway.errors import ApiError
from specmesh.gateway.field_names import renamed
from specmesh.gateway.requests.extension import Extension
from specmesh.gateway.requests.fields import Fields
from specmesh.gateway.requests.parameters.standing import Parameters
from specmesh.gateway.requests.parameters.tables import EXTENSION, taken

HINTS = {
    **{name: f"{EXTENSION}.{name}" for name in Extension.model_fields},
    "max_completion_tokens": "max_tokens",
}
"""Field names of other servers' extensions, and the fields to use instead."""

F = TypeVar("F", bound=Fields)


def read_request(
    request_class: type[F],
    given: Mapping[str, object],
    parameters: Parameters,
    hints: Mapping[str, str] = HINTS,
    names: Mapping[str, str] | None = None,
) -> F:
    """Validate the body ``given`` of a call that takes ``parameters``; ``hints`` are those of
    ``taken``, ``names`` the caller's where they differ. Raises ``ApiError``."""
    try:
        return request_class.model_validate(taken(given, parameters, hints))
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
    # An unknown field takes precedence, since it may be why another is missing: a message with tool
    # calls has no content.
    first = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
    param = renamed(_path(first["loc"]), names or {})
    if first["type"] == "missing":
        raise ApiError.invalid(param, f"{param!r} is missing", code="missing_required_parameter")
    if first["type"] == "extra_forbidden":
        raise ApiError.invalid(param, f"unknown parameter {param!r}", code="unknown_parameter")
    if first["type"] == "none_required":
        message = f"{param!r} is not supported here"
        raise ApiError.invalid(param, message, code="unsupported_parameter")
    raise ApiError.invalid(param, f"{param!r}: {_in_words(first['type'], first['msg'])}")


_AN_OBJECT = "Input should be an object"
_WORDS = {"model_type": _AN_OBJECT, "dict_type": _AN_OBJECT}
_PYTHONS = {"should be False": "should be false", "Value error, ": "", " after validation": ""}


def _in_words(kind: str, message: str) -> str:
    """Return the ``message`` of an error of this ``kind`` for callers: pydantic's own names
    internal classes, and types as Python does."""
    for theirs, ours in _PYTHONS.items():
        message = message.replace(theirs, ours)
    return _WORDS.get(kind, message)


def _path(location: tuple[int | str, ...]) -> str:
    """Return a path such as ``messages[0].content``, without the marks of unions and of keys."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not part.startswith(("<", "[key]")):
            path += f".{part}" if path else part
    return path
