"""The mesh beside vLLM: what is compared, what is told, and where there is no vLLM."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

from specmesh.bench.peer.plan import PROMPT_TOKENS, PeerPlan
from specmesh.bench.peer.report import as_json, tables
from specmesh.bench.peer.rounds import VLLM, PeerCell, measure_cell
from specmesh.bench.peer.vllm_alone import TimedAnswers
from specmesh.inference.model import ModelNotLoadable
from specmesh.models import DRAFTER, TARGET, path

PLAN = PeerPlan(
    target=str(path(TARGET)),
    drafters=(),
    backend="transformers",
    strategies=("autoregressive", "auto"),
    temperatures=(0.0, 0.8),
    streams=(1, 32),
    num_tokens=16,
    rounds=3,
    threads=2,
    mesh_threads=1,
)
CELL = PeerCell(
    0.0, 8, (100.0, 200.0, 50.0), {"autoregressive": (50, 110, 20), "auto": (90, 210, 60)}, 1, 0
)


def test_each_stream_has_a_prompt_of_its_own():
    prompts = PLAN.prompts()
    assert {len(each) for each in prompts} == {PROMPT_TOKENS}
    assert len(set(map(tuple, prompts))) == 32


async def test_all_sides_take_turns_and_the_first_round_does_not_count():
    asked = []

    def side(name, seconds):
        async def answer(streams, temperature):
            asked.append(name)
            return TimedAnswers([[1, 2]] * streams, seconds if len(asked) > 3 else 100.0)

        return answer

    sides = {VLLM: side(VLLM, 1.0), "autoregressive": side("own", 2.0), "auto": side("auto", 0.5)}
    cell = await measure_cell(sides, 2, 0.0, 4, lambda: None)
    assert [asked[n] for n in (0, 3, 6)] == [VLLM, "own", "auto"]
    assert len(asked) == 9
    assert cell.vllm == [8.0, 8.0]
    assert (cell.ratio("autoregressive"), cell.ratio("auto")) == (0.5, 2.0)
    assert cell.num_different == 0


async def test_texts_are_compared_only_where_they_must_be_the_same():
    def side(token):
        async def answer(streams, _):
            return TimedAnswers([[token]] * streams, 1.0)

        return answer

    sides = {VLLM: side(1), "autoregressive": side(2)}
    assert (await measure_cell(sides, 1, 0.0, 4, lambda: None)).num_different == 4
    assert (await measure_cell(sides, 1, 0.8, 4, lambda: None)).num_different is None


def test_ratios_are_those_of_rounds_and_not_of_medians():
    told = as_json(PLAN, [CELL])
    (cell,) = json.loads(json.dumps(told))["cells"]
    assert cell["vllm_tokens_per_s"] == 100
    assert cell["strategies"]["autoregressive"] == {"tokens_per_s": 50, "ratio": 0.5}
    assert cell["strategies"]["auto"]["ratio"] == pytest.approx(1.05)
    console = Console(width=80, record=True)
    for table in tables(PLAN, [CELL]):
        console.print(table)
    text = console.export_text()
    assert "90, 1.05 x" in text
    assert "1 of 8 texts differ" in text


def test_where_there_is_no_vllm_it_says_how_to_get_it(bench):
    done = bench("vllm")
    assert done.exit_code == 2
    assert "make setup-vllm" in done.stderr


def test_a_model_without_a_tokenizer_is_named():
    with pytest.raises(ModelNotLoadable, match="tokenizer of /nowhere"):
        replace(PLAN, target="/nowhere").prompts()


def test_longer_answers_than_the_context_has_room_for_are_refused_with_the_most():
    most = 1024 - PROMPT_TOKENS - 1
    plan = replace(PLAN, target=str(path(TARGET)), num_tokens=most)
    plan.check_context()
    with pytest.raises(ModelNotLoadable, match=rf"^--tokens is at most {most} with "):
        replace(plan, num_tokens=most + 1).check_context()


def test_a_strategy_that_the_models_cannot_run_is_refused(bench):
    for wrong in (
        ("filter",),
        ("heads", "--backend", "transformers", "--target", str(path(DRAFTER))),
    ):
        done = bench("vllm", "--strategy", *wrong)
        assert done.exit_code == 2
        assert "is not one of" in done.stderr
