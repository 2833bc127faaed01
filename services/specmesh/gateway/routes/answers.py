"""POST /v1/completions, /v1/chat/completions and /v1/responses."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from specmesh.gateway.errors import ApiError
from specmesh.gateway.http.hang_up import unless_gone
from specmesh.gateway.http.held import Held
from specmesh.gateway.http.long_json import long_json
from specmesh.gateway.http.sse import stream
from specmesh.gateway.model_names import ModelNames
from specmesh.gateway.requests.chats import chat_request
from specmesh.gateway.requests.completions import completion_request
from specmesh.gateway.requests.request import Request
from specmesh.gateway.requests.responses import responses_request
from specmesh.gateway.responses import answers
from specmesh.gateway.responses.answers import AnswerStreams
from specmesh.gateway.responses.chats import ChatStyle
from specmesh.gateway.responses.choices import ChoicesReply
from specmesh.gateway.responses.completions import CompletionStyle
from specmesh.gateway.responses.echo import echoes
from specmesh.gateway.responses.reply import Reply
from specmesh.gateway.responses.response_events import ResponseReply
from specmesh.gateway.routes.reception import Reception
from specmesh.gateway.settings import GatewaySettings


class AnswerRoutes:
    """The handlers of the calls that the model answers."""

    def __init__(self, settings: GatewaySettings, reception: Reception, names: ModelNames) -> None:
        self._settings = settings
        self._reception = reception
        self._names = names

    async def complete(self, request: HttpRequest) -> Response:
        """POST /v1/completions."""
        caller, asked = await self._reception.receive(request, completion_request)
        request.state.record.names = {"tokens": "prompt", **asked.names}
        self._check_count(len(asked.prompts) * asked.n, "prompt" if asked.n == 1 else "n")
        request.state.held.repeat(asked.n)
        in_mesh = self._names.translated(asked)
        timeout_s = self._settings.request_seconds
        held: Held = request.state.held
        hold = partial(held.add, what="the log-probabilities of prompts times n", param="logprobs")
        prompts = echoes(caller.client, in_mesh, hold, timeout_s)
        echoed = await unless_gone(request, prompts)
        wanted = answers.complete(caller.client, in_mesh, timeout_s)
        reply = ChoicesReply(CompletionStyle(echoed), asked, wanted)
        return await self._respond(request, asked, wanted, reply)

    async def chat(self, request: HttpRequest) -> Response:
        """POST /v1/chat/completions."""
        caller, asked = await self._reception.receive(request, chat_request)
        request.state.record.names = asked.names
        self._check_count(asked.n, "n")
        request.state.held.repeat(asked.n)
        in_mesh = self._names.translated(asked)
        wanted = answers.chat(caller.client, in_mesh, self._settings.request_seconds)
        style = ChatStyle(asked.parallel_tool_calls, asked.include_reasoning)
        return await self._respond(request, asked, wanted, ChoicesReply(style, asked, wanted))

    async def respond(self, request: HttpRequest) -> Response:
        """POST /v1/responses."""
        caller, asked = await self._reception.receive(request, responses_request)
        request.state.record.names = asked.names
        in_mesh = self._names.translated(asked.chat)
        wanted = answers.chat(caller.client, in_mesh, self._settings.request_seconds)
        return await self._respond(request, asked.chat, wanted, ResponseReply(asked))

    def _check_count(self, num_answers: int, param: str) -> None:
        if num_answers > self._settings.max_answers:
            raise ApiError.invalid(
                param,
                f"the request asks for {num_answers} answers (prompts times n); "
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
        record.answered(results)
        if any(result.logprobs for result in results):
            return await long_json(lambda: reply.whole(results))
        return JSONResponse(reply.whole(results))
