"""``specmesh bench engine`` on a tiny model, and what its figures mean."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool

import pytest
from transformers import LlamaConfig

from specmesh.bench.engine.agreement import compare, compare_all
from specmesh.bench.engine.figures import Figures, TimedAnswer, speedup, wall_s
from specmesh.bench.engine.plan import EnginePlan
from specmesh.tools.kit.processes import processes

SCRIPT = "from specmesh.cli.main import main; main()"
TIMES = {"tokens_per_s", "ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms"}


@pytest.fixture(scope="module")
def roomy_model(save_tiny, tmp_path_factory):
    """Like the tiny Llama, but with room for the prompts."""
    folder = tmp_path_factory.mktemp("roomy")
    config = LlamaConfig(
        vocab_size=60,
        bos_token_id=0,
        eos_token_id=0,
        initializer_range=0.3,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )
    save_tiny(folder, config)
    return folder


def test_the_engine_is_timed_beside_generate_and_says_the_same(roomy_model):
    """As everybody starts it."""
    done = subprocess.run(
        [
            *(sys.executable, "-c", SCRIPT, "bench", "engine", "--model", str(roomy_model)),
            *("--json", "--streams", "3", "--rounds", "2"),
            *("--tokens", "4", "--threads", "1", "--seed", "5"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for runs in (found["streams"], found["baseline"]):
        assert list(runs) == ["1", "3"]
        for figures in runs.values():
            assert set(figures) == TIMES
            assert figures["tokens_per_s"] > 0
            assert 0 < figures["ttft_p50_ms"] <= figures["ttft_p99_ms"]
            assert 0 < figures["itl_p50_ms"] <= figures["itl_p99_ms"]
    speeds = {n: figures["tokens_per_s"] for n, figures in found["streams"].items()}
    assert found["speedup_over_one_stream"]["3"] == pytest.approx(speeds["3"] / speeds["1"])
    assert min(found["over_baseline"].values()) > 0
    assert list(found["width_ms"]) == ["1", "2", "4", "8", "16", "32", "64"]
    assert min(found["width_ms"].values()) > 0
    assert min(found["peak_memory_mb"][program] for program in ("ours", "baseline")) > 0
    assert found["identical"] is True
    assert found["flips"]["ours 1, generate 1"] == {"answers": 8, "differ": 0, "nats": []}
    assert found["flips"]["ours 3, ours 1"]["differ"] == 0
    assert found["shared_prefix"]["sessions"] == 16
    assert found["shared_prefix"]["hit_rate"] == 1


def test_a_model_without_room_for_the_prompts_is_refused_in_one_line(bench, folders):
    done = bench("engine", "--model", str(folders["llama"]))
    assert done.exit_code == 2
    assert "has a context of 128 tokens" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupted_process_ends_without_a_word(capfd):
    with processes(1) as process:
        os.kill(process.submit(os.getpid).result(), signal.SIGINT)
        with pytest.raises(BrokenProcessPool):
            process.submit(time.sleep, 60).result()
    assert not capfd.readouterr().err


def test_figures_of_two_streams():
    answers = [
        TimedAnswer(token_ids=(1, 2, 3), asked_s=10.0, token_s=(10.1, 10.2, 10.4)),
        TimedAnswer(token_ids=(4, 5, 6), asked_s=10.0, token_s=(10.3, 10.4, 10.5)),
    ]
    assert wall_s(answers) == pytest.approx(0.5)
    figures = Figures.of([answers])
    assert figures.tokens_per_s == pytest.approx(6 / 0.5)
    assert figures.ttft_p50_ms == pytest.approx(200)
    assert figures.ttft_p99_ms == pytest.approx(298)
    assert figures.itl_p50_ms == pytest.approx(100)
    assert figures.itl_p99_ms == pytest.approx(197)


def test_time_between_turns_is_the_other_programs():
    turns = [[TimedAnswer((1, 2), start, (start + 0.1, start + 0.5))] for start in (0.0, 100.0)]
    assert Figures.of(turns).tokens_per_s == pytest.approx(4 / 1.0)


def test_one_stream_hands_over_after_every_answer_and_more_when_all_are_done():
    plan = EnginePlan("tiny", "float32", "cpu", 1, streams=(1, 3), num_tokens=4, rounds=1, seed=0)
    assert plan.turns(1) == [slice(first, first + 1) for first in range(8)]
    assert plan.turns(3) == [slice(0, 8)]


def answer(*token_ids):
    return TimedAnswer(token_ids, 0.0, tuple(float(i) for i in range(len(token_ids))))


def test_a_flip_is_the_first_token_that_differs():
    comparison = compare([answer(1, 2, 3), answer(4, 5, 6)], [answer(1, 2, 3), answer(4, 7, 8)])
    assert comparison.num_answers == 2
    (flip,) = comparison.flips
    assert (flip.prompt, flip.position, flip.token_ids) == (1, 1, (5, 7))
    assert flip.before == (4,)


def test_answers_of_which_the_other_has_none_are_not_compared():
    assert compare([answer(1, 2)], [answer(1, 2), answer(3, 4)]).num_answers == 1


def test_every_number_of_streams_is_compared_with_every_smaller_one():
    runs = {n: [answer(1, 2)] for n in (1, 8, 32)}
    assert list(compare_all(ours=runs, baseline={1: runs[1], 8: runs[8]})) == [
        "ours 1, generate 1",
        "ours 8, ours 1",
        "ours 32, ours 1",
        "ours 32, ours 8",
        "generate 8, generate 1",
    ]


def test_speedup_is_the_median_over_turns_that_ran_side_by_side():
    def turns(*seconds):
        return [[TimedAnswer((1, 2), 0.0, (each / 2, each))] for each in seconds]

    # A slow moment of the machine slows both.
    assert speedup(turns(1.0, 10.0, 2.0), turns(2.0, 15.0, 2.0)) == pytest.approx(1.5)


def test_random_weights_are_timed_against_the_memory(bench):
    done = bench("engine", "--random", "tiny", "--tokens", "4", "--streams", "2", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found["token_ms"]) == ["1", "2"]
    assert found["device_ms"] == {}  # only a GPU has captured passes
    one = found["token_ms"]["1"]
    assert found["floor_ms"] == pytest.approx(
        found["weight_bytes"] / found["copy_bytes_per_s"] * 1e3
    )
    assert found["share_of_floor"] == pytest.approx(found["floor_ms"] / one)
    assert found["over_generate"] == pytest.approx(found["generate_ms"] / one)
    assert list(found["width_ms"]) == ["1", "2", "4", "8", "16", "32", "64"]
    shown = bench("engine", "--random", "tiny", "--tokens", "4", "--streams", "2")
    assert "tiny with random weights, float32 on cpu" in shown.stdout


def test_models_beside_one_another_are_timed_alone_and_together(bench):
    done = bench("engine", "--random", "tiny", "--beside", "tiny", "--json")
    assert done.exit_code == 0, done.stderr
    both = json.loads(done.stdout)["beside"]
    assert [each["shape"] for each in both] == ["tiny", "tiny"]
    assert all(each["alone_ms"] > 0 and each["together_ms"] > 0 for each in both)


@pytest.mark.parametrize(
    "wrong",
    [
        ("--beside", "tiny"),
        ("--random", "tiny", "--model", "folder"),
        ("--random", "tiny", "--backend", "vllm"),
        ("--random", "tiny", "--device", "nowhere"),
        ("--random", "tiny", "--beside", "tiny", "--device", "nowhere"),
    ],
)
def test_what_cannot_be_measured_with_random_weights_is_refused(bench, wrong):
    done = bench("engine", *wrong)
    assert done.exit_code == 2
    assert "Traceback" not in done.stderr
