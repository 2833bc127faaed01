"""POST /v1/completions, /v1/chat/completions and /v1/responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from specmesh.client import AsyncClient
from specmesh.gateway.errors import ApiError
from specmesh.gateway.field_names import renamed
from specmesh.gateway.http.hang_up import unless_gone
from specmesh.gateway.http.held import Held
from specmesh.gateway.http.long_json import long_json, written_json
from specmesh.gateway.http.sse import stream
from specmesh.gateway.model_names import ModelNames
from specmesh.gateway.requests import chats, completions
from specmesh.gateway.requests.chats import ChatRequest, chat_request
from specmesh.gateway.requests.completions import CompletionRequest, completion_request
from specmesh.gateway.requests.request import Request
from specmesh.gateway.requests.responses import responses_request
from specmesh.gateway.responses import answers
from specmesh.gateway.responses.answers import AnswerStreams, Hold
from specmesh.gateway.responses.chats import ChatStyle
from specmesh.gateway.responses.choices import ChoicesReply
from specmesh.gateway.responses.completions import CompletionStyle
from specmesh.gateway.responses.echo import echoes
from specmesh.gateway.responses.echo_alone import echo_alone
from specmesh.gateway.responses.envelope import Json
from specmesh.gateway.responses.prompt_scores import PromptLogprobs, prompt_logprobs
from specmesh.gateway.responses.reply import Reply
from specmesh.gateway.responses.response_events import ResponseReply
from specmesh.gateway.routes.reception import INLINE_BYTES, Reception
from specmesh.gateway.settings import GatewaySettings

R = TypeVar("R", CompletionRequest, ChatRequest)
Ask = Callable[[AsyncClient, R, float, Hold], AnswerStreams]


class AnswerRoutes:
    """The handlers of the calls that the model answers."""

    def __init__(self, settings: GatewaySettings, reception: Reception, names: ModelNames) -> None:
        self._settings = settings
        self._reception = reception
        self._names = names

    async def complete(self, request: HttpRequest) -> Response:
        """POST /v1/completions."""
        caller, asked = await self._reception.receive(
            request, completion_request, completions.IGNORED
        )
        compared = {} if asked.logprobs is not None else {"logprobs": "best_of"}
        request.state.record.names = {"tokens": "prompt", **compared, **asked.names}
        param = "n" if asked.n > 1 else "prompt"
        num_answers = len(asked.prompts) * asked.num_candidates
        self._check_count(num_answers, "best_of" if asked.num_candidates > asked.n else param)
        held: Held = request.state.held
        held.repeat(asked.num_candidates, len(asked.prompts), asked.prompt_bytes)
        in_mesh = self._names.translated(asked)
        timeout_s = self._settings.request_seconds
        prompts = echoes(caller.client, in_mesh, self._holding(request, "logprobs"), timeout_s)
        echoed = await unless_gone(request, prompts)
        scores = await self._prompt_scores(request, caller.client, in_mesh)
        if asked.token_limit:
            wanted = await self._asking(request, answers.complete, caller.client, in_mesh)
        else:
            wanted = await unless_gone(request, echo_alone(caller.client, in_mesh))
        reply = ChoicesReply(CompletionStyle(echoed, scores), asked, wanted)
        return await self._respond(request, asked, wanted, reply)

    async def chat(self, request: HttpRequest) -> Response:
        """POST /v1/chat/completions."""
        caller, asked = await self._reception.receive(request, chat_request, chats.IGNORED)
        request.state.record.names = asked.names
        self._check_count(asked.n, "n")
        request.state.held.repeat(asked.n)
        in_mesh = self._names.translated(asked)
        scores = await self._prompt_scores(request, caller.client, in_mesh)
        wanted = await self._asking(request, answers.chat, caller.client, in_mesh)
        style = ChatStyle(asked.parallel_tool_calls, asked.include_reasoning)
        told: Json = {"prompt_logprobs": scores[0]} if scores else {}
        reply = ChoicesReply(style, asked, wanted, told)
        return await self._respond(request, asked, wanted, reply)

    async def respond(self, request: HttpRequest) -> Response:
        """POST /v1/responses."""
        caller, asked = await self._reception.receive(request, responses_request)
        request.state.record.names = asked.names
        in_mesh = self._names.translated(asked.chat)
        wanted = await self._asking(request, answers.chat, caller.client, in_mesh)
        return await self._respond(request, asked.chat, wanted, ResponseReply(asked))

    async def _asking(
        self, request: HttpRequest, ask: Ask[R], client: AsyncClient, asked: R
    ) -> AnswerStreams:
        """Return the answers that ``ask`` asks for, in a thread if it has much to write."""
        held: Held = request.state.held
        param = renamed("logprobs", request.state.record.names)
        hold = partial(held.add, what="the log-probabilities of answers", param=param)
        making = partial(ask, client, asked, self._settings.request_seconds, hold)
        return making() if held.num_bytes <= INLINE_BYTES else await asyncio.to_thread(making)

    async def _prompt_scores(
        self, request: HttpRequest, client: AsyncClient, asked: CompletionRequest | ChatRequest
    ) -> list[PromptLogprobs]:
        hold = self._holding(request, "prompt_logprobs")
        work = prompt_logprobs(client, asked, hold, self._settings.request_seconds)
        return await unless_gone(request, work)

    def _holding(self, request: HttpRequest, param: str) -> Hold:
        """Return what holds the bytes of prompts' log-probabilities, which ``param`` asks for."""
        held: Held = request.state.held
        return partial(held.add, what="the log-probabilities of prompts times n", param=param)

    def _check_count(self, num_answers: int, param: str) -> None:
        if num_answers > self._settings.max_answers:
            raise ApiError.invalid(
                param,
                f"{param!r}: the request asks for {num_answers} answers (prompts times n); "
                f"the limit is {self._settings.max_answers}",
            )

    async def _respond(
        self, request: HttpRequest, asked: Request, wanted: AnswerStreams, reply: Reply
    ) -> Response:
        record = request.state.record
        record.model = asked.model
        record.is_stream = asked.stream
        if asked.stream:
            return await stream(request, wanted, reply, self._settings.ping_seconds)
        results = await unless_gone(request, wanted.whole())
        record.answered(results, wanted.num_candidates)
        if asked.prompt_logprobs is not None or any(result.logprobs for result in results):
            return await long_json(lambda: reply.whole(results))
        return written_json(reply.whole(results))
