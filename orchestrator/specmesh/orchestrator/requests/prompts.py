"""Tokenization of prompts: sizes are checked first, and long texts do not block the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.admission.fair_pool import FairPool
from specmesh.orchestrator.chats.chat import check_size, ending_in_message, said_in, variables
from specmesh.orchestrator.chats.plain_text import PlainText
from specmesh.orchestrator.chats.renderer import ChatRenderer
from specmesh.orchestrator.replicas.target import Target
from specmesh.orchestrator.requests.prompt_sizes import check_length, check_room, most_bytes
from specmesh.orchestrator.text.encoding import Encoded, encoded
from specmesh.serving.codec.wire import check_tokens
from specmesh.serving.errors import FailedPreconditionStatus
from specmesh.serving.store.stored_session import pack
from specmesh.v1 import chat_pb2, generation_pb2, tokenizer_pb2

T = TypeVar("T")

INLINE_CHARS = 2048
"""Texts this short take about a millisecond to tokenize; a thread would cost more than that."""
INLINE_TOKENS = 512
"""Sequences this short take about as little time to decode."""
DIGEST_BYTES = 16
MAX_AT_WORK = 2
"""Long texts that are tokenized concurrently."""
MAX_WAITING = 16
"""Long texts that wait for a thread; further ones are refused."""


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """The prompt that a template rendered from a chat. If the chat's content is text, ``marked`` is
    the same prompt with the template's special tokens marked, for a tokenizer that knows no
    others."""

    text: str
    marked: str | None = None


class PromptReader:
    """Turns prompts into tokens and tokens into text, for all calls of one orchestrator; long texts
    are processed in a few threads of its own."""

    def __init__(self) -> None:
        self._threads = FairPool(
            "tokenize", MAX_AT_WORK, MAX_WAITING, "long texts are waiting to be tokenized"
        )
        self._chats = ChatRenderer()

    async def close(self) -> None:
        """Stop all work in progress."""
        await self._chats.close()
        await self._threads.close()

    async def read(
        self, request: generation_pb2.GenerateRequest, target: Target
    ) -> tuple[int, ...]:
        """Return the prompt's tokens: at least one, and fewer than the context holds.

        Raises ``InvalidField``; ``ResourceExhausted`` with reason OVERLOADED if too many long texts
        are waiting; and for a chat everything that ``render`` raises.
        """
        return (await self.encode(request, target, room=1)).token_ids

    async def encode(
        self,
        request: generation_pb2.GenerateRequest,
        target: Target,
        *,
        room: int,
        with_offsets: bool = False,
    ) -> Encoded:
        """Return the prompt's tokens: at least one, and so few that the context has ``room`` for
        more; those of a text ``with_offsets`` on request. Raises what ``read`` does."""
        match request.WhichOneof("prompt"):
            case "text":
                special = special_tokens_of(request)
                prompt = await self._encode("text", request.text, target, special, with_offsets)
                return _checked("text", prompt, target, room)
            case "tokens" | "chat" as given if request.HasField("add_special_tokens"):
                raise InvalidField("add_special_tokens", f"does not apply to {given!r}")
            case "tokens":
                ids = request.tokens.ids
                check_room("tokens.ids", len(ids), target, room)
                check_tokens("tokens.ids", ids, target.info.vocab_size)
                return Encoded(tuple(ids), len(ids))
            case "chat":
                rendered = await self.render(request.chat, target)
                return _checked("chat", await self.encode_chat(rendered, target), target, room)
            case _:
                raise InvalidField("prompt", "must be set: text, tokens or chat")

    async def tokenize(
        self, field: str, text: str, target: Target, add_special_tokens: bool | None
    ) -> tuple[int, ...]:
        """Return the tokens of ``text`` from ``field``, even if they would be no valid prompt.

        Raises what ``read`` does. ``add_special_tokens`` is passed to ``encoded``."""
        return (await self._encode(field, text, target, add_special_tokens)).token_ids

    async def encode_chat(self, rendered: RenderedChat, target: Target) -> Encoded:
        """Return the tokens of a chat's prompt, even if they are too many; raises
        ``ContextExceeded`` and ``ResourceExhausted`` as ``read`` does."""
        if rendered.marked is None:
            return await self._encode("chat", rendered.text, target, False)
        check_length("chat", rendered.text, target, most_bytes(target))
        if not target.marked_tokenizer.is_made:
            return await self.in_turn(_encoded_as_marked, rendered.marked, target)
        return await self.run(len(rendered.marked), _encoded_as_marked, rendered.marked, target)

    async def _encode(
        self,
        field: str,
        text: str,
        target: Target,
        add_special_tokens: bool | None,
        with_offsets: bool = False,
    ) -> Encoded:
        check_length(field, text, target, most_bytes(target))
        work = partial(encoded, with_offsets=with_offsets)
        return await self.run(len(text), work, text, target.tokenizer, add_special_tokens)

    async def detokenize(
        self, token_ids: Sequence[int], target: Target, *, keep_special_tokens: bool
    ) -> str:
        """Return the text of ``token_ids``, which must be in the vocabulary; raises
        ``ResourceExhausted`` with reason OVERLOADED."""
        if len(token_ids) <= INLINE_TOKENS:
            return _decoded(token_ids, target, keep_special_tokens)
        return await self.in_turn(_decoded, token_ids, target, keep_special_tokens)

    async def spelled(self, token_ids: Sequence[int], target: Target) -> list[str]:
        """Return the tokenizer's spelling of each token; raises what ``detokenize`` does."""
        if len(token_ids) <= INLINE_TOKENS:
            return _spelled(token_ids, target)
        return await self.in_turn(_spelled, token_ids, target)

    async def render(self, chat: chat_pb2.Chat, target: Target) -> RenderedChat:
        """Return the prompt that the target's template renders from ``chat``.

        Raises ``InvalidField``; ``FailedPreconditionStatus`` with reason NO_CHAT_TEMPLATE;
        ``InvalidArgument`` with reason CHAT_REFUSED; ``ResourceExhausted`` with reason OVERLOADED.
        """
        most = most_bytes(target)
        check_size(chat, most)
        template = target.chat_template
        if template is None:
            name = target.info.name
            raise FailedPreconditionStatus(
                "NO_CHAT_TEMPLATE", f"the model {name!r} has no chat template", {"model": name}
            )
        said = await self.run(chat.ByteSize(), said_in, chat, template.special_tokens.keys())
        plain = None
        if chat.content_as_text:
            plain = await self.run(chat.ByteSize(), PlainText, said, target.token_bytes.spellings)
            said = plain.said
            most += plain.num_more_bytes
        text = await self._chats.render(
            template.source_for(tools=bool(chat.tools)),
            variables(chat, said, template.special_tokens),
            most,
            needed=["tools"] if chat.tools else [],
        )
        check_length("chat", text, target, most)
        if chat.continue_final_message:
            text = ending_in_message(text, said["messages"][-1]["content"])
        if plain is None:
            return RenderedChat(text)
        return RenderedChat(*await self.run(len(text), plain.restored, text))

    async def run(self, length: int, work: Callable[..., T], *arguments: Any) -> T:
        """Return ``work(*arguments)`` for a text of ``length``; use a thread, as ``in_turn`` does,
        if it is long."""
        if length <= INLINE_CHARS:
            return work(*arguments)
        return await self.in_turn(work, *arguments)

    async def in_turn(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run ``work``, which is slow for its text, in a thread; callers take turns.

        Raises what ``work`` raises, and ``ResourceExhausted`` with reason OVERLOADED."""
        return await self._threads.run(work, *arguments)


def digest_of(prompt: Sequence[int]) -> bytes:
    """Return the digest that tells whether two prompts have the same tokens."""
    return blake2b(pack(prompt), digest_size=DIGEST_BYTES, person=b"prompt").digest()


def _encoded_as_marked(text: str, target: Target) -> Encoded:
    return encoded(text, target.marked_tokenizer.made, False)


def special_tokens_of(
    request: generation_pb2.GenerateRequest | tokenizer_pb2.TokenizeRequest,
) -> bool | None:
    """Return the ``add_special_tokens`` argument of ``encoded`` for ``request``."""
    return request.add_special_tokens if request.HasField("add_special_tokens") else None


def _checked(field: str, prompt: Encoded, target: Target, room: int) -> Encoded:
    """Return ``prompt`` from ``field`` if the target can read it.

    Raises ``InvalidField`` if it has no tokens, if the context has no ``room`` behind them, or if
    the model lacks one of them."""
    if not prompt.num_own:
        raise InvalidField(field, "must not be empty")
    check_room(field, len(prompt.token_ids), target, room)
    vocab_size, last = target.info.vocab_size, max(prompt.token_ids)
    if last >= vocab_size:
        spelled = target.tokenizer.id_to_token(last)
        raise InvalidField(
            field,
            f"contains {spelled!r}, token {last} of the model's tokenizer, but the model only has "
            f"tokens below {vocab_size}",
        )
    return prompt


def _decoded(token_ids: Sequence[int], target: Target, keep_special_tokens: bool) -> str:
    (text,) = target.tokenizer.decode_batch(
        [list(token_ids)], skip_special_tokens=not keep_special_tokens
    )
    return str(text)


def _spelled(token_ids: Sequence[int], target: Target) -> list[str]:
    return [target.tokenizer.id_to_token(each) or "" for each in token_ids]
