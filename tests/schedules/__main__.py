"""``python -m tests.schedules``: many schedules at once, or one of them again with its trace."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.schedules.mutations import MUTATIONS, find
from tests.schedules.run import Outcome, collecting_seldom, run

NUM_PROCESSES = 2
BATCH = 250
COLLECT_EVERY = 50
MOST_SHOWN = 20


@dataclass(slots=True)
class Total:
    """Of many schedules."""

    schedules: int = 0
    answers: int = 0
    finished: int = 0
    calls: int = 0
    virtual_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    violated: dict[int, str] = field(default_factory=dict)
    """By seed the first violation."""

    def add(self, outcome: Outcome) -> None:
        """Count one."""
        self.schedules += 1
        self.answers += len(outcome.scenario.questions)
        self.finished += outcome.num_finished
        self.calls += outcome.num_calls
        self.virtual_s += outcome.virtual_s
        self.faults.update(fault.kind for fault in outcome.scenario.faults)
        if outcome.violations:
            self.violated[outcome.seed] = outcome.violations[0]

    def merge(self, other: Total) -> None:
        """Count what another process has counted."""
        self.schedules += other.schedules
        self.answers += other.answers
        self.finished += other.finished
        self.calls += other.calls
        self.virtual_s += other.virtual_s
        self.faults.update(other.faults)
        self.violated.update(other.violated)


@contextmanager
def _quietly() -> Iterator[None]:
    """Log errors alone: what else orchestrators log would be thousands of lines."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def run_batch(seeds: range, *, width: int | None = None) -> Total:
    """Run the schedules of ``seeds``."""
    total = Total()
    with _quietly(), collecting_seldom() as collect:
        for seed in seeds:
            total.add(run(seed, width=width))
            if seed % COLLECT_EVERY == 0:
                collect()
    return total


def main(arguments: list[str]) -> int:
    """The command; 1 if an invariant was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.schedules", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="schedules to run")
    parser.add_argument("--first-seed", type=int, default=0, help="seed of the first")
    parser.add_argument("--seed", type=int, help="run this one alone and show what happens")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--mutations", action="store_true", help="take each fix out, find it again")
    options = parser.parse_args(arguments)
    if options.mutations:
        return _mutate(range(options.first_seed, options.first_seed + options.count))
    if options.seed is not None:
        return _show(options.seed)
    began = time.monotonic()
    total = Total()
    for done in _batches(range(options.first_seed, options.first_seed + options.count)):
        total.merge(done)
        if not options.json:
            _progress(total, time.monotonic() - began)
    _report(total, time.monotonic() - began, as_json=options.json)
    return 1 if total.violated else 0


def _batches(seeds: range) -> Iterator[Total]:
    parts = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
    with ProcessPoolExecutor(NUM_PROCESSES) as pool:
        yield from pool.map(run_batch, parts)


def _show(seed: int) -> int:
    with _quietly():
        outcome = run(seed, traced=True)
    _print(outcome.scenario, *outcome.trace, *(f"VIOLATED {each}" for each in outcome.violations))
    return 1 if outcome.violations else 0


def _mutate(seeds: range) -> int:
    missed = 0
    for name, mutation in MUTATIONS.items():
        with _quietly():
            found = find(mutation, seeds)
        missed += found is None
        _print(f"{name}: " + (f"seed {found.seed}, {found.violations[0]}" if found else "MISSED"))
    return 1 if missed else 0


def _progress(total: Total, seconds: float) -> None:
    if sys.stderr.isatty():
        rate = total.schedules / seconds
        sys.stderr.write(f"\r{total.schedules} schedules, {rate:.0f}/s, {len(total.violated)} bad ")


def _report(total: Total, seconds: float, *, as_json: bool) -> None:
    shown = dict(sorted(total.violated.items())[:MOST_SHOWN])
    report: dict[str, Any] = {
        "schedules": total.schedules,
        "violated": len(total.violated),
        "seconds": round(seconds, 1),
        "virtual_hours": round(total.virtual_s / 3600, 1),
        "answers": total.answers,
        "finished": total.finished,
        "calls": total.calls,
        "faults": dict(sorted(total.faults.items())),
        "seeds": {str(seed): what for seed, what in shown.items()},
    }
    if as_json:
        _print(json.dumps(report))
        return
    _print(*(f"{name:>14}  {value}" for name, value in report.items() if name != "seeds"))
    _print(*(f"seed {seed}: {what.strip()}" for seed, what in shown.items()))
    if shown:
        _print(f"see what happens with: python -m tests.schedules --seed {next(iter(shown))}")


def _print(*lines: object) -> None:
    for line in lines:
        print(line)  # noqa: T201 - the command's output


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
