"""The benchmark of large vocabularies: small ones through the real processes, and its ratios."""

import json

import pytest
from typer.testing import CliRunner

from specmesh.bench.vocabulary.__main__ import app
from specmesh.bench.vocabulary.meshes import MeshRound, MeshTurn, summarise

SIZES = ("--small", "300", "--large", "9000", "--context", "700")
LOAD = ("--tokens", "20", "--rounds", "1", "--threads", "1")


def rounds(*figures, text=(1,)):
    return [
        MeshRound(MeshTurn(plain, plain_ms, [(1,)]), MeshTurn(speculative, ms, [text]))
        for plain, plain_ms, speculative, ms in figures
    ]


def test_ratios_are_medians_of_the_rounds_of_the_largest_over_those_of_the_smallest():
    small = rounds((100, 1.0, 300, 0.5), (100, 1.0, 400, 0.5), (50, 1.0, 200, 0.5))
    large = rounds((100, 1.5, 270, 0.6), (100, 1.5, 400, 0.6), (50, 1.5, 100, 0.6))
    found = summarise(8, {4096: small, 8192: rounds((1, 1, 1, 1)) * 3, 151_936: large})
    assert found.speedup_ratio == pytest.approx(0.9)
    assert found.plain_verifier_ms_ratio == pytest.approx(1.5)
    assert found.verifier_ms_ratio == pytest.approx(1.2)
    assert [each.entries for each in found.meshes] == [4096, 8192, 151_936]
    assert found.meshes[0].speedup == 4
    assert found.identical


def test_a_text_that_speculation_changes_is_noticed():
    found = summarise(1, {64: rounds((1, 1, 1, 1)), 128: rounds((1, 1, 1, 1), text=(2,))})
    assert not found.identical


def test_meshes_of_both_vocabularies_and_a_long_prompt_are_measured(bench, no_process_left):
    parts = ("--part", "meshes", "--part", "context")
    done = bench("vocabulary", *parts, *SIZES, *LOAD, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [each["streams"] for each in found["meshes"]] == [1, 8]
    for each in found["meshes"]:
        assert each["identical"]
        assert [mesh["entries"] for mesh in each["meshes"]] == [300, 9000]
        assert each["speedup_ratio"] > 0
    (context,) = found["context"]
    assert context["prompt_tokens"] == 700
    assert context["entries"] == 300
    assert 0 < context["start_ms"] < context["first_token_ms"]
    assert {"client", "orchestrator", "verifier-0", "drafter"} <= set(context["memory_mb"])
    assert not found["engines"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("--part meshes --small 300 --large 300", "must be less than --large, 300"),
        ("--part context --tokens 9", "must be more than 9"),
    ],
)
def test_sizes_that_leave_nothing_to_compare_are_refused_before_a_mesh_starts(arguments, why):
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments.split())
    assert done.exit_code == 2
    assert why in done.stderr


def test_a_random_model_is_measured_in_our_engine(bench):
    done = bench("vocabulary", "--part", "engines", *SIZES, *LOAD)
    assert done.exit_code == 0, done.output
    assert "transformers" in done.stdout
