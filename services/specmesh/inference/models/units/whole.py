"""A check that dividing layers pays in a whole forward pass, not only in a loop of one layer.

In a loop units are awake, and caches are warm. In a forward pass Python and small operations run
between two layers. So forward passes are timed undivided and divided, and the part of the predicted
gain that they miss is charged to each divided layer; small layers are then no longer divided. The
quickest way is kept, and nothing is divided if the gain is too small to be told from noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from specmesh.inference.engine.batch import BatchPart, pack
from specmesh.inference.engine.kv_store import KVShape, KVStore
from specmesh.inference.models.attention import PagedAttention
from specmesh.inference.models.units.crew import Crew
from specmesh.inference.models.units.plans.planner import Planner, Work
from specmesh.inference.models.units.plans.shares import Measured, gain_s

BySize = Mapping[int, Measured]
"""The measurements of a kind of work, by the number of tokens or keys."""

TOKENS = (1, 4, 16)
"""The tokens of the forward passes that are timed, as speculation needs them."""
SECONDS = 0.05
ROUNDS = 4
"""Each way is timed in this many rounds of ``SECONDS`` each, and its quickest forward pass
counts."""
MOST_SECONDS = 3.0
"""No round begins later than this, since a large model would take minutes longer to load."""
LEAST_GAIN = 0.05
"""The share by which a divided forward pass must be quicker."""


def judged(
    crew: Crew, measured: Mapping[Work, BySize], forward: Callable[[int], object]
) -> Mapping[Work, BySize]:
    """Return ``measured`` corrected by timing ``forward`` with different numbers of tokens."""
    counts = {work: len(layers) for work, layers in crew.works.items()}
    for tokens in TOKENS:
        if all(tokens in measured[work] for work in counts):
            undivided = without_gain(measured, counts, tokens)
            alone_s, divided_s = _quickest(crew, forward, tokens, (undivided, measured))
            charged = charge(measured, counts, tokens, alone_s, divided_s)
            ways = (undivided, measured, charged)
            seconds = _quickest(crew, forward, tokens, ways)
            seconds[0] *= 1 - LEAST_GAIN
            measured = ways[seconds.index(min(seconds))]
    return measured


def without_gain(
    measured: Mapping[Work, BySize], counts: Mapping[Work, int], tokens: int
) -> dict[Work, BySize]:
    """Return ``measured`` as if no layer with ``tokens`` gained anything by being divided."""
    return _dearer(measured, tokens, {work: gain_s(measured[work][tokens]) for work in counts})


def charge(
    measured: Mapping[Work, BySize],
    counts: Mapping[Work, int],
    tokens: int,
    alone_s: float,
    divided_s: float,
) -> dict[Work, BySize]:
    """Return ``measured`` corrected by the seconds of undivided and divided forward passes of
    ``tokens``, which have ``counts`` layers of each kind."""
    gains = {work: gain_s(measured[work][tokens]) for work in counts}
    promised_s = sum(counts[work] * gain for work, gain in gains.items())
    num_divided = sum(counts[work] for work, gain in gains.items() if gain)
    missed_s = promised_s - (alone_s - divided_s)
    if not num_divided or missed_s <= 0:
        return dict(measured)
    each_s = missed_s / num_divided
    return _dearer(measured, tokens, dict.fromkeys(counts, each_s))


def _dearer(
    measured: Mapping[Work, BySize], tokens: int, by_s: Mapping[Work, float]
) -> dict[Work, BySize]:
    """Return ``measured`` as if dividing layers with ``tokens`` took ``by_s`` longer."""
    return {
        work: {**by_size, tokens: by_size[tokens].dearer(by_s[work])} if work in by_s else by_size
        for work, by_size in measured.items()
    }


def forward_of(model: Any, kv: KVShape) -> Callable[[int], object]:
    """Return a function that runs a forward pass of a number of tokens without context, in its own
    KV store."""
    store = KVStore(kv, 1, torch.device("cpu"))

    def forward(tokens: int) -> object:
        places = range(tokens)
        part = BatchPart(
            token_ids=[0] * tokens,
            positions=places,
            slots=places,
            parent_slots=places,
            rows=range(1),
            blocks=np.arange(tokens),
            length=tokens,
            attention_mask=None,
        )
        batch = pack([part], ())
        return model(
            input_ids=store.indexes(batch.token_ids)[None],
            position_ids=store.indexes(batch.positions)[None],
            use_cache=False,
            logits_to_keep=store.indexes(batch.rows),
            paged=PagedAttention(store, batch, lambda: False),
        )

    return forward


def _quickest(
    crew: Crew,
    forward: Callable[[int], object],
    tokens: int,
    ways: Sequence[Mapping[Work, BySize]],
) -> list[float]:
    """Return the seconds of the quickest forward pass for each of the ``ways`` to divide, timed in
    turns."""
    quickest = [float("inf")] * len(ways)
    now = 0.0
    last_round = time.perf_counter() + MOST_SECONDS
    for _ in range(ROUNDS):
        if now > last_round:
            break
        for number, measured in enumerate(ways):
            crew.use(Planner(measured, len(crew.names)))
            forward(tokens)  # packs weights
            end = time.perf_counter() + SECONDS
            now = 0.0
            while now < end:
                began = time.perf_counter()
                forward(tokens)
                now = time.perf_counter()
                quickest[number] = min(quickest[number], now - began)
    return quickest
