"""``specmesh bench profile`` or ``python -m specmesh.bench.profile.check``: is a profile right?

Two things are checked: how far predicted forwards are from measured ones in settings that the
prediction was not fitted to, and how much slower the strategy chosen by the profile is than the
best of all that it chose from, each tried over the mesh with prompts that the profile did not see.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Annotated, Any

import typer

from specmesh.bench.calibrate.pair import prompts_in_halves
from specmesh.bench.kit.bench import Bench, Surroundings, conduct
from specmesh.bench.kit.experiment import SEED, TEMPERATURES
from specmesh.bench.kit.options import Json, Seed, Temperatures, Tokens
from specmesh.bench.kit.tables import make_table, same
from specmesh.bench.profile.choose import Expectation, expectations
from specmesh.bench.profile.file import Profile
from specmesh.bench.profile.replicas import connected_in
from specmesh.bench.profile.report import show
from specmesh.bench.profile.run import CONTEXT, NUM_PROMPTS, NUM_TOKENS, Plan, measure
from specmesh.bench.profile.tries import Load, Tried, regret, try_all
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.up import DrafterModels, HeadsFolder, TargetModel, Threads, real_models
from specmesh.client import AsyncClient

STREAMS = (1, 8)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True, slots=True)
class Check:
    """What to try."""

    plan: Plan
    streams: Sequence[int]
    prompts: Sequence[str]
    """Other ones than the profile's."""
    num_tokens: int
    passes: int


@app.command()
def main(
    target: TargetModel = None,
    drafter: DrafterModels = None,
    heads: HeadsFolder = None,
    seconds: Annotated[float, typer.Option(min=1, help="For the profile.")] = 60.0,
    streams: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Several times for several.", show_default="1 and 8"),
    ] = None,
    prompts: Annotated[int, typer.Option(min=1, help="To try; others are for the profile.")] = 8,
    tokens: Tokens = 40,
    passes: Annotated[int, typer.Option(min=1, help="Of the fastest.")] = 3,
    temperature: Temperatures = None,
    seed: Seed = SEED,
    threads: Threads = 1,
    json_: Json = False,
) -> None:
    """Profile a mesh, choose by the profile, and try all that it chose from.

    Exits with 1 if texts differ.
    """
    if prompts < max(streams or STREAMS):
        raise typer.BadParameter("fewer than are answered at once", param_hint="--prompts")
    own, others = prompts_in_halves(2 * max(prompts, NUM_PROMPTS))
    temperatures = tuple(dict.fromkeys(temperature or TEMPERATURES))
    check = Check(
        plan=Plan(own, temperatures, NUM_TOKENS, seconds, seed),
        streams=tuple(dict.fromkeys(streams or STREAMS)),
        prompts=others[:prompts],
        num_tokens=tokens,
        passes=passes,
    )

    def make(surroundings: Surroundings) -> ProfileBench:
        models = real_models(target, drafter, threads, heads=heads)
        options = MeshOptions(models=models, threads=threads, drain_s=1.0)
        return ProfileBench(check, options, surroundings)

    conduct(make, as_json=json_)


class ProfileBench(Bench):
    """One run of the benchmark."""

    def __init__(self, check: Check, options: MeshOptions, surroundings: Surroundings) -> None:
        super().__init__(options, surroundings)
        self._check = check

    async def run(self) -> tuple[int, Mapping[str, Any]]:
        """Profile, choose and try; return the exit status and what was found."""
        check = self._check
        async with self.mesh.running() as client:
            async with connected_in(self.mesh.addresses) as replicas:
                profile = await measure(replicas, client, check.plan, self.say)
            show(profile, self.console)
            cases = [each async for each in self._cases(client, profile)]
        identical = all(case["identical"] for case in cases)
        return 0 if identical else ExitStatus.FAILED, {
            "errors": {role: asdict(each) for role, each in profile.accuracy.items()},
            "median_error": median(each.median for each in profile.accuracy.values()),
            "worst_regret": max(case["regret"] for case in cases),
            "identical": identical,
            "profile_s": profile.seconds,
            "machine": dict(profile.machine),
            "cases": cases,
        }

    async def _cases(self, client: AsyncClient, profile: Profile) -> AsyncIterator[dict[str, Any]]:
        check = self._check
        for temperature in check.plan.temperatures:
            for streams in check.streams:
                expected = expectations(
                    profile.acceptance,
                    profile.costs,
                    streams=streams,
                    temperature=temperature,
                    context=CONTEXT,
                )
                load = Load(check.prompts, streams, temperature, check.num_tokens, check.plan.seed)
                ways = [each.acceptance.way for each in expected]
                tried = await try_all(client, load, ways, ways[0], check.passes)
                case = _case(load, expected, tried)
                self._show(case)
                yield case

    def _show(self, case: Mapping[str, Any]) -> None:
        table = make_table(
            f"{case['streams']} at a time, temperature {case['temperature']:g}: regret "
            f"{case['regret']:.1%}, predicted speed off by {case['speed_error']:.1%}",
            *("strategy and options", "tries", "expected", "tokens/s", "same"),
            no_wrap=True,
        )
        for row in case["rows"]:
            chosen = " (chosen)" if row["chosen"] else ""
            table.add_row(
                row["way"] + chosen,
                str(row["tries"]),
                f"{row['expected_tokens_per_s']:.1f}",
                f"{row['tokens_per_s']:.1f}",
                same(identical=row["identical"]),
            )
        self.console.print(table)


def _case(load: Load, expected: Sequence[Expectation], tried: Sequence[Tried]) -> dict[str, Any]:
    """One load: what was chosen, what each way of decoding yielded, and whether texts differ."""
    speeds = {each.acceptance.way: each.tokens_per_s for each in expected}
    chosen = expected[0].acceptance.way
    text = tried[0].tries[0].texts
    rows = [
        {
            "way": each.way.text,
            "chosen": each.way == chosen,
            "tries": len(each.tries),
            "expected_tokens_per_s": speeds[each.way],
            "tokens_per_s": each.tokens_per_s,
            "identical": all(one.texts == text for one in each.tries),
        }
        for each in tried
    ]
    return {
        "streams": load.streams,
        "temperature": load.temperature,
        "chosen": chosen.text,
        "best": tried[0].way.text,
        "regret": regret(tried, chosen),
        "speed_error": median(_speed_errors(rows)),
        "identical": all(row["identical"] for row in rows),
        "rows": rows,
    }


def _speed_errors(rows: Sequence[Mapping[str, Any]]) -> Iterator[float]:
    for row in rows:
        yield abs(row["expected_tokens_per_s"] / row["tokens_per_s"] - 1)


if __name__ == "__main__":
    app(prog_name="specmesh bench profile")
