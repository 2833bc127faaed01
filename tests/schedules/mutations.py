"""Fixes taken out again, to see that the schedules would have found what they mended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from tests.schedules import lua
from tests.schedules.run import Outcome, run

from specmesh.client.answers.received import ReceivedAnswer
from specmesh.decoding.acceptance import Verdict
from specmesh.mesh.v1alpha1 import verifier_pb2
from specmesh.orchestrator.answers import opening as answers
from specmesh.orchestrator.driver import mesh_driver as driver
from specmesh.orchestrator.replicas.calls.verify import verify_attempt, verify_replicas
from specmesh.orchestrator.replicas.retries.attempts import Attempts
from specmesh.orchestrator.replicas.retries.faults import CallFault, fault_of
from specmesh.serving.store import prefix_directory
from specmesh.serving.store import session_store as sessions
from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.stored_session import Generated

NOTHING = Generated((), frozenset())


@dataclass(frozen=True, slots=True)
class Mutation:
    """``applied`` takes a fix out; ``kinds`` are the faults that it was for; ``seed`` found it."""

    applied: Callable[[], Any]
    kinds: tuple[str, ...]
    seed: int


def find(mutation: Mutation, seeds: range) -> Outcome | None:
    """The first schedule that notices it: the one that did, or one of ``seeds``, for what a seed
    means changes with the code."""
    with mutation.applied():
        for seed in (mutation.seed, *seeds):
            outcome = run(seed, kinds=mutation.kinds)
            if outcome.violations:
                return outcome
    return None


@contextmanager
def _store_goes_on_from_its_own_tokens() -> Iterator[None]:
    """What the client has received has no say."""
    take = SessionStore.take

    async def taken(
        self: Any, claim: Any, epoch: Any, writer_id: Any, received: Any, **options: bool
    ) -> Any:
        return await take(self, claim, epoch, writer_id, NOTHING, **options)

    with patch.object(SessionStore, "take", taken):
        yield


@contextmanager
def _anybody_may_resume() -> Iterator[None]:
    with patch.object(sessions, "_proof", lambda claim: b"the same for all"):
        yield


@contextmanager
def _writes_are_not_fenced() -> Iterator[None]:
    with _edited(("local ahead = ahead_of(ARGV[3], ARGV[4])", "local ahead = 0")):
        yield


@contextmanager
def _epochs_have_no_owner() -> Iterator[None]:
    """The client does not count its calls, and who writes under an epoch is not asked."""
    next_request = ReceivedAnswer.next_request

    def next_request_under_one_epoch(self: Any) -> Any:
        self._epoch = min(self._epoch, 1)
        return next_request(self)

    edits = (
        ("stored.writer ~= writer", "false"),
        ("elseif ahead_of(epoch, writer) >= 0", "elseif ahead_of(epoch, writer) > 0"),
    )
    under_one_epoch = patch.object(ReceivedAnswer, "next_request", next_request_under_one_epoch)
    with _edited(*edits), under_one_epoch:
        yield


@contextmanager
def _first_error_is_final() -> Iterator[None]:
    """A verification that breaks a replica is asked nowhere else, and the client told so."""
    failed = Attempts.failed

    def failed_for_good(self: Any, peer: Any, began: float, error: Any) -> None:
        if fault_of(error) is CallFault.BROKE:
            raise error
        failed(self, peer, began, error)

    with (
        patch.object(Attempts, "failed", failed_for_good),
        patch.object(driver, "for_client", lambda error: error),
    ):
        yield


@contextmanager
def _verdicts_are_believed() -> Iterator[None]:
    def believed(response: Any, asked: Any) -> Verdict:
        accepted = tuple(response.accepted_nodes)
        recovered = response.next_token_kind == verifier_pb2.NEXT_TOKEN_KIND_RECOVERED
        return Verdict(accepted, response.next_token_id, recovered, None)

    with patch.object(verify_attempt, "read_verdict", believed):
        yield


@contextmanager
def _drafts_of_heads_are_believed() -> Iterator[None]:
    read = verify_attempt.read_next_draft

    def believed(response: Any, command: Any, sampling: Any, vocab_size: int) -> Any:
        return read(response, command, sampling, vocab_size=1 << 40)

    with patch.object(verify_attempt, "read_next_draft", believed):
        yield


@contextmanager
def _suspicion_is_enough() -> Iterator[None]:
    """A request that two replicas broke on is to blame, even if they break on anything."""

    async def is_healthy(*about: Any) -> bool:
        return True

    with patch.object(verify_replicas, "is_healthy", is_healthy):
        yield


@contextmanager
def _hints_are_read_as_they_come() -> Iterator[None]:
    """Whatever Redis has in place of a hint is taken for the name of a replica."""

    def all_of_them(found: Any) -> Any:
        return [(replica.decode(), number) for replica, number in found]

    with patch.object(prefix_directory, "_readable", all_of_them):
        yield


@contextmanager
def _lost_replicas_must_return() -> Iterator[None]:
    """A request is blamed if the replicas that it lost are in the mesh and not back in time."""
    wait_ready, find_successor = Attempts.wait_ready, Attempts._find_successor

    async def waited(self: Any, patience_s: float) -> None:
        await wait_ready(self, patience_s)
        if self._pool.ready and not self.has_ready_replica:
            raise self._quarantined()

    def found(self: Any) -> None:
        if self._lost_have_left:
            find_successor(self)

    with (
        patch.object(Attempts, "wait_ready", waited),
        patch.object(Attempts, "_find_successor", found),
    ):
        yield


@contextmanager
def _nobody_succeeds_who_left() -> Iterator[None]:
    """Lost replicas must return even if they have left for good."""
    nobody = patch.object(Attempts, "_find_successor", lambda attempts: None)
    with _lost_replicas_must_return(), nobody:
        yield


@contextmanager
def _damage_is_not_looked_for() -> Iterator[None]:
    with _edited(
        ("damaged = damage(num_bytes)", "damaged = nil"),
        ("not seal or seal ==", "true or seal =="),
    ):
        yield


@contextmanager
def _each_replica_must_do_until_the_end() -> Iterator[None]:
    """What every replica can do is checked of answers that have begun, too."""
    make = answers.make_plan

    def checked(request: Any, prompt: Any, target: Any, *rest: Any) -> Any:
        plan = make(request, prompt, target, *rest)
        answers.check_replicas(plan, target)
        return plan

    with patch.object(answers, "make_plan", checked):
        yield


@contextmanager
def _any_prompt_will_do() -> Iterator[None]:
    with patch.object(answers, "read_prompt_digest", lambda received: b""):
        yield


@contextmanager
def _edited(*edits: tuple[str, str]) -> Iterator[None]:
    """The sessions' script, with ``edits``."""
    compiled = lua.compiled

    def edited(script: str) -> Any:
        if script.startswith("-- The transitions of one session."):
            for old, new in edits:
                assert old in script, old
                script = script.replace(old, new)
        return compiled(script)

    with patch.object(lua, "compiled", edited):
        yield


MUTATIONS = {
    "the store goes on from its own tokens": Mutation(
        _store_goes_on_from_its_own_tokens, ("lag and die",), seed=652
    ),
    "anybody may resume": Mutation(_anybody_may_resume, ("theft",), seed=1),
    "writes are not fenced": Mutation(
        _writes_are_not_fenced, ("late redis", "kill orchestrator"), seed=525
    ),
    "epochs have no owner": Mutation(
        _epochs_have_no_owner, ("late redis", "kill orchestrator", "lag and die"), seed=66
    ),
    "the first error is final": Mutation(_first_error_is_final, ("sick verifier",), seed=7),
    "verdicts are believed": Mutation(_verdicts_are_believed, ("sick verifier",), seed=2),
    "drafts of heads are believed": Mutation(
        _drafts_of_heads_are_believed, ("sick verifier",), seed=658
    ),
    "suspicion is enough": Mutation(_suspicion_is_enough, ("sick verifier",), seed=161),
    "hints are read as they come": Mutation(
        _hints_are_read_as_they_come, ("garbage hints",), seed=67
    ),
    "nobody succeeds who left": Mutation(
        _nobody_succeeds_who_left, ("replace verifier", "break calls"), seed=58
    ),
    "lost replicas must return": Mutation(
        _lost_replicas_must_return, ("kill verifier", "replace verifier"), seed=578
    ),
    "damage is not looked for": Mutation(
        _damage_is_not_looked_for, ("damaged session", "kill orchestrator"), seed=1
    ),
    "each replica must do until the end": Mutation(
        _each_replica_must_do_until_the_end, ("small verifier", "kill orchestrator"), seed=19
    ),
    "any prompt will do": Mutation(
        _any_prompt_will_do, ("other template", "break calls", "kill redis"), seed=172
    ),
}
"""By what is wrong with them."""
