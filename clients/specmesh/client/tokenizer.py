"""The calls of the target's tokenizer and chat template."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from specmesh.client.answers.values import ChatPrompt
from specmesh.client.connections.unary import Invoke, R
from specmesh.client.requests.build import TemplateOptions, chat_message
from specmesh.client.requests.chats import ChatMessage
from specmesh.client.requests.filled import filled
from specmesh.client.requests.option_names import check_names
from specmesh.v1 import tokenizer_pb2


class TokenizerCalls(ABC):
    """The part of ``AsyncClient`` that calls TokenizerService."""

    @abstractmethod
    async def _call(self, invoke: Invoke[R]) -> R:
        """Return the response of ``invoke`` at a target that gives one."""

    async def tokenize(
        self, text: str, *, add_special_tokens: bool | None = None, model: str = ""
    ) -> tuple[int, ...]:
        """Return the token ids of ``text``. ``add_special_tokens`` adds those that the tokenizer
        puts around every text, such as a beginning-of-text token; the default is that of a text
        prompt."""
        request = filled(
            tokenizer_pb2.TokenizeRequest,
            model=model,
            text=text,
            add_special_tokens=add_special_tokens,
        )
        response = await self._call(
            lambda target, timeout, metadata: target.tokenizer.Tokenize(
                request, timeout=timeout, metadata=metadata
            )
        )
        return tuple(response.token_ids)

    async def detokenize(
        self, token_ids: Sequence[int], *, keep_special_tokens: bool = False, model: str = ""
    ) -> str:
        """Return the text of tokens; bytes that are not UTF-8 become U+FFFD."""
        request = filled(
            tokenizer_pb2.DetokenizeRequest,
            model=model,
            token_ids=token_ids,
            keep_special_tokens=keep_special_tokens,
        )
        response = await self._call(
            lambda target, timeout, metadata: target.tokenizer.Detokenize(
                request, timeout=timeout, metadata=metadata
            )
        )
        return response.text

    async def token_strings(self, token_ids: Sequence[int], *, model: str = "") -> tuple[str, ...]:
        """Return the tokenizer's spelling of each token, such as "Ġdef" for " def"."""
        request = filled(
            tokenizer_pb2.DetokenizeRequest,
            model=model,
            token_ids=token_ids,
            include_token_strings=True,
        )
        response = await self._call(
            lambda target, timeout, metadata: target.tokenizer.Detokenize(
                request, timeout=timeout, metadata=metadata
            )
        )
        return tuple(response.token_strings)

    async def apply_chat_template(
        self,
        messages: Sequence[ChatMessage | Mapping[str, Any]],
        *,
        model: str = "",
        **template: Unpack[TemplateOptions],
    ) -> ChatPrompt:
        """Return the prompt that `chat` would make of ``messages``. Raises as `chat` does."""
        check_names(template, TemplateOptions.__annotations__)
        request = filled(
            tokenizer_pb2.ApplyChatTemplateRequest,
            model=model,
            chat=chat_message(messages, template),
        )
        response = await self._call(
            lambda target, timeout, metadata: target.tokenizer.ApplyChatTemplate(
                request, timeout=timeout, metadata=metadata
            )
        )
        return ChatPrompt(response.text, tuple(response.token_ids))
