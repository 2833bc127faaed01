"""TokenizerService: the target's tokenizer and chat template, for clients that have neither."""

from __future__ import annotations

import grpc.aio

from specmesh.decoding.errors import ContextExceeded
from specmesh.orchestrator.admission.accounts import Accounts
from specmesh.orchestrator.replicas.target import Target, TargetRegistry
from specmesh.orchestrator.requests.plan import check_model
from specmesh.orchestrator.requests.prompts import PromptReader, special_tokens_of
from specmesh.serving.codec.wire import check_tokens
from specmesh.v1 import tokenizer_pb2, tokenizer_pb2_grpc

TokenizeContext = grpc.aio.ServicerContext[
    tokenizer_pb2.TokenizeRequest, tokenizer_pb2.TokenizeResponse
]
DetokenizeContext = grpc.aio.ServicerContext[
    tokenizer_pb2.DetokenizeRequest, tokenizer_pb2.DetokenizeResponse
]
ApplyContext = grpc.aio.ServicerContext[
    tokenizer_pb2.ApplyChatTemplateRequest, tokenizer_pb2.ApplyChatTemplateResponse
]


class TokenizerServicer(tokenizer_pb2_grpc.TokenizerServiceServicer):
    """Implements TokenizerService with the ``prompts`` that generation uses, for equal tokens."""

    def __init__(
        self, targets: TargetRegistry, prompts: PromptReader, accounts: Accounts | None = None
    ) -> None:
        self._accounts = accounts or Accounts()
        self._targets = targets
        self._prompts = prompts

    async def Tokenize(  # noqa: N802
        self,
        request: tokenizer_pb2.TokenizeRequest,
        context: TokenizeContext,  # noqa: ARG002
    ) -> tokenizer_pb2.TokenizeResponse:
        """Return the tokens of a text, even if they are too many for a prompt."""
        target = self._target(request)
        token_ids = await self._prompts.tokenize(
            "text", request.text, target, special_tokens_of(request)
        )
        return tokenizer_pb2.TokenizeResponse(token_ids=token_ids)

    async def Detokenize(  # noqa: N802
        self,
        request: tokenizer_pb2.DetokenizeRequest,
        context: DetokenizeContext,  # noqa: ARG002
    ) -> tokenizer_pb2.DetokenizeResponse:
        """Return the text of tokens; refuse more tokens than the context holds."""
        target = self._target(request)
        num_tokens, most = len(request.token_ids), target.info.context_tokens
        if num_tokens > most:
            raise ContextExceeded("token_ids", f"{num_tokens} tokens exceed the context of {most}")
        check_tokens("token_ids", request.token_ids, target.info.vocab_size)
        text = await self._prompts.detokenize(
            request.token_ids, target, keep_special_tokens=request.keep_special_tokens
        )
        strings = []
        if request.include_token_strings:
            strings = await self._prompts.spelled(request.token_ids, target)
        return tokenizer_pb2.DetokenizeResponse(text=text, token_strings=strings)

    async def ApplyChatTemplate(  # noqa: N802
        self,
        request: tokenizer_pb2.ApplyChatTemplateRequest,
        context: ApplyContext,  # noqa: ARG002
    ) -> tokenizer_pb2.ApplyChatTemplateResponse:
        """Return the prompt rendered from a chat, even if it is too long for an answer."""
        target = self._target(request)
        rendered = await self._prompts.render(request.chat, target)
        prompt = await self._prompts.encode_chat(rendered, target)
        return tokenizer_pb2.ApplyChatTemplateResponse(
            text=rendered.text, token_ids=prompt.token_ids
        )

    def _target(
        self,
        request: tokenizer_pb2.TokenizeRequest
        | tokenizer_pb2.DetokenizeRequest
        | tokenizer_pb2.ApplyChatTemplateRequest,
    ) -> Target:
        """Return the model that ``request`` names, after charging the caller for reading it."""
        self._accounts.read(request.ByteSize())
        target = self._targets.required()
        check_model(request.model, target)
        return target
