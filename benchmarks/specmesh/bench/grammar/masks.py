"""The time that masks of schemas take, token by token, on one core of this process."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specmesh.bench.grammar.schemas import Schema
from specmesh.bench.grammar.vocabularies import made_up
from specmesh.decoding.grammar import Grammar, GrammarKind
from specmesh.decoding.processing.masks import only
from specmesh.inference.grammar.states import GrammarState
from specmesh.inference.grammar.vocabulary import CompiledGrammar, Vocabulary

MAX_TOKENS = 200


@dataclass(frozen=True, slots=True)
class MaskTimes:
    """Means over all tokens of an answer to each schema, on a vocabulary of ``entries``.

    ``compile_ms`` is the time to compile a schema. ``us_per_token`` is all that a token takes:
    ``match_us`` to go on with it, ``find_us`` to find what may follow, and ``apply_us`` to leave
    only that of the logits. ``slowest_us`` is the most that any token took.
    """

    entries: int
    compile_ms: float
    us_per_token: float
    match_us: float
    find_us: float
    apply_us: float
    slowest_us: float


def measure_masks(num_entries: int, schemas: Sequence[Schema]) -> MaskTimes:
    """Measure answers of random words to ``schemas``."""
    vocabulary = Vocabulary.of(made_up(num_entries))
    compile_s, laps = 0.0, []
    for number, schema in enumerate(schemas):
        began = time.perf_counter()
        compiled = vocabulary.compile(Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema)))
        compile_s += time.perf_counter() - began
        laps += _answer(compiled, num_entries, number)
    times = np.array(laps) * 1e6
    match, find, apply = times.mean(axis=0)
    return MaskTimes(
        entries=num_entries,
        compile_ms=compile_s * 1e3 / len(schemas),
        us_per_token=float(times.sum(axis=1).mean()),
        match_us=float(match),
        find_us=float(find),
        apply_us=float(apply),
        slowest_us=float(times.sum(axis=1).max()),
    )


def _answer(
    compiled: CompiledGrammar, num_entries: int, seed: int
) -> list[tuple[float, float, float]]:
    """Return the seconds of the three steps for each token of an answer."""
    rng = np.random.default_rng(seed)
    state, tokens, laps = GrammarState(compiled), [0][:0], []
    while len(tokens) < MAX_TOKENS:
        logits = rng.standard_normal(num_entries, np.float32)
        began = time.perf_counter()
        state.move_to(tokens)
        moved = time.perf_counter()
        allowed = state.allowed()
        found = time.perf_counter()
        token = int(only(allowed, logits).argmax())
        laps.append((moved - began, found - moved, time.perf_counter() - found))
        if token == num_entries - 1:
            break
        tokens.append(token)
    return laps
