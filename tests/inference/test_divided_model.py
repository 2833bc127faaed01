"""A model whose forward is divided among two cores, against the same model undivided."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from tests.e2e.processes import Processes
from tests.inference.rounding import bound

from specmesh import models
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.drafter.__main__ import DrafterService, DrafterSettings
from specmesh.inference.backends.registry import backends
from specmesh.inference.engine.batch import Group
from specmesh.inference.model import Cancellation, DeviceLost, ModelNotLoadable
from specmesh.inference.models.tensor_parallel import Ranks
from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.inference.models.units.attention import divide_attention
from specmesh.inference.models.units.members.specs import parse_units
from specmesh.inference.models.units.model_crew import ModelCrew
from specmesh.inference.models.units.plans.planner import FixedPlan
from specmesh.serving.process.command_line import parse
from specmesh.verifier.__main__ import VerifierService, VerifierSettings

CORES = sorted(os.sched_getaffinity(0))[:2]
UNITS = ",".join(f"cpu:{core}" for core in CORES)
PLANS = [FixedPlan(shares) for shares in ((0.5, 0.5), (0.8, 0.2), (0.0, 1.0), (1.0, 0.0))]
NEVER = Cancellation()

pytestmark = [
    pytest.mark.skipif(len(CORES) == 1, reason="two units need two cores"),
    pytest.mark.cpu_only("forward passes divided among cores"),
]


class Changing(FixedPlan):
    """Divides each forward in another way."""

    def __init__(self):
        super().__init__((0.5, 0.5))
        self.seen = []

    def shares(self, work, size):
        share = (1 + len(self.seen) % 4) / 5
        return 1 - share, share

    def observe(self, taken_s, expected_s):
        self.seen.append(tuple(taken_s))
        return True


@contextlib.contextmanager
def divided(folder: Path | str) -> Iterator[TransformersModel]:
    model = TransformersModel.load(
        str(folder), dtype="float32", device="cpu", divide=partial(ModelCrew, parse_units(UNITS))
    )
    try:
        yield model
    finally:
        model.close()


@pytest.fixture(scope="class")  # while it is open, this thread is on one core
def target() -> Iterator[TransformersModel]:
    with divided(models.path(models.TARGET)) as model:
        yield model


@pytest.fixture(scope="class")
def undivided_target() -> TransformersModel:
    return TransformersModel.load(str(models.path(models.TARGET)), dtype="float32", device="cpu")


def random_tree(rng, size, vocab_size):
    tokens = rng.choice(vocab_size, size, replace=False)
    parents = [int(rng.integers(0, node + 1)) for node in range(size)]
    return TokenTree(tuple(map(int, tokens)), tuple(parents))


def assert_same(one, other, prefix, *steps):
    """Both say the same after ``prefix`` and the nodes of growing trees."""
    rows = []
    for model in (one, other):
        sequence = model.open(prefix, NEVER)
        rows.append(np.concatenate([sequence.score(tree) for tree in steps]))
        sequence.close(())
    assert_same_rows(other, *rows)


def assert_same_rows(model, one, other):
    """They differ by the rounding of both, of logits of ``model``."""
    apart = 2 * bound(model._model.config, other)
    np.testing.assert_allclose(one, other, rtol=0, atol=apart)


class TestShippedTarget:
    def test_random_trees_at_contexts_up_to_the_models_own(self, target, undivided_target):
        planned = target.divider.plan
        rng = np.random.default_rng(8)
        for turn, length in enumerate([1, 17, 300, 700, 990]):
            prefix = [int(token) for token in rng.integers(0, 4096, length)]
            for plan in (planned, PLANS[turn % 3]):
                target.divider.use(plan)
                tree = random_tree(rng, int(rng.integers(1, 33)), 4096)
                assert_same(target, undivided_target, prefix, tree)
        target.divider.use(planned)

    def test_sequences_in_scattered_blocks_and_several_at_once(self, target, undivided_target):
        target.divider.use(PLANS[0])
        rng = np.random.default_rng(6)
        prefixes = [[int(token) for token in rng.integers(0, 4096, 100)] for _ in range(3)]
        trees = [random_tree(rng, size, 4096) for size in (5, 5, 12)]
        rows = []
        for model in (target, undivided_target):
            held = [model.open(prefix, NEVER, 20) for prefix in prefixes]
            held[1].close(())  # leaves a hole
            grown = model.open([*prefixes[0], *range(300)], NEVER, 20)
            each = [*held[:1], grown, held[2]]
            each_rows = [sequence.score(tree) for sequence, tree in zip(each, trees, strict=True)]
            rows.append(np.concatenate(each_rows))
            for sequence in each:
                sequence.close(())
        assert_same_rows(undivided_target, *rows)

    def test_shares_change_between_forwards_and_no_weight_moves(self, target, undivided_target):
        plan = Changing()
        target.divider.use(plan)
        memory = target.divider.memory.size
        sequences = [model.open(list(range(64)), NEVER) for model in (target, undivided_target)]
        tree = EMPTY
        for forward in range(8):
            rows = [sequence.score(tree) for sequence in sequences]
            assert_same_rows(undivided_target, *rows)
            tree = tree.extend([forward], [forward // 2])
        assert target.divider.memory.size == memory
        assert len(plan.seen) == 8
        assert all(min(taken_s) > 0 for taken_s in plan.seen)

    def test_what_a_unit_alone_attended_to_outlives_its_next_job(self, target):
        target.divider.use(PLANS[2])
        kv = target.divider.memory.zeros([4, 16, 1, 64], torch.float32)
        kv.copy_(torch.rand(kv.shape))
        target.divider.share_kv(kv)
        group = Group(0, 1, np.array([10]), np.zeros((1, 1), np.int64), None)
        attention = divide_attention(SimpleNamespace(kv=kv), group, target.divider)
        query = torch.rand(1, 5, 1, 64)
        with torch.inference_mode():
            first = attention(0, query, 1.0)
            before = first.clone()
            attention(1, query, 1.0)
        torch.testing.assert_close(first, before, rtol=0, atol=0)


def check_by_every_plan(model, plain):
    rng = np.random.default_rng(4)
    for plan in PLANS:
        model.divider.use(plan)
        for length in (1, 40, 100):
            prefix = [int(token) for token in rng.integers(0, 60, length)]
            tree = random_tree(rng, 20, 60)
            first = TokenTree(tree.token_ids[:7], tree.parents[:7])
            assert_same(model, plain, prefix, EMPTY, first, tree)
            chain = TokenTree.chain(tree.token_ids)
            assert_same(model, plain, prefix, chain)


def test_weights_that_are_stored_the_other_way_round(folders, load):
    with divided(folders["gpt2"]) as model:
        check_by_every_plan(model, load("gpt2"))


def test_biases_of_query_key_and_value_and_then_a_unit_that_dies_is_a_lost_device(folders, load):
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    with divided(folders["qwen2"]) as model:
        worker = psutil.Process(model.divider.units[0].pid)
        assert worker.cpu_affinity() == [CORES[1]]
        assert os.sched_getaffinity(0) == {CORES[0]}
        check_by_every_plan(model, load("qwen2"))
        model.divider.use(PLANS[0])
        sequence = model.open([1, 2, 3], NEVER)
        worker.kill()
        with pytest.raises(DeviceLost, match=f"unit cpu:{CORES[1]} has ended, with status -9"):
            sequence.score(EMPTY)
    # The thread gets its cores back.
    assert os.sched_getaffinity(0) == cores
    assert torch.get_num_threads() == threads


def test_units_of_a_verifier_end_with_it_even_if_it_is_killed(folders):
    with Processes() as processes:
        options = ("--model", str(folders["llama"]), "--cache-bytes", str(1 << 20))
        verifier = processes.service("verifier", *options, "--backend", "units", "--units", UNITS)
        assert verifier.address
        children = psutil.Process(verifier.pid).children(recursive=True)
        assert any(child.cpu_affinity() == [CORES[1]] for child in children)
        verifier.kill()
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive


@pytest.mark.parametrize("backend", ["transformers", "simulated"])
@pytest.mark.parametrize(
    ("settings", "service"),
    [(VerifierSettings, VerifierService), (DrafterSettings, DrafterService)],
)
def test_other_backends_refuse_units(settings, service, backend):
    with pytest.raises(ModelNotLoadable, match="--units is only for --backend units"):
        service(settings(backend=backend, model="m", units=UNITS)).load()


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ({"device": "cuda"}, r"--units: the model must be on the CPU, but --device is 'cuda'"),
        (
            {"heads": "folder"},
            "--heads: backend 'units' does not use it: their layers are not divided",
        ),
    ],
)
def test_what_does_not_go_together_with_units_is_refused(setting, problem):
    settings = VerifierSettings(backend="units", model="m", units=UNITS, **setting)
    with pytest.raises(ModelNotLoadable, match=problem):
        VerifierService(settings).load()


def test_a_model_that_ranks_divide_has_no_units():
    settings = VerifierSettings(backend="units", model="m", units=UNITS)
    with pytest.raises(ModelNotLoadable, match="'units' divides no target among 2 ranks"):
        VerifierService(settings, Ranks(0, 2)).load()


def test_the_threads_of_a_forward_are_those_of_the_first_unit():
    threads = backends()["units"].threads
    assert threads(VerifierSettings(backend="units", model="m", units="cpu:0-2,cpu:3")) == 3


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--units", "cpu:0"], "--units (SPECMESH_VERIFIER__UNITS): names one unit"),
        (["--backend", "units"], "--units (SPECMESH_VERIFIER__UNITS): must name processing units"),
        (
            ["--backend", "units", "--model", "m", "--units", UNITS, "--threads", "2"],
            "--threads cannot be set with --units",
        ),
    ],
)
def test_wrong_options_are_named(options, problem, capsys):
    with pytest.raises(SystemExit):
        parse(VerifierSettings, options, "specmesh serve verifier")
    assert problem in capsys.readouterr().err
