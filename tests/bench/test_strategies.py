"""What is concluded from the runs of several strategies."""

from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from specmesh.client import FinishReason, GenerationResult, GenerationStats
from specmesh.tools.demo.comparison import compare
from specmesh.tools.demo.comparison_report import (
    comparison_json,
    comparison_table,
    describe_difference,
    describe_speedup,
    run_and_show,
)
from specmesh.tools.demo.repeats import NUM_TOKENS
from specmesh.tools.kit.experiment import (
    AUTOREGRESSIVE,
    DSI,
    SPECULATIVE,
    Experiment,
    Run,
    Speculation,
)

BOTH = (AUTOREGRESSIVE, SPECULATIVE)


def run(prompt, strategy, seconds, token_ids=(1, 2, 3, 4), num_accepted=0, temperature=0.0):
    verified = 0 if strategy == AUTOREGRESSIVE else 6
    stats = GenerationStats(
        num_prompt_tokens=2,
        num_output_tokens=len(token_ids),
        num_verify_calls=4 - num_accepted,
        num_verified_tokens=verified,
        num_accepted_tokens=num_accepted,
        num_wasted_tokens=verified + 2 - num_accepted if verified else 0,
        time_to_first_token_ms=1.0,
        duration_ms=1.0,
        num_drafted_tokens=verified + 2 if verified else 0,
        num_target_tokens=verified + 4 - num_accepted,
    )
    result = GenerationResult(
        "", token_ids, FinishReason.LENGTH, stats, "s", 1, "toy", strategy, 7, True, 0
    )
    return Run(prompt, Speculation(strategy), temperature, result, seconds)


def test_ratio_is_the_median_of_the_prompts_own_ratios():
    """One prompt that met a slow moment of the machine moves a mean, not the median."""
    seconds = {
        AUTOREGRESSIVE: (4.0, 40.0, 3.0),
        SPECULATIVE: (2.0, 1.0, 2.0),
        DSI: (1.0, 10.0, 2.0),
    }
    runs = [run(n, name, s) for name, each in seconds.items() for n, s in enumerate(each)]
    of = compare(runs, tuple(seconds), 0.0).strategies
    assert list(of) == [AUTOREGRESSIVE, SPECULATIVE, DSI]
    assert [figures.ratio for figures in of.values()] == [1, 2, 4]
    assert [figures.tokens_per_s for figures in of.values()] == [1, 2, 2]


def test_compute_is_counted_over_all_prompts():
    runs = [
        run(0, AUTOREGRESSIVE, 1),
        run(0, SPECULATIVE, 1, num_accepted=3),
        run(1, AUTOREGRESSIVE, 1),
        run(1, SPECULATIVE, 1, num_accepted=0),
    ]
    of = compare(runs, BOTH, 0.0).strategies
    plain, speculative = of[AUTOREGRESSIVE], of[SPECULATIVE]
    assert (plain.acceptance, plain.tokens_per_verify) == (None, 1)
    assert (plain.num_drafted_tokens, plain.num_target_tokens) == (0, 8)
    assert speculative.acceptance == 0.25
    assert speculative.num_verify_calls == 5
    assert speculative.tokens_per_verify == pytest.approx(8 / 5)
    assert speculative.num_drafted_tokens == 16
    assert speculative.num_verified_tokens == 12
    assert speculative.num_wasted_tokens == 13
    assert speculative.num_target_tokens == 17


def test_prompts_with_different_tokens_are_found_at_their_temperature():
    runs = [
        run(0, AUTOREGRESSIVE, 1),
        run(0, SPECULATIVE, 1),
        run(0, AUTOREGRESSIVE, 1, temperature=0.8),
        run(0, SPECULATIVE, 1, token_ids=(1, 2, 3, 5), temperature=0.8),
    ]
    assert compare(runs, BOTH, 0.0).identical
    warm = compare(runs, BOTH, 0.8)
    assert warm.strategies[SPECULATIVE].differing_prompts == (0,)
    assert not warm.identical
    assert describe_difference(warm).endswith("0.8 with speculative: prompt 1")


def test_machines_are_told_by_name_what_each_strategy_took():
    told = comparison_json(compare([run(0, AUTOREGRESSIVE, 1)], [AUTOREGRESSIVE], 0.0))
    figures = told["strategies"][AUTOREGRESSIVE]
    assert (figures["ratio"], figures["acceptance"], figures["identical"]) == (1, None, True)
    assert (figures["tokens_per_s"], figures["wasted_tokens"]) == (4, 0)
    assert (figures["drafted_tokens"], figures["verified_tokens"]) == (0, 0)


def two_temperatures():
    """At temperature 0 the target says all that it says a second time."""
    once = tuple(range(NUM_TOKENS))
    runs = [
        run(0, AUTOREGRESSIVE, 2, once + once),
        run(0, SPECULATIVE, 1, once),
        run(0, AUTOREGRESSIVE, 2, once, temperature=0.8),
        run(0, SPECULATIVE, 1, once + once, temperature=0.8),
    ]
    return [compare(runs, BOTH, temperature) for temperature in (0.0, 0.8)]


def test_each_temperature_is_told_with_the_share_that_repeats_of_the_targets_own_text():
    comparisons = two_temperatures()
    assert [each.repeated_share for each in comparisons] == [0.5, 0]
    assert [comparison_json(each)["repeated_share"] for each in comparisons] == [0.5, 0]
    assert [str(comparison_table(each).title).strip() for each in comparisons] == [
        "Temperature 0: 50% of the target's own tokens repeat",
        "Temperature 0.8: 0% of the target's own tokens repeat",
    ]


def test_speedups_are_told_by_temperature():
    greedy, warm = map(describe_speedup, two_temperatures())
    assert greedy == (
        "Speedup at temperature 0: 1.00 speculative, and nothing faster than the target alone"
    )
    assert warm == "Speedup at temperature 0.8: 4.00 speculative, at best 4.00 speculative"


class CountingClient:
    """Answers nothing; keeps which strategies were asked for, in order."""

    def __init__(self):
        self.strategies = []

    def generate(self, prompt, *, strategy, max_tokens, **options):
        if max_tokens == 64:
            self.strategies.append(strategy)
        return self

    def __await__(self):
        yield from ()
        return self.result

    result = run(0, AUTOREGRESSIVE, 1).result


async def test_every_strategy_takes_its_turn_in_going_first():
    experiment = Experiment(
        prompts=("a", "b", "c"),
        speculations=[Speculation(AUTOREGRESSIVE), Speculation(SPECULATIVE), Speculation(DSI)],
        temperatures=(0.0,),
        num_tokens=64,
    )
    client = CountingClient()
    runs = [each async for each in experiment.measure(client)]
    assert len(runs) == experiment.num_runs == 9
    assert client.strategies[::3] == [AUTOREGRESSIVE, SPECULATIVE, DSI]
    assert all(client.strategies.count(name) == 3 for name in client.strategies)


async def shown(monkeypatch, seconds):
    """The output of a comparison whose answers take so many seconds, in turn."""
    readings = [reading for each in seconds for reading in (0.0, each)]
    clock = SimpleNamespace(perf_counter=iter(readings).__next__)
    monkeypatch.setattr("specmesh.tools.kit.experiment.time", clock)
    experiment = Experiment(
        prompts=("a",),
        speculations=[Speculation(AUTOREGRESSIVE), Speculation(SPECULATIVE)],
        num_tokens=64,
    )
    out = StringIO()
    client = CountingClient()
    await run_and_show(experiment, client, Console(file=out, width=80))
    assert client.strategies == [AUTOREGRESSIVE, *BOTH, AUTOREGRESSIVE] * 2
    return [line.rstrip() for line in out.getvalue().splitlines()]


async def test_tables_and_what_their_words_mean_fit_a_terminal_of_80_columns(monkeypatch):
    lines = await shown(monkeypatch, [1, 1, 1, 1.15] * 2)
    assert max(map(len, lines)) <= 80
    assert lines[-2] == (
        "its answer. Small models loop at temperature 0, and loops are easy to draft."
    )


@pytest.mark.parametrize("seconds", [[0.1, 1, 1, 0.4] * 2, [0.1] * 4 + [0.4] * 4])
async def test_ratios_from_a_busy_machine_are_said_to_mean_little(monkeypatch, seconds):
    """The target alone varied within a temperature, or from one to the other."""
    told = " ".join(await shown(monkeypatch, seconds))
    assert told.endswith(
        "The machine was busy: the target alone varied between 10 and 40 tokens/s, so these ratios "
        "mean little. Run it again on an idle machine."
    )
