"""Prompts of text become the tokens that the model knows them by, whatever its files say."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.orchestrator.model import model_info
from tests.orchestrator.tokenizer_zoo import BEGINNING, END, ZOO, as_trained, beginning_with
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from specmesh.decoding.errors import ContextExceeded, InvalidField
from specmesh.orchestrator.replicas.target import Target
from specmesh.orchestrator.replicas.transport.peer_model import PeerModel
from specmesh.orchestrator.requests.prompt_sizes import LOSSY_FACTOR
from specmesh.orchestrator.requests.prompts import INLINE_CHARS, PromptReader
from specmesh.orchestrator.text.encoding import encoded
from specmesh.v1 import generation_pb2

LONG = "hello world " * INLINE_CHARS
EACH = pytest.mark.parametrize("name", ZOO)


def target(tokenizer: Tokenizer, **changes: object) -> Target:
    fields = {"vocab_size": 1 << 12, "context_tokens": 1 << 20}
    return Target.of(PeerModel(model_info("zoo", **fields | changes), tokenizer.to_str()))


@pytest.fixture
async def reader() -> AsyncIterator[PromptReader]:
    prompts = PromptReader()
    yield prompts
    await prompts.close()


async def read(reader: PromptReader, served: Target, **fields: object) -> list[int]:
    return list(await reader.read(generation_pb2.GenerateRequest(**fields), served))


@EACH
@pytest.mark.parametrize("text", ["hi", LONG], ids=["short", "long"])
async def test_a_prompt_is_neither_cut_off_nor_padded(reader, name, text):
    as_it_comes = as_trained(ZOO[name])
    assert len(as_it_comes.encode("hi").ids) == 16
    expected = Tokenizer.from_str(ZOO[name].to_str()).encode(text).ids
    assert await read(reader, target(as_it_comes), text=text) == expected


@pytest.mark.parametrize("name", ["bert", "t5", "xglm", "gpt1", "words"])
async def test_text_that_the_tokenizer_leaves_out_takes_no_room_in_the_context(reader, name):
    served = target(ZOO[name], context_tokens=40)
    longest = max(len(entry.encode()) for entry in ZOO[name].get_vocab())
    apart = "hello" + "\u3042" * (longest * 40 // 2) + " world"
    apart = apart if name in ("t5", "xglm") else apart.replace("\u3042", " ")
    assert len(await read(reader, served, text=apart)) < 40
    most = LOSSY_FACTOR * longest * 40
    with pytest.raises(ContextExceeded, match=f"the {most} that are read of a text, 16 times"):
        await read(reader, served, text=" " * (most + 1))


@EACH
async def test_special_tokens_that_a_text_begins_with_are_not_put_before_it_again(reader, name):
    served = target(beginning_with(ZOO[name]))
    bare = await read(reader, target(ZOO[name]), text=f"{BEGINNING}hello")
    assert bare.count(bare[0]) == 1
    assert await read(reader, served, text=f"{BEGINNING}hello") == bare
    twice = await read(reader, served, text=f"{BEGINNING}hello", add_special_tokens=True)
    assert twice == [bare[0], *bare]


@EACH
async def test_special_tokens_around_a_text_are_left_out_on_request(reader, name):
    bare = await read(reader, target(ZOO[name]), text="hello")
    served = target(beginning_with(ZOO[name]))
    beginning = ZOO[name].token_to_id(BEGINNING)
    assert await read(reader, served, text="hello") == [beginning, *bare]
    assert await read(reader, served, text="hello", add_special_tokens=True) == [beginning, *bare]
    assert await read(reader, served, text="hello", add_special_tokens=False) == bare


@EACH
@pytest.mark.parametrize("special", [{}, {"add_special_tokens": True}], ids=["unset", "added"])
async def test_an_empty_text_is_no_prompt_with_or_without_special_tokens(reader, name, special):
    for served in (ZOO[name], beginning_with(ZOO[name])):
        with pytest.raises(InvalidField, match="must not be empty") as refused:
            await read(reader, target(served), text="", **special)
        assert refused.value.field == "text"


@EACH
async def test_the_beginning_of_a_text_can_be_a_prompt_by_itself(reader, name):
    beginning = [ZOO[name].token_to_id(BEGINNING)]
    for served in (ZOO[name], beginning_with(ZOO[name])):
        assert await read(reader, target(served), text=BEGINNING) == beginning


@EACH
async def test_a_token_that_the_model_lacks_is_refused_by_name(reader, name):
    tokenizer = ZOO[name]
    lacking = target(tokenizer, vocab_size=tokenizer.token_to_id("<think>"))
    with pytest.raises(InvalidField, match=r"'<think>', token .*tokens below") as refused:
        await read(reader, lacking, text="a<think>")
    assert refused.value.field == "text"
    whole = target(tokenizer, vocab_size=tokenizer.get_vocab_size())
    assert tokenizer.token_to_id("<think>") in await read(reader, whole, text="a<think>")


def test_tokens_that_the_model_lacks_are_warned_of_once_it_is_known(caplog):
    tokenizer = ZOO["gpt2"]
    target(tokenizer, vocab_size=tokenizer.get_vocab_size())
    assert caplog.records == []
    target(tokenizer, vocab_size=tokenizer.token_to_id("<think>"))
    (warned,) = caplog.records
    assert (warned.num_tokens, warned.tokens) == (2, ["<think>", "東 tool"])


async def test_special_tokens_after_a_text_stay_there(reader):
    tokenizer = beginning_with(ZOO["gpt2"])
    tokenizer.post_processor = TemplateProcessing(
        single=f"{BEGINNING} $A {END}",
        special_tokens=[(each, tokenizer.token_to_id(each)) for each in (BEGINNING, END)],
    )
    tokens = await read(reader, target(tokenizer), text=f"{BEGINNING}hello")
    assert tokens[0] == tokenizer.token_to_id(BEGINNING) != tokens[1]
    assert tokens[-1] == tokenizer.token_to_id(END)


@pytest.mark.parametrize(
    ("name", "text", "offsets"),
    [
        ("bert", "don't  return ", (0, 3, 4, 5)),
        ("t5", " hello world", (0, 6)),
        ("xglm", "\ufb01 hello", (0, 0, 0, 1)),
        ("gemma", "e\u0301 hell", (0, 1, 1, 2, 3)),
    ],
)
def test_offsets_are_those_in_the_text_as_it_is_written(name, text, offsets):
    assert encoded(text, ZOO[name], None, with_offsets=True).offsets == offsets


@EACH
@pytest.mark.parametrize("text", [f"{BEGINNING}don't", "  cafe\u0301 \u6771\U0001f642 ", "hello"])
@pytest.mark.parametrize("special", [None, True, False])
def test_offsets_never_fall_and_those_of_added_tokens_are_at_the_ends(name, text, special):
    tokenizer = beginning_with(ZOO[name])
    whole = encoded(text, tokenizer, special, with_offsets=True)
    assert len(whole.offsets) == len(whole.token_ids)
    assert [0, *sorted(whole.offsets)] == [0, *whole.offsets]
    assert whole.offsets[: whole.num_before + 1] == (0,) * (whole.num_before + 1)
    assert whole.offsets[-1] < len(text)
