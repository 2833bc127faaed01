"""Simulated replicas: real verdicts over cheap logits, and every way to fail at it.

They run no tasks: a request sets a timer, its answer leaves when that rings.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health_pb2
from tests.schedules.clock import Process
from tests.schedules.many import ManyParts, Part
from tests.schedules.models import TOKENIZER_JSON, model_info
from tests.schedules.network import Network, ServerCall
from tests.schedules.status import Status, refusal

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain
from specmesh.mesh.v1alpha1 import model_service_pb2, tokens_pb2
from specmesh.serving.errors import (
    FailedPreconditionStatus,
    ResourceExhaustedStatus,
    UnavailableStatus,
)
from specmesh.v1 import model_pb2

BROKEN = (
    Status(grpc.StatusCode.INTERNAL, "internal error"),
    Status(grpc.StatusCode.UNKNOWN, "Exception was thrown by handler."),
    refusal(UnavailableStatus("DRAINING", "going")),
    refusal(ResourceExhaustedStatus("QUEUE_FULL", "busy", retry_after_s=0.05)),
    refusal(FailedPreconditionStatus("PREFIX_UNKNOWN", "never seen")),
)
"""What a sick replica says instead of an answer."""


@dataclass(slots=True)
class Health:
    """How well a replica is; shares are of requests."""

    slow: float = 1.0
    """Times as long as usual."""
    breaks: float = 0.0
    """Answered with a status of ``BROKEN``."""
    hangs: float = 0.0
    """Never answered, while gRPC goes on answering."""
    lies: float = 0.0
    """Answered with nonsense."""

    def heal(self) -> None:
        """Be well."""
        self.slow, self.breaks, self.hangs, self.lies = 1.0, 0.0, 0.0, 0.0


class Replica:
    """One process of a role, from its start to its end. ``service`` is what it says it is."""

    service = ""
    name = ""
    """Of the model, if it has one."""

    def __init__(self, address: str, network: Network, health: Health, pace_s: float) -> None:
        self.process = Process(address)
        self.identity = f"{address} since {asyncio.get_running_loop().time()}"
        self.health = health
        self.num_at_work = 0
        """Requests not yet answered, cancelled ones left out."""
        self._network = network
        self._dice = network.rng
        self._pace_s = pace_s
        self._held: dict[bytes, list[int]] = {}
        self._methods: dict[str, Callable[[ServerCall, bytes | None], None]] = {
            "/grpc.health.v1.Health/Watch": self._watch,
            "/specmesh.mesh.v1alpha1.ModelService/GetModel": self._get_model,
            "/specmesh.mesh.v1alpha1.ModelService/GetTokenizer": self._get_tokenizer,
        }
        network.listen(address, self)

    @property
    def info(self) -> model_pb2.ModelInfo:
        """What it says of its model."""
        return model_info(self.name)

    def accept(self, call: ServerCall, request: bytes | None) -> None:
        """See ``Server``."""
        if call.method in self._methods:
            self._methods[call.method](call, request)
        elif self.health.breaks and self._dice.random() < self.health.breaks / 4:
            call.end(self._dice.choice(BROKEN))
        elif call.method.endswith("Many"):
            ManyParts(call, lambda part: Exchange(self, part))
        else:
            Exchange(self, call)

    def respond(self, message: bytes) -> Iterator[tuple[float, bytes]]:
        """What a request is answered with: messages, each with the seconds that it takes.

        Made when they are due: much of a draft is never wanted. Raises ``Refused``, at the
        first message.
        """
        raise NotImplementedError

    def resolve(self, prefix: tokens_pb2.Prefix) -> list[int]:
        """The tokens that a request's prefix names."""
        base: list[int] = []
        if prefix.base_length:
            if prefix.base_digest not in self._held:
                raise Refused(refusal(FailedPreconditionStatus("PREFIX_UNKNOWN", "never seen")))
            base = self._held[prefix.base_digest]
        tokens = [*base, *prefix.token_ids]
        if len(tokens) >= BLOCK_TOKENS:
            for number, digest in enumerate(PrefixChain(tokens).digests, start=1):
                self._held[digest] = tokens[: number * BLOCK_TOKENS]
        return tokens

    def _watch(self, call: ServerCall, request: bytes | None) -> None:
        serving = health_pb2.HealthCheckResponse.SERVING
        call.reply(health_pb2.HealthCheckResponse(status=serving).SerializeToString())

    def _get_model(self, call: ServerCall, request: bytes | None) -> None:
        response = model_service_pb2.GetModelResponse(model=self.info, process_id=self.identity)
        call.reply(response.SerializeToString())
        call.end(Status(grpc.StatusCode.OK))

    def _get_tokenizer(self, call: ServerCall, request: bytes | None) -> None:
        response = model_service_pb2.GetTokenizerResponse(data=TOKENIZER_JSON.encode())
        call.reply(response.SerializeToString())
        call.end(Status(grpc.StatusCode.OK))


class Refused(Exception):
    """Says with which status."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.details)
        self.status = status


class Exchange:
    """One open call to a replica, a request at a time; or one request of a call of many."""

    def __init__(self, replica: Replica, call: ServerCall | Part) -> None:
        self._replica = replica
        self._call = call
        self._timer: asyncio.TimerHandle | None = None
        self._messages: Iterator[tuple[float, bytes]] = iter(())
        self._at_work = False
        call.on_message = self._ask
        call.on_cancel = self._stop

    def _ask(self, message: bytes) -> None:
        replica, rng = self._replica, self._replica._dice
        health = replica.health
        replica.num_at_work += 1
        self._at_work = True
        if health.hangs and rng.random() < health.hangs:
            replica._network.trace("hang", self._call.client)
            return
        try:
            if health.breaks and rng.random() < health.breaks:
                raise Refused(rng.choice(BROKEN))
            self._messages = replica.respond(message)
            self._go_on()
        except Refused as error:
            replica._network.trace("refuse", self._call.client, error.status.code.name)
            self._stop()
            self._call.end(error.status)

    def _go_on(self) -> None:
        seconds, message = next(self._messages, (0.0, b""))
        if not message:
            self._stop()
            return
        seconds *= self._replica.health.slow * self._replica._dice.uniform(0.8, 1.2)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._say, message)

    def _say(self, message: bytes) -> None:
        self._call.reply(message)
        self._go_on()

    def _stop(self) -> None:
        if self._at_work:
            self._at_work = False
            self._replica.num_at_work -= 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def corrupted(value: int, rng: random.Random) -> Any:
    """Another number, maybe a huge one."""
    return rng.choice([value + 1, value + 1000, (1 << 32) - 1])
