"""The timing of calls in one setting after the other, round after round, until the time is
spent."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from statistics import median

import numpy as np

from specmesh.decoding.predict.lookahead import DraftStop
from specmesh.decoding.predict.platt import Platt
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.growth import TreeGrowth
from specmesh.decoding.trees.shape import TreeShape
from specmesh.decoding.trees.tree import TokenTree
from specmesh.mesh.v1alpha1 import drafter_pb2, verifier_pb2
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.serving.codec.draft_rules import write_growth, write_stop, write_tree_shape
from specmesh.serving.codec.wire import write_sampling, write_tree
from specmesh.simulation.costs import Contention, Hop
from specmesh.simulation.law import ForwardShape
from specmesh.tools.profile.law import KNOTS, Fit, Sample, coefficients, fit
from specmesh.tools.profile.measure.replicas import OpenLine, Replica, Replicas, Timed
from specmesh.tools.profile.measure.settings import CallSetting, shuffled

CALLS = 4
"""Calls of each stream per visit to a setting; the first is not counted. Few, so that there are
more visits, at different times."""
FEWEST = 12
"""Minimum number of forwards, or of whole drafts, per setting."""

_QUANTILE = 0.25

HEADS_KNOTS = (1, 4, 16, 64)
"""Knots for heads, fewer than for other forwards, because only whole drafts are timed."""

GREEDY = write_sampling(Sampling(0.0))

Call = Callable[[OpenLine, CommittedPrefix, CallSetting], Awaitable[Timed]]
Sized = Callable[[CallSetting, Timed], tuple[ForwardShape, ...]]


class CallTimer:
    """A timer of calls of one kind to one replica. ``call`` makes one, ``sized`` returns the sizes
    of its forwards, none if they aren't known."""

    def __init__(
        self,
        replica: Replica,
        call: Call,
        sized: Sized,
        seed: int,
        knots: Sequence[int] = KNOTS,
    ) -> None:
        self._knots = knots
        self._replica = replica
        self._call = call
        self._sized = sized
        self._dice = random.Random(seed)  # noqa: S311 - a profile must repeat
        self._prefixes: dict[tuple[int, int], CommittedPrefix] = {}
        self._forwards: defaultdict[tuple[ForwardShape, ...], list[float]] = defaultdict(list)
        self._hops: defaultdict[tuple[int, int], list[float]] = defaultdict(list)

    async def measure(self, settings: Sequence[CallSetting], seconds: float, seed: int) -> None:
        """Visit ``settings`` in turn, repeatedly, for about ``seconds``, so that other load on the
        machine affects all of them equally."""
        until = time.monotonic() + seconds
        order = shuffled(settings, seed)
        while True:
            for setting in order:
                await self.visit(setting)
                if time.monotonic() >= until:
                    return

    async def visit(self, setting: CallSetting, calls: int = CALLS) -> list[Timed]:
        """Make ``calls`` in each stream; return those that count."""
        async with self._replica.lines(setting.streams) as lines:
            streams = [
                self._stream(line, number, setting, calls) for number, line in enumerate(lines)
            ]
            timed = [each for stream in await asyncio.gather(*streams) for each in stream]
        for each in timed:
            self._note(setting, each)
        return timed

    async def _stream(
        self, line: OpenLine, number: int, setting: CallSetting, calls: int
    ) -> list[Timed]:
        prefix = self._prefix(number, setting.context)
        return [await self._call(line, prefix, setting) for _ in range(calls)][1:]

    def _prefix(self, stream: int, context: int) -> CommittedPrefix:
        """Return a prefix of random tokens: the time of a forward does not depend on which they
        are."""
        key = (stream, context)
        if key not in self._prefixes:
            size = self._replica.info.vocab_size
            tokens = [self._dice.randrange(size) for _ in range(context)]
            self._prefixes[key] = CommittedPrefix("", tokens)
        return self._prefixes[key]

    def _note(self, setting: CallSetting, timed: Timed) -> None:
        forwards = self._sized(setting, timed)
        if forwards:
            self._forwards[forwards].append(_compute_ms(timed, setting))
        nodes = setting.width * max(1, setting.depth)
        self._hops[timed.batch_calls, nodes].append(timed.hop_ms)

    def fit(self) -> Fit:
        """Fit the law of its forwards."""
        return fit(self.samples(), self._knots)

    def samples(self) -> list[Sample]:
        """Return the samples measured often enough, or all if there are none. The time of a sample
        is the lower quartile, because any disturbance only makes a forward longer."""
        counted = [
            # Each of the calls that share a forward reports it.
            (len(times) / forwards[0].calls, Sample(forwards, float(np.quantile(times, _QUANTILE))))
            for forwards, times in self._forwards.items()
        ]
        often = [sample for count, sample in counted if count >= FEWEST]
        return often or [sample for _, sample in counted]

    def hop(self) -> Hop:
        """Fit the time of calls besides their forwards."""
        rows, wanted = [], []
        for (calls, nodes), times in self._hops.items():
            if len(times) >= FEWEST:
                rows.append([1.0, float(nodes), max(0.0, calls - 1.0)])
                wanted.append(max(median(times), 1e-3))
        if not rows:
            every = median(each for times in self._hops.values() for each in times)
            return Hop(max(every, 0.0))
        return Hop(*coefficients(rows, wanted))


def _compute_ms(timed: Timed, setting: CallSetting) -> float:
    """Return the time of the forwards; for a verification with a draft, that of the heads only."""
    first = timed.messages[0]
    if setting.depth and isinstance(first, verifier_pb2.VerifyResponse):
        return float(first.next_draft.cost.forward_ms)
    return timed.forward_ms


def verifying(replica: Replica, seed: int) -> CallTimer:
    """Create a timer of verifications of chains."""

    async def call(line: OpenLine, prefix: CommittedPrefix, setting: CallSetting) -> Timed:
        tree = TokenTree.chain(range(setting.width))
        return await line.verify(prefix, write_tree(tree), GREEDY)

    def sized(setting: CallSetting, timed: Timed) -> tuple[ForwardShape, ...]:
        calls, tokens = timed.batch_calls, timed.batch_tokens
        # Otherwise this forward also read another stream's prefix.
        alike = calls and tokens == calls * (setting.width + 1)
        return (ForwardShape(calls, tokens, setting.context),) if alike else ()

    return CallTimer(replica, call, sized, seed)


def drafting(replica: Replica, seed: int) -> CallTimer:
    """Create a timer of drafts of ``width`` chains, ``depth`` levels deep."""

    async def call(line: OpenLine, prefix: CommittedPrefix, setting: CallSetting) -> Timed:
        width, depth = setting.width, setting.depth
        chains = None if width == 1 else TreeShape((width, *[1] * (width * (depth - 1))))
        request = drafter_pb2.DraftRequest(
            depth=depth,
            shape=write_tree_shape(chains),
            sampling=GREEDY,
            levels_per_message=depth,
        )
        return await line.draft(prefix, request)

    def sized(setting: CallSetting, timed: Timed) -> tuple[ForwardShape, ...]:
        calls = timed.batch_calls
        widths = (1, *[setting.width] * (setting.depth - 1))
        # Complete batches advance in step; of others only the latest forward is known.
        if calls != setting.streams or timed.batch_tokens != calls * widths[-1]:
            return ()
        return tuple(ForwardShape(calls, calls * width, setting.context) for width in widths)

    return CallTimer(replica, call, sized, seed)


def heads_drafting(replica: Replica, seed: int) -> CallTimer:
    """Create a timer of empty verifications that return a tree of the target's heads. The tree has
    ``width`` nodes for each of ``depth`` levels."""
    sure = DraftStop(0.0, Platt(1.0, 0.0))

    async def call(line: OpenLine, prefix: CommittedPrefix, setting: CallSetting) -> Timed:
        growth = TreeGrowth(setting.width * setting.depth, 1 / (8 * setting.width))
        asked = verifier_pb2.NextDraft(
            depth=setting.depth,
            growth=write_growth(growth),
            stop=write_stop(sure),
            num_choices=min(16, growth.max_nodes),
        )
        return await line.verify(prefix, write_tree(TokenTree((), ())), GREEDY, asked)

    def sized(setting: CallSetting, timed: Timed) -> tuple[ForwardShape, ...]:
        response = timed.messages[0]
        if not response.HasField("next_draft"):
            return ()
        # Heads read the token that the tree hangs from, then each level but the last.
        tree = TokenTree(tuple(response.next_draft.token_ids), tuple(response.next_draft.parents))
        depths = tree.depths
        calls = max(1, response.next_draft.cost.num_batch_calls)
        if calls != setting.streams or (calls > 1 and max(depths) > 1):
            return ()
        counts = [depths.count(depth) for depth in range(max(depths))]
        return tuple(ForwardShape(calls, calls * count, 0) for count in counts)

    return CallTimer(replica, call, sized, seed, HEADS_KNOTS)


async def contention(replicas: Replicas, context: int, seconds: float, seed: int) -> Contention:
    """Measure how much longer forwards take while the other role works without a pause. Forwards
    alone and together take turns. Calls are long, so that few are made: their client may share a
    core with the replicas."""
    assert replicas.drafter is not None
    checks = (verifying(replicas.verifier, seed), CallSetting(1, context, 32))
    width = min(8, replicas.drafter.draft_widths[-1])
    guesses = (drafting(replicas.drafter, seed), CallSetting(1, context, width, 12))
    times: defaultdict[tuple[str, bool], list[float]] = defaultdict(list)
    until = time.monotonic() + seconds
    while True:
        for role, (own, others) in (("target", (checks, guesses)), ("drafter", (guesses, checks))):
            times[role, False] += await _forward_times(*own)
            busy = asyncio.create_task(_keep_busy(*others))
            try:
                times[role, True] += await _forward_times(*own)
            finally:
                busy.cancel()
                with suppress(asyncio.CancelledError):
                    await busy
        if time.monotonic() >= until:
            break
    return Contention(
        *(
            max(1.0, median(times[role, True]) / median(times[role, False]))
            for role in ("target", "drafter")
        )
    )


async def _forward_times(timer: CallTimer, setting: CallSetting) -> list[float]:
    return [each.forward_ms for each in await timer.visit(setting)]


async def _keep_busy(timer: CallTimer, setting: CallSetting) -> None:
    while True:
        await timer.visit(setting)
