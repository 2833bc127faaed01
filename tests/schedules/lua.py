"""Redis's Lua: the real scripts, on a small table in place of Redis's own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import lupa.lua51
from redis.exceptions import ResponseError

Call = Callable[..., Any]

_lua = lupa.lua51.LuaRuntime(encoding=None, register_eval=False, register_builtins=False)
_prepare = _lua.eval(
    b"""function(call, sha1hex)
      redis = {
        call = function(...) return call(...) end,
        sha1hex = sha1hex,
        error_reply = function(text) return {err = text} end,
        status_reply = function(text) return {ok = text} end,
        pcall = function(...)
          local worked, reply = pcall(call, ...)
          return worked and reply or {err = tostring(reply)}
        end,
      }
    end"""
)
_table_type = type(_lua.table())


@cache
def compiled(script: str) -> Any:
    """The script as a function of KEYS and ARGV."""
    return _lua.execute(b"return function(KEYS, ARGV) " + script.encode() + b"\nend")


def run(script: str, keys: Sequence[bytes], args: Sequence[bytes], call: Call) -> Any:
    """What the script returns to a client, its ``redis.call`` being ``call``."""
    _prepare(lambda *words: _to_lua(call(*map(_word, words))), _sha1hex)
    return _reply(compiled(script)(_lua.table_from(keys), _lua.table_from(args)))


def _sha1hex(text: bytes) -> bytes:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()


def _word(value: Any) -> bytes:
    """An argument of ``redis.call``, as Redis reads it."""
    return value if isinstance(value, bytes) else _number(value)


def _number(value: float) -> bytes:
    return b"%d" % value if value == int(value) else repr(value).encode()


def _to_lua(value: Any) -> Any:
    if value is None:
        return False
    if isinstance(value, list):
        return _lua.table_from([_to_lua(each) for each in value])
    return value


def _reply(value: Any) -> Any:
    """By Redis's rules: no fractions, no false, and lists end at the first nil."""
    if isinstance(value, _table_type):
        if value[b"err"]:
            raise ResponseError(value[b"err"].decode())
        if value[b"ok"]:
            return value[b"ok"]
        items: list[Any] = []
        while (item := value[len(items) + 1]) is not None:
            items.append(_reply(item))
        return items
    if value is None or value is False:
        return None
    return int(value) if isinstance(value, bool | int | float) else value
