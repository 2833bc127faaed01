"""``specmesh bench profile`` or ``python -m specmesh.bench.profile_check``: the accuracy of a
profile.

It checks two things: the error of predicted forwards in settings that the prediction was not fitted
to, and how much slower the strategy chosen by the profile is than the best candidate. Each
candidate is tried on the mesh with prompts that the profile did not see: first all with some of
these, then the fastest with others, pass after pass, for their rounds per second, and once with all
of these others, for their tokens per round.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from statistics import median
from typing import Annotated, Any

import typer

from specmesh import models
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.local.model_options import HeadsFolder, PairOptions
from specmesh.cli.local.options import Threads
from specmesh.client import AsyncClient
from specmesh.serving.process.typer_app import App
from specmesh.simulation.costs import MANY
from specmesh.tools.kit.bench import Bench, Surroundings, conduct
from specmesh.tools.kit.experiment import SEED, TEMPERATURES
from specmesh.tools.kit.options import Json, Seed, Temperatures, Tokens
from specmesh.tools.kit.tables import same, table_of
from specmesh.tools.profile.choose import Expectation, expectations
from specmesh.tools.profile.file import Profile
from specmesh.tools.profile.measure.prompts import parted
from specmesh.tools.profile.measure.replicas import connected_in
from specmesh.tools.profile.measure.watch import CoreWatch
from specmesh.tools.profile.predict import CONTEXT
from specmesh.tools.profile.report import show
from specmesh.tools.profile.rounds import Way
from specmesh.tools.profile.run import NUM_PROMPTS, NUM_TOKENS, SECONDS, ProfilePlan, measure
from specmesh.tools.profile.tries.mesh_tries import (
    Load,
    Tried,
    Try,
    count_all,
    num_answers,
    regret,
    try_all,
)

STREAMS = (1, 8)
SCREENING = 8
"""Number of prompts with which each way is tried once; with few streams, which take longer, half of
it."""

_COMPARED = ("tokens_per_round", "rounds_per_s", "tokens_per_s")

app = App()


@dataclass(frozen=True, slots=True)
class Check:
    """The extent of a check."""

    plan: ProfilePlan
    streams: Sequence[int]
    prompts: Sequence[str]
    """Prompts other than the profile's."""
    num_tokens: int
    passes: int

    def loads(self, streams: int, temperature: float) -> list[Load]:
        """Return one load for screening, then one for each pass, with other prompts."""
        screening = islice(cycle(self.prompts), max(streams, SCREENING // 2))
        size = num_answers(streams)
        passes = (
            islice(cycle(self.prompts[SCREENING:]), first, first + size)
            for first in range(0, size * self.passes, size)
        )
        return [self._load(list(prompts), streams, temperature) for prompts in (screening, *passes)]

    def count(self, temperature: float) -> Load:
        """Return a load of all prompts except those for screening, with many streams, to be
        quick."""
        return self._load(self.prompts[SCREENING:], MANY, temperature)

    def _load(self, prompts: Sequence[str], streams: int, temperature: float) -> Load:
        return Load(prompts, streams, temperature, self.num_tokens, self.plan.seed)


@app.command()
def main(
    *,
    pair: PairOptions,
    heads: HeadsFolder = None,
    seconds: Annotated[float, typer.Option(min=1, help="Time for the profile.")] = SECONDS,
    streams: Annotated[
        list[int] | None,
        typer.Option(
            min=1, help="Number of concurrent answers. May be repeated.", show_default="1 and 8"
        ),
    ] = None,
    prompts: Annotated[
        int,
        typer.Option(min=SCREENING + 1, help="Number of prompts to try, which the profile lacks."),
    ] = NUM_PROMPTS,
    tokens: Tokens = NUM_TOKENS,
    passes: Annotated[int, typer.Option(min=1, help="Passes over the fastest candidates.")] = 12,
    temperature: Temperatures = None,
    seed: Seed = SEED,
    threads: Threads = 1,
    json_: Json = False,
) -> None:
    """Profile a mesh, choose by the profile, and try all candidates.

    Exits with 1 if texts differ.
    """
    own, others = parted(models.heldout_prompts(2 * NUM_PROMPTS), seed)
    temperatures = tuple(dict.fromkeys(temperature or TEMPERATURES))
    check = Check(
        plan=ProfilePlan(own, temperatures, NUM_TOKENS, seconds, seed),
        streams=tuple(dict.fromkeys(streams or STREAMS)),
        prompts=others[:prompts],
        num_tokens=tokens,
        passes=passes,
    )

    def make(surroundings: Surroundings) -> ProfileBench:
        models = pair.real_models(threads, heads)
        options = MeshOptions(models=models, threads=threads, drain_s=1.0)
        return ProfileBench(check, options, surroundings)

    conduct(make, as_json=json_)


class ProfileBench(Bench):
    """One run of the benchmark."""

    def __init__(self, check: Check, options: MeshOptions, surroundings: Surroundings) -> None:
        super().__init__(options, surroundings)
        self._check = check

    async def run(self) -> tuple[int, Mapping[str, Any]]:
        """Profile, choose and try; return the exit status and the results."""
        check = self._check
        async with self.mesh.running() as client:
            async with connected_in(self.mesh.addresses) as replicas:
                plan = replace(check.plan, placement=self.mesh.placement)
                profile = await measure(replicas, client, plan, self.say)
            show(profile, self.console)
            async with CoreWatch.of(profile.costs) as cores:
                cases = [each async for each in self._cases(client, cores, profile)]
        identical = all(case["identical"] for case in cases)
        return 0 if identical else ExitStatus.FAILED, {
            "errors": {role: asdict(each) for role, each in profile.accuracy.items()},
            "median_error": median(
                each.median for each in profile.accuracy.values() if each.median is not None
            ),
            "worst_regret": max(case["regret"] for case in cases),
            "identical": identical,
            "profile_s": profile.seconds,
            "machine": dict(profile.machine),
            "cases": cases,
            "profile": json.loads(profile.to_json()),
        }

    async def _cases(
        self, client: AsyncClient, cores: CoreWatch, profile: Profile
    ) -> AsyncIterator[dict[str, Any]]:
        check = self._check
        for temperature in check.plan.temperatures:
            counted: dict[Way, Try] = {}
            for streams in check.streams:
                expected = expectations(
                    profile.acceptance,
                    profile.costs,
                    streams=streams,
                    temperature=temperature,
                    context=CONTEXT,
                )
                loads = check.loads(streams, temperature)
                ways = [each.acceptance.way for each in expected]
                tried = await try_all(client, cores, loads, ways, ways[0])
                await count_all(client, cores, check.count(temperature), tried, counted)
                case = _case(loads[0], expected, tried)
                self._show(case)
                yield case

    def _show(self, case: Mapping[str, Any]) -> None:
        table = table_of(
            f"{case['streams']} concurrent, temperature {case['temperature']:g}: regret "
            f"{case['regret']:.1%}, predicted speed off by {case['tokens_per_s_error']:.1%}",
            case["rows"],
            (
                ("strategy and options", lambda row: row["way"] + "*" * row["chosen"]),
                ("tries", lambda row: str(row["tries"])),
                ("tokens", lambda row: _both(row, "tokens_per_round")),
                ("rounds/s", lambda row: _both(row, "rounds_per_s")),
                ("tokens/s", lambda row: _both(row, "tokens_per_s")),
                ("same", lambda row: same(identical=row["identical"])),
            ),
            caption="*: chosen; expected/measured; tokens are per round",
        )
        self.console.print(table)


def _case(load: Load, expected: Sequence[Expectation], tried: Sequence[Tried]) -> dict[str, Any]:
    """Return the case of one load: the chosen way, the results of each way, and whether texts
    differ."""
    of_way = {each.acceptance.way: each for each in expected}
    chosen = expected[0].acceptance.way
    rows = [
        {
            "way": each.way.text,
            "chosen": each.way == chosen,
            "tries": 1 + len(each.finals),
            "expected_tokens_per_round": of_way[each.way].acceptance.tokens,
            "tokens_per_round": each.tokens_per_round,
            "expected_rounds_per_s": of_way[each.way].rounds_per_s,
            "rounds_per_s": each.rounds_per_s,
            "rounds_per_s_by_pass": [final.rounds_per_s for final in each.finals],
            "core_ms_by_pass": [dict(final.core_ms) for final in each.finals],
            "expected_tokens_per_s": of_way[each.way].tokens_per_s,
            "tokens_per_s": each.tokens_per_s,
            "identical": _identical(each, tried[0]),
        }
        for each in tried
    ]
    return {
        "streams": load.streams,
        "temperature": load.temperature,
        "chosen": chosen.text,
        "best": tried[0].way.text,
        "regret": regret(tried, chosen),
        **{f"{name}_error": median(_errors(rows, name)) for name in _COMPARED},
        "identical": all(row["identical"] for row in rows),
        "rows": rows,
    }


def _both(row: Mapping[str, Any], name: str) -> str:
    return f"{row[f'expected_{name}']:.3g}/{row[name]:.3g}"


def _identical(one: Tried, other: Tried) -> bool:
    """Return whether both gave the same texts in all loads that they share."""
    pairs = zip(one.all_tries, other.all_tries, strict=False)
    return all(mine.texts == others.texts for mine, others in pairs)


def _errors(rows: Sequence[Mapping[str, Any]], name: str) -> Iterator[float]:
    """Yield the relative error of each row's expected ``name``."""
    for row in rows:
        yield abs(row[f"expected_{name}"] / row[name] - 1)


if __name__ == "__main__":
    app(prog_name="specmesh bench profile")
