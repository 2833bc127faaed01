"""POST /tokenize and /detokenize, as vLLM's server has them."""

from __future__ import annotations

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from specmesh.client import AsyncClient
from specmesh.gateway.http.hang_up import unless_gone
from specmesh.gateway.http.long_json import long_json
from specmesh.gateway.model_names import ModelNames
from specmesh.gateway.requests.tokenization import (
    TokenizeChat,
    TokenizeText,
    detokenize_request,
    tokenize_request,
)
from specmesh.gateway.responses.envelope import Json
from specmesh.gateway.routes.reception import Reception


class TokenizerRoutes:
    """The handlers of the calls that the model's tokenizer and chat template answer."""

    def __init__(self, reception: Reception, names: ModelNames) -> None:
        self._reception = reception
        self._names = names

    async def tokenize(self, request: HttpRequest) -> Response:
        """POST /tokenize."""
        request.state.record.names = {"tokens": "return_token_strs"}
        caller, asked = await self._reception.receive(request, tokenize_request)
        request.state.record.model = asked.model
        told = await unless_gone(request, self._tokens(caller.client, asked))
        return await long_json(lambda: told)

    async def detokenize(self, request: HttpRequest) -> Response:
        """POST /detokenize."""
        caller, asked = await self._reception.receive(request, detokenize_request)
        request.state.record.model = asked.model
        work = caller.client.detokenize(
            asked.tokens, keep_special_tokens=True, model=self._names.in_mesh(asked.model)
        )
        return JSONResponse({"prompt": await unless_gone(request, work)})

    async def _tokens(self, client: AsyncClient, asked: TokenizeText | TokenizeChat) -> Json:
        models = await client.list_models()
        served = self._names.find(models, asked.model) if asked.model else models[0]
        model = served.target.name
        if isinstance(asked, TokenizeText):
            tokens = await client.tokenize(
                asked.prompt, add_special_tokens=asked.add_special_tokens, model=model
            )
        else:
            messages = [message.spoken for message in asked.messages]
            prompt = await client.apply_chat_template(messages, model=model, **asked.chat_keywords)
            tokens = prompt.token_ids
        strings = None
        if asked.return_token_strs:
            # The mesh spells no more at a time than its context holds.
            most = served.target.context_tokens or len(tokens)
            strings = [
                spelled
                for start in range(0, len(tokens), most)
                for spelled in await client.token_strings(tokens[start : start + most], model=model)
            ]
        return {
            "count": len(tokens),
            "max_model_len": served.target.context_tokens,
            "tokens": list(tokens),
            "token_strs": strings,
        }
