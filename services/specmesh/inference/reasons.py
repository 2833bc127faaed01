"""Errors of libraries, in one line that says what is wrong, and where."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pydantic import ValidationError

MAX_REASON_CHARS = 400
_TELLING = (OSError, ValueError, RuntimeError, ImportError)
"""Types of errors whose text is usually enough to say what is wrong."""


def reason_of(error: Exception) -> str:
    """Return the first line of the text of ``error``, with those that it announces by a colon, and
    with the error's type if the text alone says little, or its type and where it was raised if it
    has no text.

    Libraries raise errors with many lines, such as reports, lists of all valid values, and advice.
    The first line of pydantic's only counts what is wrong, so its first finding takes its place.
    """
    said = _first_finding(error) if isinstance(error, ValidationError) else str(error)
    text = _beginning(said)[:MAX_REASON_CHARS]
    if not text:
        return f"{type(error).__name__}{_place_of(error)}"
    return text if isinstance(error, _TELLING) else f"{type(error).__name__}: {text}"


def field_of(settings: Mapping[str, object], value: object) -> str | None:
    """Return the field of ``settings`` that has ``value``, with those that contain it; None if none
    has it."""
    for name, own in settings.items():
        if own == value:
            return name
        if isinstance(own, Mapping) and (inner := field_of(own, value)):
            return f"{name}.{inner}"
    return None


@contextmanager
def in_file(name: str) -> Iterator[None]:
    """Turn any error, save one of the system or of the hub, which name it, into a ``ValueError``
    that names the file."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{name}: {reason_of(error)}") from error


def _place_of(error: Exception) -> str:
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames:
        return ""
    frame, line = frames[-1]
    return f" in line {line} of {frame.f_globals.get('__name__')}"


def _first_finding(error: ValidationError) -> str:
    finding = error.errors()[0]
    # The message of a ValueError suffices; pydantic puts "Value error" before it.
    said = str(finding.get("ctx", {}).get("error", finding["msg"]))
    return ": ".join((*map(str, finding["loc"]), said))


def _beginning(text: str) -> str:
    first, *others = [line.strip() for line in text.strip().split("\n")]
    for line in others:
        if not first.endswith(":"):
            break
        first = f"{first} {line}".rstrip()
    return first
