"""The shipped pair says on a GPU what it says on a CPU."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pytest
import torch
from tests.conformance.cases import rows_of, say
from tests.devices import device
from tests.gpu.shipped import SAMPLINGS, held, load, prompts
from tests.inference.rounding import bound

from specmesh import models
from specmesh.decoding.noise import Purpose, gumbel
from specmesh.decoding.sampling import Sampling, choose
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.engine.heads.target_with_heads import TargetWithHeads
from specmesh.inference.model import Cancellation, LanguageModel
from specmesh.inference.models.heads.serving import serve_heads

pytestmark = pytest.mark.gpu

ANSWER_TOKENS = 48
MOST_FLIPS = 0.1
MOST_NATS = 1.0
"""Bounds on what rounding to bfloat16 may change, far above what it does: a fault shows."""

LEVELS = [EMPTY, TokenTree((5, 6), (0, 0)), TokenTree((5, 6, 7, 8), (0, 0, 1, 2))]
"""A draft as it grows."""

NAMES = pytest.mark.parametrize("name", [models.TARGET, models.DRAFTER])
KINDS = pytest.mark.parametrize("kind", SAMPLINGS)


@cache
def own_texts(name: str, kind: str) -> list[tuple[int, ...]]:
    """Return the texts of the model on the CPU, in float32, one for each prompt."""
    return say(held(name, "cpu"), asked(name, kind))


def asked(name: str, kind: str):
    return [(prompt, ANSWER_TOKENS - 1, SAMPLINGS[kind]) for prompt in prompts(held(name, "cpu"))]


def rows_along(model: LanguageModel, name: str, kind: str) -> list[np.ndarray]:
    """The logits ``[tokens, vocab]`` from which each token of the texts was chosen on the CPU."""
    return [
        rows_of(model, prompt, TokenTree.chain(text[:-1]))
        for (prompt, _, _), text in zip(asked(name, kind), own_texts(name, kind), strict=True)
    ]


def scores(row: np.ndarray, sampling: Sampling, position: int) -> np.ndarray:
    """Return the scores in nats; the token with the highest is chosen."""
    if not sampling.temperature:
        return row.astype(np.float64)
    noise = gumbel(sampling.seed, position, Purpose.COUPLED, np.arange(row.size))
    return row / np.float64(np.float32(sampling.temperature)) + noise


def flips(model: LanguageModel, name: str, kind: str) -> tuple[int, list[float]]:
    """The number of tokens of the texts, and for each that ``model`` would choose another for, by
    how many nats the CPU prefers its own."""
    sampling, total, margins = SAMPLINGS[kind], 0, []
    exact, found = rows_along(held(name, "cpu"), name, kind), rows_along(model, name, kind)
    for (prompt, _, _), theirs, ours in zip(asked(name, kind), exact, found, strict=True):
        for position, (their, our) in enumerate(zip(theirs, ours, strict=True), len(prompt)):
            total += 1
            wanted, got = (choose(row, sampling, position) for row in (their, our))
            if wanted != got:
                nats = scores(their, sampling, position)
                margins.append(float(nats[wanted] - nats[got]))
    return total, margins


def told(total: int, margins: list[float]) -> str:
    most = f", by {max(margins):.4f} nats at most" if margins else ""
    return f"{len(margins)} of {total} tokens are others{most}"


def test_float32_is_not_rounded_to_less():
    assert torch.get_float32_matmul_precision() == "highest"


@NAMES
@KINDS
def test_text_in_float32_is_that_of_the_cpu(name, kind, tell):
    there = held(name, device())
    assert there.description.weights_digest == held(name, "cpu").description.weights_digest
    tell(f"{name}, float32, {kind}: {told(*flips(there, name, kind))}")
    assert say(there, asked(name, kind)) == own_texts(name, kind)


@NAMES
def test_logits_in_float32_differ_by_rounding_alone(name, tell):
    config = held(name, "cpu")._model.config
    exact = np.concatenate(rows_along(held(name, "cpu"), name, "greedy"))
    found = np.concatenate(rows_along(held(name, device()), name, "greedy"))
    differ, allowed = float(np.abs(found - exact).max()), 2 * bound(config, exact)
    tell(f"{name}, float32: logits differ by {differ:.2e} at most, {allowed:.2e} are allowed")
    assert differ <= allowed


@NAMES
@KINDS
def test_bfloat16_chooses_other_tokens_only_where_it_is_close(name, kind, tell):
    for where in ("cpu", device()):
        total, margins = flips(held(name, where, "bfloat16"), name, kind)
        tell(f"{name}, bfloat16, {kind}, on {where}: {told(total, margins)}")
        assert len(margins) < MOST_FLIPS * total
        assert max(margins, default=0) < MOST_NATS


def test_shipped_heads_guess_what_they_guess_on_the_cpu(tell):
    """All that they say of a draft: −inf for tokens that they never guess."""
    heads = models.heads()
    if heads is None:
        pytest.skip("no heads are shipped")
    *_, prompt = prompts(held(models.TARGET, "cpu"))
    found = []
    for where in ("cpu", device()):
        model = load(models.TARGET, where, heads_for=partial(serve_heads, heads))
        assert model.heads is not None
        served = TargetWithHeads(model, model.heads)
        sequence = served.open(prompt, Cancellation(), 0)
        sequence.score(EMPTY)
        sequence.close(())
        draft = served.open_draft(sequence, 0, 3, 5)
        found.append(np.concatenate([draft.score(tree) for tree in LEVELS]))
        draft.close(())
    exact, ours = found
    known = np.isfinite(exact)
    differ = float(np.abs(ours[known] - exact[known]).max())
    tell(f"heads of {models.TARGET}, float32: logits differ by {differ:.2e} at most")
    assert (np.isfinite(ours) == known).all()
    assert differ < 1e-3 * float(np.abs(exact[known]).max())
