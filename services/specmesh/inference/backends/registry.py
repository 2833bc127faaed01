"""The registry of backends: those of specmesh, and those that installed packages add.

A package adds backends with entry points of the group ``specmesh.backends``, each of which refers
to a ``Backend``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic import AfterValidator
from pydantic_settings import BaseSettings

from specmesh.inference.model import LanguageModel, ModelNotLoadable
from specmesh.inference.models.tensor_parallel import Ranks

BUILT_IN = ("transformers", "units", "vllm", "simulated", "empty", "context")
"""Modules beside this one, each with ``BACKENDS``."""
ENTRY_POINTS = "specmesh.backends"
COMMON_OPTIONS = ("chat_template", "heads", "revision")
"""Settings that several backends use and others refuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One way to compute a model. Its loaders get all settings of the process, and raise
    ``ModelNotLoadable``. They import what they need only when they are called."""

    name: str
    summary: str = ""
    """A description of what it does, as the end of a sentence that begins with its name, if the
    name does not say so."""
    load_target: Callable[[Any, Ranks | None], LanguageModel] | None = None
    """Loads a target, or this rank's part of one; None if the backend can't serve targets."""
    load_drafter: Callable[[Any], LanguageModel] | None = None
    """Loads a drafter; None if the backend can't serve drafters."""
    target_settings: type[BaseSettings] | None = None
    """The backend's own settings for a verifier."""
    drafter_settings: type[BaseSettings] | None = None
    """The backend's own settings for a drafter."""
    reads: str = ""
    """The setting that must be given: ``model``, ``tokenizer``, or "" for none."""
    uses: frozenset[str] = frozenset()
    """The ``COMMON_OPTIONS`` that it uses, and ``ranks`` if torchrun can divide its targets."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why it doesn't use some of the ``COMMON_OPTIONS``, as clauses."""
    threads: Callable[[Any], int] = attrgetter("threads")
    """Returns the number of threads of a forward pass in this process, from all settings."""

    def settings(self, role: str) -> type[BaseSettings] | None:
        """Return the backend's own settings for ``role``, verifier or drafter."""
        return self.target_settings if role == "verifier" else self.drafter_settings

    def serves(self, role: str) -> bool:
        """Return whether the backend can load a model for ``role``."""
        return (self.load_target if role == "verifier" else self.load_drafter) is not None


@cache
def backends() -> Mapping[str, Backend]:
    """Return all backends by name, those of specmesh first."""
    own = (import_module(f"specmesh.inference.backends.{name}").BACKENDS for name in BUILT_IN)
    added = (entry.load() for entry in entry_points(group=ENTRY_POINTS))
    return {each.name: each for each in (*(one for some in own for one in some), *added)}


def names(role: str) -> list[str]:
    """Return the names of the backends that serve ``role``."""
    return [name for name, backend in backends().items() if backend.serves(role)]


def summaries(role: str) -> str:
    """Return the names of the backends that serve ``role``, and what they do, for ``--help``."""
    served = [backends()[name] for name in names(role)]
    said = [f"{each.name!r} {each.summary}" for each in served if each.summary]
    added = "or one that an installed package adds"
    return f"{', '.join(each.name for each in served)}, {added}; {', '.join(said)}"


def reading_models(role: str) -> str:
    """Return the names of the backends that load a model for ``role``."""
    return ", ".join(name for name in names(role) if backends()[name].reads == "model")


def settings_of(role: str) -> tuple[type[BaseSettings], ...]:
    """Return the settings that backends add to those of ``role``, each class once."""
    found = (backend.settings(role) for backend in backends().values())
    return tuple(dict.fromkeys(each for each in found if each is not None))


def named(role: str) -> AfterValidator:
    """Return a validator for a setting that names a backend for ``role``."""

    def check(name: str) -> str:
        if name not in (known := names(role)):
            close = get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ValueError(f"must be one of {', '.join(known)}{hint}")
        return name

    return AfterValidator(check)


def refusals(backend: Backend, role: str, settings: BaseSettings) -> Iterator[str]:
    """Yield a sentence for each setting that does not apply to ``backend``."""
    for option in COMMON_OPTIONS:
        if getattr(settings, option, None) and option not in backend.uses:
            reason = f": {backend.reasons[option]}" if option in backend.reasons else ""
            yield f"{_flag(option)}: backend {backend.name!r} does not use it{reason}"
    own = _fields(backend.settings(role))
    others: dict[str, list[str]] = {}
    for other in backends().values():
        for option in _fields(other.settings(role)).keys() - own.keys():
            others.setdefault(option, []).append(other.name)
    for option, users in others.items():
        if getattr(settings, option) != type(settings).model_fields[option].default:
            yield f"{_flag(option)} is only for --backend {' or '.join(users)}"


def check_there(backend: Backend, model: str) -> None:
    """Raise ``ModelNotLoadable`` if ``model`` is no folder and resembles a backend's name."""
    if backend.reads == "model" and not Path(model).exists():
        without = [each.name for each in backends().values() if each.reads == "tokenizer"]
        for close in get_close_matches(model, without, n=1):
            raise ModelNotLoadable(f"no model {model!r}: did you mean --backend {close}?")


def _fields(settings: type[BaseSettings] | None) -> Mapping[str, Any]:
    return {} if settings is None else settings.model_fields


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"
