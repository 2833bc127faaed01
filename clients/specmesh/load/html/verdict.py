"""The verdict of a report: a few sentences, each with a tone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from specmesh.load.html.facts import Read
from specmesh.load.transports.transport import OUT_OF_DESCRIPTORS
from specmesh.load.workload.durations import written

NAMES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "end to end"}
"""Names of objectives and metrics, without units."""

Sentence = dict[str, str]


class Tone(StrEnum):
    """The tone of a sentence, which decides its style."""

    MAIN = "main"
    PLAIN = "plain"
    WARNING = "warning"


def of_run(result: Read, name: str = "") -> list[Sentence]:
    """Return the goodput or throughput of a run, then what puts it in doubt."""
    prefix = f"{name}: " if name else ""
    found = [_sentence(Tone.MAIN, prefix + _outcome(result))]
    if result["interrupted"]:
        found.append(
            _sentence(Tone.WARNING, f"{prefix}interrupted; the results cover the time until then.")
        )
    counts = result["counts"]
    if counts["failed"] and result["errors"]:
        reason, most = max(result["errors"].items(), key=lambda item: item[1])
        text = f"{counts['failed']} of {counts['due']} requests failed, {most} with {reason}."
        found.append(_sentence(Tone.WARNING, prefix + text))
    return [*found, *_generator(result, prefix)]


def of_sweep(points: Sequence[Read], groups: Sequence[str]) -> list[Sentence]:
    """Return where each group of points stopped keeping up; ``groups`` names the group of each
    point."""
    found = []
    for name, own in itertools.groupby(zip(groups, points, strict=True), key=lambda pair: pair[0]):
        text = _of_group([point for _, point in own])
        found.append(_sentence(Tone.MAIN, f"{name}: {text}" if name else _capital(text)))
    return [*found, *_generators(points)]


def of_search(report: Read, name: str = "") -> list[Sentence]:
    """Return the highest rate that met the objectives."""
    prefix = f"{name}: " if name else ""
    met, missed, share = report["highest_rate"], report["lowest_missed_rate"], report["share"]
    if met is None:
        text = f"No rate was found at which {percent(share, 0)} of the requests meet the objectives"
    else:
        text = f"{percent(share, 0)} of the requests meet the objectives up to {met:.3g} a second"
    if missed is not None:
        text += f"; at {missed:.3g} a second they do not"
    objectives = next(
        (_objectives(each["result"]["goodput"]) for each in report["points"]), "none was tried"
    )
    return [_sentence(Tone.MAIN, f"{prefix}{text} ({objectives})."), *_generators(report["points"])]


def of_early_end(report: Read, name: str = "") -> list[Sentence]:
    """Return what ended a sweep or a search early; empty for none and in reports of old."""
    prefix = f"{name}: " if name else ""
    found = []
    if report.get("interrupted"):
        text = f"{prefix}interrupted; the {report['kind']} had not come to its end."
        found.append(_sentence(Tone.WARNING, text))
    if report.get("failure"):
        found.append(_sentence(Tone.WARNING, f"{prefix}ended early: {report['failure']}"))
    return found


def of_comparison(
    differences: Sequence[Read], others: Sequence[str], reports: Sequence[tuple[str, Read]]
) -> list[Sentence]:
    """Return how the means have changed, which settings differ, and how each run went."""
    means = [
        f"{each['label']} {each['in_words']}" for each in differences if each["statistic"] == "mean"
    ]
    found = [_sentence(Tone.MAIN, f"After, compared with before, in the mean: {'; '.join(means)}.")]
    if others:
        text = f"The runs also differ, which may be what is seen: {'; '.join(others)}."
        found.append(_sentence(Tone.WARNING, text))
    for name, report in reports:
        outcome, *doubts = of_run(report["result"], name)
        found += [{**outcome, "tone": Tone.PLAIN.value}, *doubts]
    return found


def _outcome(result: Read) -> str:
    goodput, throughput = result["goodput"], result["throughput"]
    offered = f"{throughput['offered_per_s']:.3g} requests a second were offered"
    if goodput is not None and goodput["share"] is None:
        return f"No request was due by which to judge whether {_objectives(goodput)} are met."
    if goodput is not None:
        return (
            f"{percent(goodput['share'])} of the requests met {_objectives(goodput)}: a goodput of "
            f"{goodput['per_s']:.3g} a second, where {offered}."
        )
    text = f"{throughput['answered_per_s']:.3g} answers a second, where {offered}"
    ttft = result["latency"]["ttft_ms"]
    if ttft is not None:
        half, most = written(ttft["p50"] / 1e3), written(ttft["p99"] / 1e3)
        text += f"; the first token came within {half} for half of them, {most} for 99 in 100"
    return f"{text}."


def _of_group(points: Sequence[Any]) -> str:
    kept = [each["rate"] for each in points if not each["saturated"]]
    fallen = [each for each in points if each["saturated"]]
    parts = [f"keeps up with {max(kept):g} a second"] if kept else []
    if fallen:
        lowest = min(fallen, key=lambda each: each["rate"])
        parts.append(f"does not keep up with {lowest['rate']:g} ({lowest['saturated']})")
    judged = [each for each in points if each["result"]["goodput"] is not None]
    if judged:
        best = max(judged, key=lambda each: each["result"]["goodput"]["per_s"])
        goodput = best["result"]["goodput"]
        if not goodput["per_s"]:
            return "; ".join((*parts, "no answer in the measured time met the objectives")) + "."
        most = f"most goodput at {best['rate']:g}: {goodput['per_s']:.3g} answers a second"
        parts.append(f"{most}, {percent(goodput['share'])} of the requests")
    return "; ".join(parts) + "."


def _objectives(goodput: Read) -> str:
    bounds = goodput["objectives_ms"].items()
    return ", ".join(f"{NAMES[name]} ≤ {written(bound / 1e3)}" for name, bound in bounds)


def _generator(result: Read, prefix: str) -> list[Sentence]:
    made = result["generator"]
    if made["bottleneck"]:
        text = f"the generator may itself be the bottleneck: {'; '.join(made['bottleneck'])}."
        return [_sentence(Tone.WARNING, prefix + (text if prefix else _capital(text)))]
    if made["lag_ms"] is None:
        return []
    lag = written(made["lag_ms"]["p99"] / 1e3)
    busiest = max((each["cpu_share"] for each in made["processes"]), default=0.0)
    text = f"the generator was not the bottleneck: 99 in 100 requests left within {lag} of when "
    text += f"they were due, and its busiest process used {percent(busiest, 0)} of a core."
    return [_sentence(Tone.PLAIN, prefix + (text if prefix else _capital(text)))]


def _generators(points: Sequence[Read]) -> list[Sentence]:
    """Return one sentence about the generators of all points."""
    late = [each for each in points if each["result"]["generator"]["bottleneck"]]
    if not late:
        return [_sentence(Tone.PLAIN, "The generator was not the bottleneck at any rate.")]
    made = [each["result"]["generator"] for each in late]
    worst = written(
        max((each["lag_ms"]["p99"] for each in made if each["lag_ms"]), default=0) / 1e3
    )
    busiest = max(process["cpu_share"] for each in made for process in each["processes"])
    rates = ", ".join(dict.fromkeys(f"{each['rate']:.3g}" for each in late))
    text = f"The generator may itself have been the bottleneck at {rates} a second: at worst one "
    text += f"request in 100 was sent more than {worst} late, and a process used "
    text += f"{percent(busiest, 0)} of a core"
    failed = sum(each["result"]["errors"].get(OUT_OF_DESCRIPTORS, 0) for each in late)
    text += f"; no file descriptor was left for {failed} requests" if failed else ""
    return [_sentence(Tone.WARNING, f"{text}.")]


def percent(share: float | None, digits: int = 1) -> str:
    """Format a share, such as ``92.1 %``; a dash if it is unknown."""
    return "–" if share is None else f"{share * 100:.{digits}f} %"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sentence(tone: Tone, text: str) -> Sentence:
    return {"tone": tone.value, "text": text}
