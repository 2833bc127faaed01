"""The answer to a request: a new one, the rest of one that its client has in part, or the rest of
one that is stored."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from opentelemetry import trace

from specmesh.decoding.errors import ContextExceeded
from specmesh.orchestrator.answers.answer import Answer
from specmesh.orchestrator.answers.request_metrics import RequestMetrics
from specmesh.orchestrator.answers.session_codec import (
    could_be,
    of_known_values,
    read_epoch,
    read_prompt_digest,
    read_received,
    settled,
    stored_request,
)
from specmesh.orchestrator.answers.session_log import SessionLog
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.orchestrator.replicas.target import Target, TargetRegistry
from specmesh.orchestrator.replicas.transport.peer_model import kind_of
from specmesh.orchestrator.requests.plan import (
    Defaults,
    RequestPlan,
    check_model,
    check_replicas,
    make_plan,
)
from specmesh.orchestrator.requests.prompts import PromptReader, digest_of
from specmesh.orchestrator.requests.served_models import missing
from specmesh.orchestrator.strategies.options import OPTIONS
from specmesh.serving import conventions as names
from specmesh.serving.caller import identity
from specmesh.serving.errors import FailedPreconditionStatus, InvalidArgument, UnavailableStatus
from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.stored_session import (
    Claim,
    SessionDamaged,
    SessionNotFound,
    SessionStart,
    StoreUnavailable,
    Writer,
)
from specmesh.serving.store.take_over import take_over
from specmesh.v1 import generation_pb2

RESUME_TOKEN_BYTES = 16
"""128 random bits, which cannot be guessed."""


class Answers:
    """Makes the answers of one mesh; the caller streams them."""

    def __init__(
        self,
        mesh: ReplicaPools,
        targets: TargetRegistry,
        store: SessionStore | None,
        defaults: Defaults,
        prompts: PromptReader,
    ) -> None:
        self._mesh = mesh
        self._targets = targets
        self._store = store
        self._defaults = defaults
        self._prompts = prompts

    async def new(self, request: generation_pb2.GenerateRequest, metrics: RequestMetrics) -> Answer:
        """Return an answer from its first token on, or from the last one the client received."""
        if request.HasField("chat"):
            metrics.chat()
        target = self.target()
        check_model(request.model, target)
        check_fingerprint(request.model_fingerprint, target)
        prompt = await self._prompt(request, target)
        given = (request, prompt, target, self._defaults, self._mesh.rng)
        plan = await self._prompts.run(sum(map(len, request.chat.tools)), make_plan, *given)
        received = read_received(request.received, plan.goal, target.info.vocab_size)
        _describe(plan, target, metrics, len(self._mesh.verifiers.ready))
        # An answer that has begun is finished by any replica that can, even if more slowly.
        if not request.HasField("received"):
            check_replicas(plan, target)
            if lack := missing(plan.strategy, self._mesh):
                raise lack
        claim = Claim(
            session_id=f"{self._mesh.rng.getrandbits(128):032x}",
            resume_token=self._mesh.rng.randbytes(RESUME_TOKEN_BYTES),
            owner=identity(),
        )
        session = SessionStart(
            claim=claim,
            model=kind_of(target.info),
            request=settled(plan, target.info.name).SerializeToString(),
            prompt=plan.prompt,
        )
        epoch = read_epoch(request) if request.HasField("epoch") else 1
        writer = Writer(epoch, self._writer_id())
        log = SessionLog(self._store, session, writer, received, self._mesh.rng, is_stored=False)
        metrics.answering(log, "client" if received.token_ids else None)
        return Answer(plan, target, log, metrics, received, len(received.token_ids))

    async def named(
        self,
        new: Answer,
        claim: Claim,
        request: generation_pb2.GenerateRequest,
        metrics: RequestMetrics,
    ) -> Answer:
        """Return the answer that an earlier request with this id began, or else ``new``, whose
        session is then that of ``claim``. If the store fails to hand that session over, return
        ``new`` as ``SessionLog.begin`` leaves it where the store fails; if the session is damaged,
        as if it had no id."""
        try:
            while not await new.begin(claim):
                # A client that never received the start can't know the session's epoch.
                epoch = request.epoch if request.HasField("epoch") else None
                with suppress(SessionNotFound):  # it has expired meanwhile: begin anew
                    return await self.resumed(claim, epoch, request.received, metrics)
        except StoreUnavailable:
            new.go_on_under(claim)
        except SessionDamaged:
            pass
        return new

    async def resumed(
        self,
        claim: Claim,
        epoch: int | None,
        received_message: generation_pb2.Received,
        metrics: RequestMetrics,
    ) -> Answer:
        """Return the rest of a stored answer, taken over from the orchestrator that wrote it. If
        ``epoch`` is None, it is the one after the session's. A store that can be read but not
        written, as one that is full, suffices for an answer that is complete.

        Everything is checked first: a request that fails must not take the session. Raises
        ``SessionError`` too.
        """
        target = self.target()
        stored = await required_store(self._store).read(claim)
        session, vocab_size = stored.session, target.info.vocab_size
        check_fingerprint(session.model, target)
        request = stored_request(session, read_prompt_digest(received_message), vocab_size)
        with of_known_values():
            # What the request leaves unset was settled then, whatever the model recommends.
            settled_then = replace(self._defaults, as_model_says=False)
            plan = make_plan(request, session.prompt, target, settled_then, self._mesh.rng)
        received = read_received(received_message, plan.goal, vocab_size)
        _describe(plan, target, metrics, len(self._mesh.verifiers.ready))
        # Log-probabilities are not stored, so a client that wants them needs the tokens again.
        exactly = plan.num_top_logprobs is not None or not could_be(stored, plan.goal, vocab_size)
        writer, generated, store = await take_over(
            required_store(self._store), stored, epoch, self._writer_id(), received, exactly=exactly
        )
        # If it was damaged after it was read, the store has checked its prompt, not its answer.
        taken = replace(stored, generated=generated)
        if generated not in (stored.generated, received) and not could_be(
            taken, plan.goal, vocab_size
        ):
            raise SessionDamaged(f"session {session.session_id!r} is damaged")
        log = SessionLog(store, session, writer, generated, self._mesh.rng, is_stored=True)
        metrics.answering(log, "store")
        return Answer(plan, target, log, metrics, generated, len(received.token_ids))

    async def _prompt(
        self, request: generation_pb2.GenerateRequest, target: Target
    ) -> tuple[int, ...]:
        """Return the tokens of the prompt, which must be those that the client's part of the answer
        follows. Raises ``UnavailableStatus`` with reason PROMPT_CHANGED, and what
        ``PromptReader.read`` raises.

        That part's prompt may have been made by another template, that of a replica which did not
        define the target here. A template that refuses the chat therefore does not end an answer
        that has begun.
        """
        told = read_prompt_digest(request.received)
        templates = [target.chat_template]
        if told and request.HasField("chat"):
            for peer in self._mesh.verifiers.peers:
                theirs = peer.model and not peer.refusal and peer.model.chat_template
                if theirs and theirs not in templates:
                    templates.append(theirs)
        for template in templates:
            try:
                prompt = await self._prompts.read(request, replace(target, chat_template=template))
            except (InvalidArgument, FailedPreconditionStatus, ContextExceeded):
                if not told:
                    raise
                continue  # this template can't have made the prompt that the answer follows
            if not told or told == digest_of(prompt):
                return prompt
        raise UnavailableStatus(
            "PROMPT_CHANGED", "the answer began with another prompt than this request has here"
        )

    def _writer_id(self) -> str:
        """Return a new id for one stream; no other stream writes to the store under it."""
        return f"{self._mesh.rng.getrandbits(64):016x}"

    def target(self) -> Target:
        """Return the target as its replicas serve it. Raises ``UnavailableStatus`` if none has come
        up yet."""
        target = self._targets.required()
        # Replicas that are down count too: they may be back before the answer ends.
        replicas = [peer for peer in self._mesh.verifiers.peers if not peer.refusal]
        known = [peer.model.info for peer in replicas if peer.model]
        return target.served_by(known) if known else target


def _describe(
    plan: RequestPlan, target: Target, metrics: RequestMetrics, num_verifiers: int
) -> None:
    metrics.planned(plan, target)
    span = trace.get_current_span()
    if span.is_recording():
        options = {names.option(name): getattr(plan.goal, name) for name in OPTIONS}
        span.set_attributes({name: value for name, value in options.items() if value is not None})
        span.set_attributes(
            {
                **metrics.attributes,
                names.NUM_VERIFIERS: num_verifiers,
                names.MAX_TOKENS: plan.goal.max_tokens,
                names.TEMPERATURE: plan.sampling.temperature,
                names.INPUT_TOKENS: len(plan.prompt),
            }
        )


def required_store(store: SessionStore | None) -> SessionStore:
    """Return ``store``. Raises ``UnavailableStatus`` with reason NO_STORE if there is none."""
    if store is None:
        raise UnavailableStatus("NO_STORE", "this orchestrator has no session store")
    return store


def check_fingerprint(fingerprint: str, target: Target) -> None:
    """Refuse to continue an answer that another model began. Raises ``FailedPreconditionStatus``
    with reason TARGET_REPLACED."""
    served = kind_of(target.info)
    if fingerprint not in {"", served}:
        raise FailedPreconditionStatus(
            "TARGET_REPLACED",
            f"the answer began with {fingerprint}, but this mesh serves {served}",
            {"began_with": fingerprint, "served": served},
        )
