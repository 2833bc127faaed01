"""The settings in which two runs differ, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from specmesh.load.html.facts import Read, arrivals, extent, length, machine, mix, prompts

_WORDS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "arrivals": ("arrivals", arrivals),
    "conversations": ("prompts", prompts),
    "extent": ("measured", extent),
    "output_tokens": ("tokens of an answer", lambda each: length(each) if each else "no limit"),
    "ignore_end": ("answers go on to their limit", lambda each: "yes" if each else "no"),
    "think_s": ("pause between turns", lambda each: f"{each:g} s"),
    "cancelled_share": ("cancelled", lambda each: f"{each * 100:g} %"),
    "cancelled_after": ("tokens before users leave", lambda each: length(each) if each else "none"),
    "timeout_s": ("deadline", lambda each: f"{each:g} s"),
}
"""The name and the formatter of each key of a workload except the variations."""
_UNREMARKABLE = frozenset({"words_per_token", "variations"})


def other_settings(before: Read, after: Read) -> list[str]:
    """Describe the settings, other than the server, in which two reports differ, as in ``seed: 0,
    then 1``."""
    return [
        f"{name}: {old}, then {new}" if old != new else name
        for name, old, new in _different(before["setting"], after["setting"])
    ]


def _different(old: Read, new: Read) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each setting that differs, and its two values."""
    loads = old["workload"], new["workload"]
    yield from _of_variations(*(each.get("variations", ()) for each in loads))
    for key in loads[0]:
        # A key missing from one report came with a later version: its value is unknown.
        if key in _UNREMARKABLE or key not in loads[1] or loads[0][key] == loads[1][key]:
            continue
        name, said = _WORDS.get(key, (key.replace("_", " "), str))
        yield name, said(loads[0][key]), said(loads[1][key])
    # Older reports name the model only if the command did.
    if "" not in (old["model"], new["model"]) and old["model"] != new["model"]:
        yield "model", old["model"], new["model"]
    for key, name, said in (
        ("chat", "requests", lambda each: "chats" if each else "texts"),
        ("seed", "seed", str),
        ("processes", "processes of the generator", str),
    ):
        if old[key] != new[key]:
            yield name, said(old[key]), said(new[key])
    if machine(old["machine"]) != machine(new["machine"]):
        yield "machine of the generator", machine(old["machine"]), machine(new["machine"])


def _of_variations(old: Sequence[Read], new: Sequence[Read]) -> Iterator[tuple[str, str, str]]:
    """Compare setting by setting if each run had one variation; otherwise compare the mixes as
    wholes."""
    if len(old) == len(new) == 1:
        settings = [{"strategy": each[0]["strategy"], **_options(each[0])} for each in (old, new)]
        for name in dict.fromkeys(name for each in settings for name in each):
            values = [str(each.get(name, "")) or "the default" for each in settings]
            if values[0] != values[1]:
                yield name, values[0], values[1]
    elif old != new and mix(old) != mix(new):
        yield "strategies", mix(old), mix(new)


def _options(variation: Read) -> dict[str, Any]:
    return {**variation["options"], **variation["sampling"]}
