"""The base of parsers whose text comes in pieces of any length."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import TypeVar

from specmesh.orchestrator.parsing.pieces import Piece, merged

T = TypeVar("T")

Reading = Generator[None, str, T]
"""A part of a parser that reads characters and returns a result."""


class CharacterParser:
    """Parses text character by character, so that it makes no difference how the text is split.

    A subclass implements ``_parse``, which reads each character with ``yield from self._next()``.
    What it has read stays in ``_held`` until it says what that is.
    """

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._held: list[str] = []
        self._unread: deque[str] = deque()
        self._parsing = self._parse()
        next(self._parsing)

    def push(self, text: str) -> list[Piece]:
        """Return what is certain now that ``text`` has followed."""
        for character in text:
            self._parsing.send(character)
        return self._taken()

    def end(self) -> list[Piece]:
        """Return what was held back, now that no text follows."""
        with suppress(StopIteration):
            self._parsing.send("")
        return self._taken()

    def _parse(self) -> Reading[None]:
        raise NotImplementedError

    def _taken(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return merged(pieces)

    def _next(self) -> Reading[str]:
        """Return the next character; "" at the end."""
        character = self._unread.popleft() if self._unread else (yield)
        self._held.append(character)
        return character

    def _after_space(self) -> Reading[str]:
        """Return the next character that is not white space; "" at the end."""
        while (character := (yield from self._next())).isspace():
            pass
        return character

    def _read_again(self, num_characters: int) -> None:
        """Let the last ``num_characters``, of which the end may be one, be read again."""
        again = self._held[len(self._held) - num_characters :]
        del self._held[len(self._held) - num_characters :]
        self._unread.extendleft(reversed(again))

    def _taken_back(self) -> str:
        """Return what was held, as no longer held."""
        text = "".join(self._held)
        self._held.clear()
        return text

    def _up_to(self, markers: Sequence[str], say: Callable[[str], None]) -> Reading[str]:
        """Pass on the text before the next of ``markers``, and return that one, which is held; ""
        at the end, where what may have begun one is held."""
        while character := (yield from self._next()):
            text = "".join(self._held)
            while text and not any(marker.startswith(text) for marker in markers):
                say(text[0])
                text = text[1:]
            self._held = list(text)
            if text in markers:
                return text
        return character


class SpaceTrimmer:
    """Holds back white space until other text follows, and drops it beside a marker."""

    def __init__(self, *, at_marker: bool) -> None:
        self._space: list[str] = []
        self._at_marker = at_marker

    def text(self, text: str) -> str:
        """Return what can be passed on now that ``text`` follows."""
        certain: list[str] = []
        for character in text:
            if character.isspace():
                self._space.append(character)
                continue
            if not self._at_marker:
                certain += self._space
            certain.append(character)
            self._space.clear()
            self._at_marker = False
        return "".join(certain)

    def marker(self) -> None:
        """Note that a marker follows."""
        self._space.clear()
        self._at_marker = True

    def end(self) -> str:
        """Return the white space at the end of the text."""
        return "" if self._at_marker else "".join(self._space)
