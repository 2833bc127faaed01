"""The settings of a report in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

Read = Mapping[str, Any]
"""An object of a report's JSON."""

_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedReport:
    """A report for ``facts``. A sweep or a search has ``rates`` and ``varied``, options with their
    values; its ``setting`` is that of one of its runs."""

    setting: Read
    began: str
    rates: str = ""
    varied: Mapping[str, Sequence[str]] = field(default_factory=dict)


def facts(reports: Sequence[DescribedReport]) -> list[dict[str, Any]]:
    """Return a label and a value for each of ``reports``; labels without any value are left out."""
    rows: list[tuple[str, Callable[[DescribedReport], str]]] = [
        ("Began", lambda each: each.began),
        ("Command", lambda each: str(each.setting["command"])),
        ("Server", lambda each: str(each.setting["server"])),
        ("Model", lambda each: _model(each.setting)),
        ("Arrivals", lambda each: arrivals(each.setting["workload"]["arrivals"], each.rates)),
        ("Requests", lambda each: prompts(each.setting["workload"]["conversations"])),
        ("Answers", lambda each: _answers(each.setting["workload"])),
        ("Strategies", _strategies),
        ("Varied", _varied),
        ("Measured", lambda each: extent(each.setting["workload"]["extent"])),
        ("Seed", lambda each: str(each.setting["seed"])),
        ("Generator", lambda each: _generator(each.setting)),
        ("Load average", _load_average),
        ("Versions", lambda each: _versions(each.setting)),
    ]
    found = [
        {"label": label, "values": [described(each) for each in reports]}
        for label, described in rows
    ]
    return [each for each in found if any(each["values"])]


def arrivals(found: Read, rates: str = "") -> str:
    """Describe the arrivals, such as ``open loop, Poisson, 4 conversations per second``."""
    rate = rates or f"{found.get('rate', 0):g}"
    match found["kind"]:
        case "users":
            pause = f", thinking {found['think_s']:g} s on average" if found["think_s"] else ""
            return f"closed loop, {found['count']} users{pause}"
        case "replay":
            pace = "their own" if found["speed"] == 1 else f"{found['speed']:g} times their"
            return f"replay of {found['seconds']} conversations at {pace} pace"
        case "ramp":
            first, last, over_s = found["first"], found["last"], found["over_s"]
            return (
                f"open loop, ramp from {first:g} to {last:g} conversations per second "
                f"in {over_s:g} s"
            )
        case "gamma":
            burstiness = f"gamma with burstiness {found['burstiness']:g}"
            return f"open loop, {burstiness}, {rate} conversations per second"
        case kind:
            name = {"poisson": "Poisson", "constant": "evenly spaced"}.get(kind, str(kind))
            return f"open loop, {name}, {rate} conversations per second"


def mix(variations: Sequence[Read], leaving_out: Set[str] = frozenset()) -> str:
    """Describe the strategies with their options and shares, except for settings in
    ``leaving_out``."""
    total = sum(each["weight"] for each in variations)
    named = []
    for each in variations:
        share = f" ({each['weight'] / total * 100:.0f} %)" if len(variations) > 1 else ""
        settings = {**each["options"], **each["sampling"]}
        options = [f"{name}={value}" for name, value in settings.items() if name not in leaving_out]
        strategy = "" if "strategy" in leaving_out else each["strategy"] or "the default"
        if strategy or options:
            named.append(" ".join(part for part in (strategy, *options) if part) + share)
    return ", ".join(named)


def length(found: Read) -> str:
    """Describe a distribution of lengths."""
    match found:
        case {"value": value}:
            return str(value)
        case {"least": least, "most": most}:
            return f"{least} to {most}"
        case {"mean": mean, "sd": sd}:
            return f"normal with mean {mean:g} and standard deviation {sd:g}"
        case {"median": median, "sigma": sigma}:
            return f"lognormal with median {median:g} and sigma {sigma:g}"
    return ", ".join(f"{name} {value}" for name, value in found.items())


def prompts(found: Read) -> str:
    """Describe the conversations of a workload."""
    match found["kind"]:
        case "listed":
            return f"{found['conversations']} conversations from a file"
        case "recorded":
            return f"as recorded, {found['entries']} entries"
    text = f"random prompts of {length(found['prompt_tokens'])} tokens"
    if found["prefix_groups"]:
        text += f" after {found['prefix_groups']} prefixes of {found['prefix_tokens']}"
    turns = length(found["turns"])
    return text if turns == "1" else f"{text}, {turns} turns per conversation"


def extent(found: Read) -> str:
    """Describe the length of a run."""
    parts = []
    if found["duration_s"] is not None:
        parts.append(f"{found['duration_s']:g} s")
    if found["max_conversations"] is not None:
        parts.append(f"{found['max_conversations']} conversations")
    text = ", at most ".join(parts) or "to the end of the recording"
    if found["warm_up_s"]:
        text += f", after {found['warm_up_s']:g} s of warm-up"
    if found["cool_down_s"]:
        text += f", before {found['cool_down_s']:g} s of cool-down"
    return text


def machine(found: Read) -> str:
    """Describe the machine of the generator."""
    memory = f"{found['memory_bytes'] / _GIB:.0f} GiB"
    return f"{found['cores']} cores of {found['processor']}, {memory}, {found['system']}"


def _strategies(report: DescribedReport) -> str:
    return mix(report.setting["workload"]["variations"], set(report.varied))


def _varied(report: DescribedReport) -> str:
    return "; ".join(f"{name}: {', '.join(values)}" for name, values in report.varied.items())


def _load_average(report: DescribedReport) -> str:
    return f"{report.setting['machine']['load_average'][0]:.1f} at the end"


def _model(setting: Read) -> str:
    chat = ", as chats" if setting["chat"] else ""
    return f"{setting['model'] or 'the default of the server'}{chat}"


def _answers(workload: Read) -> str:
    limit = workload["output_tokens"]
    parts = ["no limit" if limit is None else f"limit {length(limit)} tokens"]
    if workload["ignore_end"]:
        parts.append("always to the limit")
    if workload["cancelled_share"]:
        parts.append(f"{workload['cancelled_share'] * 100:g} % cancelled")
    parts.append(f"deadline {workload['timeout_s']:g} s")
    return ", ".join(parts)


def _generator(setting: Read) -> str:
    processes = setting["processes"]
    generators = "1 process" if processes == 1 else f"{processes} processes"
    return f"{generators} on {machine(setting['machine'])}"


def _versions(setting: Read) -> str:
    return ", ".join(f"{name} {version}" for name, version in setting["versions"].items())
