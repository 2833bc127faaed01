"""The rounds of a way of decoding on a mesh, with the real strategy, drafter and heads.

The target's answers are known beforehand, so verifications need no forward, unless the target's
heads draft: then each is requested for the draft that comes with it. The strategy is given no
latencies, so it drafts as far as its options allow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from specmesh.cli.local.process import StartError
from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.drafting import TopK
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.mesh.v1alpha1 import drafter_pb2
from specmesh.orchestrator.replicas.calls.draft.drafts import DraftLimits, read_part
from specmesh.orchestrator.replicas.calls.verify.next_drafts import (
    read_next_draft,
    write_next_draft,
)
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import Command, Commit, Draft, Verify
from specmesh.orchestrator.strategies.events import Capacity, Drafted, Event, Verified
from specmesh.serving.codec.draft_rules import write_growth, write_stop
from specmesh.serving.codec.wire import write_sampling, write_tree
from specmesh.tools.profile.measure.replicas import OpenLine, Replicas
from specmesh.tools.profile.rounds import Drafting, ProfiledRound, Way


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt, the target's answer to it, and the sampling of that answer."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    sampling: Sampling


async def answers(
    replicas: Replicas,
    prompts: Sequence[Sequence[int]],
    temperature: float,
    num_tokens: int,
    seed: int,
) -> list[Text]:
    """Return the target's own answers, as far as its context allows, computed concurrently. Raises
    StartError."""
    limit = replicas.verifier.info.context_tokens

    async def answer(number: int, prompt: Sequence[int]) -> Text:
        sampling = Sampling(temperature, seed=seed + number)
        message = write_sampling(sampling)
        prefix = CommittedPrefix("", prompt)
        tokens: list[int] = []
        async with replicas.verifier.line() as line:
            while len(tokens) < num_tokens and not (limit and prefix.length >= limit):
                timed = await line.verify(prefix, write_tree(EMPTY), message)
                tokens.append(timed.messages[0].next_token_id)
                prefix.commit(tokens[-1:])
        return Text(tuple(prompt), tuple(tokens), sampling)

    return list(await asyncio.gather(*(answer(*each) for each in enumerate(prompts))))


async def rounds_of(replicas: Replicas, way: Way, texts: Sequence[Text]) -> list[ProfiledRound]:
    """Return the rounds of ``way`` on ``texts``. Raises StartError."""

    async def replay(text: Text) -> list[ProfiledRound]:
        replica = replicas.verifier if way.drafting is Drafting.HEADS else replicas.drafter
        assert replica is not None
        async with replica.line() as line:
            return await _Replay(text, line, replicas.vocab_size).run(way)

    return [each for rounds in await asyncio.gather(*map(replay, texts)) for each in rounds]


class _Replay:
    def __init__(self, text: Text, line: OpenLine, vocab_size: int) -> None:
        self._text = text
        self._line = line
        self._vocab_size = vocab_size
        self._sampling = write_sampling(text.sampling)
        self._prefix = CommittedPrefix("", text.prompt)
        self._num_committed = 0
        self._worked_s = 0.0
        """CPU time of the strategy in the current round, without waiting."""
        self._rounds: list[ProfiledRound] = []

    async def run(self, way: Way) -> list[ProfiledRound]:
        goal = Goal(len(self._text.answer), lookahead=way.lookahead, width=way.width)
        strategy = STRATEGIES[way.strategy](goal)
        commands = strategy.start(Capacity())
        try:
            while (event := await self._perform(commands)) is not None:
                with self._working():
                    commands = strategy.handle(event)
        except InvalidField as error:
            raise StartError(f"a draft is invalid: {error}") from error
        # Return all of them, also the last, which the end of the answer cuts short, and the first
        # of heads, which has no draft: a client waits for both.
        return self._rounds

    @contextmanager
    def _working(self) -> Iterator[None]:
        began = time.thread_time()
        yield
        self._worked_s += time.thread_time() - began

    async def _perform(self, commands: Sequence[Command]) -> Event | None:
        """Carry out ``commands``; return the resulting event, None at the end of the answer."""
        event: Event | None = None
        for command in commands:
            match command:
                case Commit():
                    self._prefix.commit(command.token_ids)
                    self._num_committed += len(command.token_ids)
                case Draft():
                    event = await self._draft(command)
                case Verify():
                    event = await self._verify(command)
        return event

    async def _draft(self, command: Draft) -> Drafted:
        request = drafter_pb2.DraftRequest(
            depth=command.depth,
            levels_per_message=command.levels_per_message,
            num_choices=command.num_choices,
            stop=write_stop(command.stop),
            sampling=self._sampling,
            vocab_size=self._vocab_size,
            growth=write_growth(command.growth),
        )
        timed = await self._line.draft(self._prefix, request)
        tree, limits = EMPTY, DraftLimits.of(request, EMPTY)
        choices: dict[int, TopK] = {}
        with self._working():
            for message in timed.messages:
                mode = self._text.sampling.mode
                part = read_part(message, tree, limits, self._vocab_size, mode)
                tree, choices = part.tree, choices | part.choices
        return Drafted(command.task, tree.token_ids, tree.parents, {}, last=True, choices=choices)

    async def _verify(self, command: Verify) -> Verified:
        verdict = known_verdict(command.tree, self._text.answer[self._num_committed :])
        accepted = len(verdict.accepted_nodes)
        self._rounds.append(ProfiledRound(command.tree, accepted + 1, self._worked_s * 1e3))
        self._worked_s = 0.0
        if command.next_draft is None:
            return Verified(command.task, verdict)
        timed = await self._line.verify(
            self._prefix,
            write_tree(command.tree),
            self._sampling,
            write_next_draft(command, self._text.sampling, 0),
        )
        with self._working():
            draft = read_next_draft(
                timed.messages[0], command, self._text.sampling, self._vocab_size
            )
        return Verified(command.task, verdict, draft)


def known_verdict(tree: TokenTree, answer: Sequence[int]) -> Verdict:
    """Return the verdict on ``tree`` of a target whose continuation is ``answer``, at least one
    token."""
    node, path = 0, []
    for token in answer[:-1]:
        child = tree.child_with(node, token)
        if child is None:
            break
        path.append(child)
        node = child
    return Verdict(tuple(path), answer[len(path)], recovered=bool(tree.children(node)))
