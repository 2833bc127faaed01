"""The report of a run, as JSON and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console

from specmesh.bench.chaos.answers import ChaosAnswer
from specmesh.bench.chaos.faults import Carried
from specmesh.bench.chaos.judging.judge import AnswerVerdict, Judgement
from specmesh.bench.chaos.starvation import Watch
from specmesh.cli.tables import make_table

_NUM_AFTER = 3
_RECENT_S = 12.0
"""Faults that ended longer than this before a failure did not cause it."""


@dataclass(slots=True)
class JudgedAnswer:
    """An answer and the verdict on it."""

    answer: ChaosAnswer
    verdict: Judgement


@dataclass(slots=True)
class MeshRun:
    """The run of one mesh. ``faults`` is complete once the run is over."""

    persistent: bool
    judged: list[JudgedAnswer] = field(default_factory=list)
    faults: list[Carried] = field(default_factory=list)
    watch: Watch | None = None

    def faults_before(self, moment_s: float) -> list[Carried]:
        """Return the faults under way at that moment or shortly before, the latest first."""
        recent = [
            each
            for each in self.faults
            if each.began_s <= moment_s
            and (each.ended_s is None or each.ended_s > moment_s - _RECENT_S)
        ]
        return recent[::-1]


def as_json(seed: int, phases: Sequence[MeshRun]) -> dict[str, Any]:
    """Return the figures, which ``--help`` explains."""
    judged = [each for phase in phases for each in phase.judged]
    pauses = sorted(each.answer.longest_pause_s for each in judged if each.answer.finished)
    fates = Counter(each.verdict.fate for each in judged)
    return {
        "seed": seed,
        "faults": sum(len(phase.faults) for phase in phases),
        "finished": sum(each.answer.finished for each in judged),
        "exact": sum(each.verdict.exact for each in judged),
        "agreed": sum(each.verdict.agreed for each in judged),
        "cancelled": sum(each.answer.cancelled for each in judged),
        "lost": fates[AnswerVerdict.LOST],
        "doubled": fates[AnswerVerdict.DOUBLED],
        "changed": fates[AnswerVerdict.CHANGED],
        "failed": dict(Counter(each.answer.failure for each in judged if each.answer.failure)),
        "resumed": sum(each.answer.num_resumes > 0 for each in judged),
        "longest_pause_s": {
            "p50": _quantile(pauses, 0.5),
            "p95": _quantile(pauses, 0.95),
            "max": _quantile(pauses, 1.0),
        },
        "proxy_late_s": round(max((p.watch.longest_s for p in phases if p.watch), default=0.0), 3),
        "tokens": sum(len(each.answer.token_ids) for each in judged),
        "faults_by_kind": dict(
            sorted(Counter(str(c.fault) for phase in phases for c in phase.faults).items())
        ),
        "findings": [
            _finding(phase, each) for phase in phases for each in phase.judged if bad(each)
        ],
    }


def bad(judged: JudgedAnswer) -> bool:
    """Return whether something was lost, doubled or changed, or the answer failed."""
    return bool(judged.answer.failure) or judged.verdict.fate is not AnswerVerdict.RIGHT


def timeline(phases: Sequence[MeshRun]) -> list[dict[str, Any]]:
    """Return all faults and answers of every phase, in the order in which they began."""
    return [
        {
            "persistent": phase.persistent,
            "faults": [_fault(each) for each in phase.faults],
            "proxy_late": [asdict(each) for each in phase.watch.late] if phase.watch else [],
            "answers": sorted(
                (_answer(each) for each in phase.judged), key=lambda each: each["began_s"]
            ),
        }
        for phase in phases
    ]


def show(figures: dict[str, Any], console: Console) -> None:
    """Print the figures as a table."""
    table = make_table("", "", "", num_left=2)
    for name in ("seed", "faults", "finished", "exact", "agreed", "cancelled", "resumed"):
        table.add_row(name, str(figures[name]))
    for name in ("lost", "doubled", "changed"):
        table.add_row(name, f"[{'red' if figures[name] else 'green'}]{figures[name]}")
    failed = figures["failed"]
    table.add_row("failed", f"[{'red' if failed else 'green'}]{sum(failed.values())}")
    for reason, count in sorted(failed.items(), key=lambda item: -item[1]):
        table.add_row("", f"{count} {reason}")
    pauses = figures["longest_pause_s"]
    table.add_row("longest pause", ", ".join(f"{k} {v:.2f} s" for k, v in pauses.items()))
    table.add_row("proxy late by", f"{figures['proxy_late_s']:.2f} s at most")
    console.print(table)
    for line, count in Counter(map(_line, figures["findings"])).items():
        console.print(f"{count} x {line}", highlight=False, markup=False)


def _line(finding: dict[str, Any]) -> str:
    """Return what went wrong, and the last faults before it."""
    what = finding["failure"] or f"{finding['fate']} ({finding['why']})"
    return f"{what}: {finding['strategy']} {finding['mode']}, after {'; '.join(finding['after'])}"


def _finding(phase: MeshRun, judged: JudgedAnswer) -> dict[str, Any]:
    answer = judged.answer
    fell_silent_s = answer.last_token_s or answer.began_s
    moment_s = fell_silent_s if answer.failure else answer.ended_s
    after = [
        f"{each.fault} at {each.began_s:.1f} s for {each.fault.lasts_s:.1f} s"
        for each in phase.faults_before(moment_s)[:_NUM_AFTER]
    ]
    return {"persistent": phase.persistent, **_answer(judged), "after": after}


def _answer(judged: JudgedAnswer) -> dict[str, Any]:
    answer, verdict = judged.answer, judged.verdict
    request = answer.request
    return {
        "stream": answer.stream,
        "number": answer.number,
        "session_id": answer.session_id,
        "strategy": request.strategy,
        "mode": request.mode_name,
        "temperature": request.temperature,
        "threshold": request.threshold,
        "max_tokens": request.max_tokens,
        "began_s": round(answer.began_s, 3),
        "ended_s": round(answer.ended_s, 3),
        "last_token_s": answer.last_token_s and round(answer.last_token_s, 3),
        "num_tokens": len(answer.token_ids),
        "num_resumes": answer.num_resumes,
        "resumable": answer.resumable,
        "cancelled": answer.cancelled,
        "longest_pause_s": round(answer.longest_pause_s, 3),
        "paused_at_s": round(answer.paused_at_s, 3),
        "failure": answer.failure,
        "message": answer.message,
        "fate": verdict.fate.value,
        "why": verdict.why,
    }


def _fault(carried: Carried) -> dict[str, Any]:
    return {**asdict(carried.fault), "began_s": carried.began_s, "ended_s": carried.ended_s}


def _quantile(ordered: Sequence[float], share: float) -> float:
    if not ordered:
        return 0.0
    return round(ordered[min(int(share * len(ordered)), len(ordered) - 1)], 3)
