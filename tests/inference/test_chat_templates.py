"""Chat templates: what is read of a model's folder, and that prompts are those of transformers."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from google.protobuf import json_format
from jinja2 import TemplateError
from tests.devices import device
from tests.inference.conftest import tiny_tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from specmesh.inference.model import ModelDescription, ModelNotLoadable
from specmesh.inference.models.chat_templates import given_template, template_of
from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.mesh.v1alpha1 import model_service_pb2, model_service_pb2_grpc
from specmesh.orchestrator.chats.chat import ending_in_message, said_in, variables
from specmesh.orchestrator.replicas.target import Target
from specmesh.orchestrator.replicas.transport.peer_model import PeerModel
from specmesh.orchestrator.requests.prompts import PromptReader
from specmesh.serving.errors import InvalidArgument
from specmesh.serving.templates.chat_template import MAX_TEMPLATE_BYTES, ChatTemplate
from specmesh.serving.templates.template_language import BrokenTemplate, check_syntax, render
from specmesh.v1 import chat_pb2, generation_pb2, model_pb2
from specmesh.verifier.__main__ import VerifierService, VerifierSettings

CHATML = """
{%- for message in messages %}
    {%- if loop.first and message['role'] != 'system' %}
        {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
SYSTEM_IN_FIRST_TURN = """
{% if messages[0]['role'] == 'system' %}
    {% set rest = messages[1:] %}{% set system = messages[0]['content'] %}
{% else %}
    {% set rest = messages %}{% set system = false %}
{% endif %}
{% for message in rest %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Conversation roles must alternate user/assistant/user/...') }}
    {% endif %}
    {% if loop.index0 == 0 and system != false %}
        {% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}
    {% else %}
        {% set content = message['content'] %}
    {% endif %}
    {% if message['role'] == 'user' %}
        {{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
    {% elif message['role'] == 'assistant' %}
        {{ ' ' + content.strip() + ' ' + eos_token }}
    {% endif %}
{% endfor %}
"""
HEADERS = """
{% set loop_messages = messages %}
{% for message in loop_messages %}
{% set content = '<|h|>' + message.role + '<|/h|>\\n\\n' + message.content|trim + '<|eot|>' %}
{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}
{{ content }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|h|>assistant<|/h|>\\n\\n' }}{% endif %}
"""
NAMESPACES_AND_LOOPS = """
{%- set ns = namespace(last=-1, dots='', found=dict(a=1)) -%}
{%- for message in messages -%}
    {%- if message.role == 'tool' -%}{%- continue -%}{%- endif -%}
    {%- if loop.index > 8 -%}{%- break -%}{%- endif -%}
    {%- set ns.last = loop.index0 -%}{%- set ns.dots = ns.dots ~ '.' -%}
    [{{ loop.index }}/{{ loop.length }}{{ loop.cycle('a', 'b') }}] {{ message['content'] }}
{%- endfor -%}
{{ ns.last }}{{ ns.dots }}{{ ns.found }}{{ messages|map(attribute='role')|list|tojson }}
{{- messages[0]|tojson(indent=2) }}{{ messages|selectattr('role', 'equalto', 'user')|list|length }}
"""
GENERATION = """
{% for message in messages %}
{% if message.role == 'assistant' %}
<a>{% generation %}{% set x = 1 %}{{ message.content }}{{ loop.index }}{% endgeneration %}{{ x }}
{% else %}
<{{ message.role }}>{{ message.content }}
{% endif %}
{% endfor %}
"""
ARGUMENTS = """
{{- bos_token }}{% if tools is not none %}{{ tools | tojson(indent=4, sort_keys=true) }}{% endif %}
{%- if documents is none %}no documents{% endif %}
{%- if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}
{%- if unheard_of is not defined %}{{ unheard_of }}{% endif %}
{%- if date_string is not defined %}{% set date_string = strftime_now('%Y %B') %}{% endif %}
{{ date_string }} {{ (messages | last).content }} {{ "<größe> & 'quote'" | tojson }}
{%- macro turn(message) %}({{ message.role }}: {{ message.content | length }}){% endmacro %}
{%- for message in messages if message.role == 'user' %}{{ turn(message) }}{% endfor %}
"""
EXAMPLE = Path(__file__).parents[2] / "clients/examples/chat.jinja"
TEMPLATES = {
    "chatml": CHATML,
    "system in first turn": SYSTEM_IN_FIRST_TURN,
    "headers": HEADERS,
    "namespaces and loops": NAMESPACES_AND_LOOPS,
    "generation": GENERATION,
    "arguments": ARGUMENTS,
}

QUESTION = [{"role": "user", "content": "  abc größe 東京 🙂 <b>&amp;</b>\n"}]
TALK = [
    {"role": "system", "content": "be brief"},
    *QUESTION,
    {"role": "assistant", "content": " ab ac "},
]
TOOL = [*TALK, {"role": "tool", "content": "{}"}, {"role": "assistant", "content": "ad"}]
CHATS = {"question": QUESTION, "talk": TALK, "and a question": TALK + QUESTION, "tool": TOOL}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"größe": 1, "a": [1.5]}}}]


@dataclass(frozen=True, slots=True)
class Case:
    """A chat, in the words of transformers."""

    messages: Sequence[dict[str, str]]
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    arguments: dict[str, object] | None = None

    @property
    def message(self) -> chat_pb2.Chat:
        chat = chat_pb2.Chat(
            messages=[chat_pb2.ChatMessage(**message) for message in self.messages],
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
        )
        json_format.ParseDict(self.arguments or {}, chat.template_arguments)
        return chat

    def by_transformers(self, tokenizer: PreTrainedTokenizerFast, *, tokenize: bool):
        return tokenizer.apply_chat_template(
            list(self.messages),
            tokenize=tokenize,
            return_dict=False,
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
            **self.arguments or {},
        )


CASES = {
    **{name: Case(messages) for name, messages in CHATS.items()},
    "no generation prompt": Case(TALK, add_generation_prompt=False),
    "continued": Case(TALK, add_generation_prompt=False, continue_final_message=True),
    "continued tool": Case(TOOL, add_generation_prompt=False, continue_final_message=True),
    "arguments": Case(
        QUESTION, arguments={"tools": TOOLS, "enable_thinking": False, "date_string": "today"}
    ),
}


def tokenizer_with(chat_template: object) -> PreTrainedTokenizerFast:
    """One that puts a special token before every text, so that adding it twice would show."""
    ours = tiny_tokenizer()
    ours.add_special_tokens(["<bos>"])
    ours.post_processor = TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", ours.token_to_id("<bos>"))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=ours,
        bos_token="<bos>",
        eos_token="<eos>",
        clean_up_tokenization_spaces=False,
        chat_template=chat_template,
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES)
def test_text_is_that_of_transformers(source, case):
    tokenizer = tokenizer_with(source)
    try:
        expected = case.by_transformers(tokenizer, tokenize=False)
    except (TemplateError, ValueError) as error:
        expected = error
    if isinstance(expected, Exception):
        with pytest.raises((TemplateError, InvalidArgument)) as refused:
            prompt(source, case, tokenizer.special_tokens_map)
        if isinstance(expected, TemplateError):
            assert str(refused.value) == str(expected)
    else:
        assert prompt(source, case, tokenizer.special_tokens_map) == expected


def prompt(source: str, case: Case, special_tokens: dict[str, str]) -> str:
    chat = case.message
    text = render(source, variables(chat, said_in(chat), special_tokens), 1 << 20)
    if chat.continue_final_message:
        return ending_in_message(text, chat.messages[-1].content)
    return text


def test_the_example_for_the_shipped_model_is_in_the_shape_of_chatml():
    template = template_of(
        "toy", tokenizer_with(None), given_template(SimpleNamespace(chat_template=EXAMPLE))
    )
    case = Case([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "ab"}])
    turns = ("system\nBe brief.<|im_end|>\n", "user\nab<|im_end|>\n", "assistant\n")
    expected = "".join(f"<|im_start|>{turn}" for turn in turns)
    assert prompt(template.source_for(tools=False), case, {}) == expected


async def test_tokens_are_those_of_transformers():
    tokenizer = tokenizer_with(HEADERS)
    template = template_of("toy", tokenizer, None)
    info = model_pb2.ModelInfo(name="toy", vocab_size=61, context_tokens=4096)
    target = Target.of(PeerModel(info, tokenizer.backend_tokenizer.to_str(), template))
    reader = PromptReader()
    try:
        for case in CASES.values():
            request = generation_pb2.GenerateRequest(chat=case.message)
            tokens = await reader.read(request, target)
            assert list(tokens) == case.by_transformers(tokenizer, tokenize=True)
            assert tokens.count(tokenizer.bos_token_id) == 1
    finally:
        await reader.close()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{% for m in messages %}\n{{ m.content }", "line 2"),
        ("{% endgeneration %}", "endgeneration"),
        ("x" * (MAX_TEMPLATE_BYTES + 1), str(MAX_TEMPLATE_BYTES)),
        ("{{ " + "(" * 9999 + ")" * 9999 + " }}", "nested"),
    ],
    ids=["no end", "stray end", "too large", "too deep"],
)
def test_broken_template_is_told_where(source, said, tmp_path):
    with pytest.raises(BrokenTemplate) as refused:
        check_syntax(source)
    assert said in str(refused.value)
    file = tmp_path / "chat.jinja"
    file.write_text(source)
    with pytest.raises(ModelNotLoadable) as told:
        given_template(SimpleNamespace(chat_template=file))
    assert str(file) in str(told.value)


def test_checking_computes_nothing():
    check_syntax("{{ 9 ** (9 ** 9) }}{{ 'x' * 10 ** 12 }}")


Describe = Callable[..., ModelDescription]


@pytest.fixture
def describe(folders, tmp_path) -> Describe:
    """Loads a tiny model whose tokenizer has, or whose folder has files with, chat templates."""

    def describe(
        configured: object = None, files: dict[str, str] | None = None, given: str | None = None
    ) -> ModelDescription:
        folder = shutil.copytree(folders["llama"], tmp_path / "model")
        config = folder / "tokenizer_config.json"
        fields = json.loads(config.read_text())
        config.write_text(json.dumps(fields | {"chat_template": configured, "pad_token": "<eos>"}))
        for name, text in (files or {}).items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        return TransformersModel.load(
            str(folder), dtype="float32", device=device(), cache_bytes=1 << 16, chat_template=given
        ).description

    return describe


SPECIAL = {"eos_token": "<eos>", "pad_token": "<eos>"}


@pytest.mark.parametrize(
    ("configured", "files", "given", "expected"),
    [
        ("{{ 1 }}", {}, None, "{{ 1 }}"),
        (None, {"chat_template.jinja": "{{ 2 }}"}, None, "{{ 2 }}"),
        ("{{ 1 }}", {"chat_template.jinja": "{{ 2 }}"}, None, "{{ 2 }}"),
        (
            [
                {"name": "tool_use", "template": "{{ 3 }}"},
                {"name": "default", "template": "{{ 4 }}"},
            ],
            {},
            None,
            ("{{ 4 }}", "{{ 3 }}"),
        ),
        (
            [
                {"name": "tool_use", "template": "{% broken"},
                {"name": "default", "template": "{{ 4 }}"},
            ],
            {},
            None,
            "{{ 4 }}",
        ),
        (
            None,
            {"chat_template.jinja": "{{ 5 }}", "additional_chat_templates/rag.jinja": "{{ 6 }}"},
            None,
            "{{ 5 }}",
        ),
        (
            None,
            {
                "chat_template.jinja": "{{ 5 }}",
                "additional_chat_templates/tool_use.jinja": "{{ 6 }}",
            },
            None,
            ("{{ 5 }}", "{{ 6 }}"),
        ),
        ("{{ 1 }}", {}, "{{ 7 }}", "{{ 7 }}"),
        ("{% broken", {}, "{{ 7 }}", "{{ 7 }}"),
        (None, {}, None, None),
    ],
)
def test_template_is_found_where_models_keep_it(describe, configured, files, given, expected):
    template = describe(configured, files, given).chat_template
    if isinstance(expected, str):
        expected = (expected, "")
    if expected is None:
        assert template is None
    else:
        assert template == ChatTemplate(expected[0], SPECIAL, expected[1])


@pytest.mark.parametrize(
    ("configured", "event"),
    [
        ("{% if %}", "chat template is broken"),
        ([{"name": "tool_use", "template": "{{ 1 }}"}], "model has no default chat template"),
    ],
)
def test_model_whose_template_is_no_use_is_served_without_one(describe, configured, event, caplog):
    with caplog.at_level(logging.WARNING):
        assert describe(configured).chat_template is None
    assert event in [record.message for record in caplog.records]


async def test_template_travels_with_the_first_piece_of_the_tokenizer(
    describe, load, serve, monkeypatch
):
    monkeypatch.setattr("specmesh.inference.service.model_servicer.PIECE_BYTES", 500)
    model = load()
    names = {"default": "{{ bos_token }}größe", "tool_use": "{{ tools }}"}
    model.description = describe([{"name": n, "template": names[n]} for n in names])
    async with serve(model) as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        call = stub.GetTokenizer(model_service_pb2.GetTokenizerRequest(), timeout=20)
        first, *others = [piece async for piece in call]
    assert first.chat_template.source == "{{ bos_token }}größe"
    assert first.chat_template.tool_source == "{{ tools }}"
    assert dict(first.chat_template.special_tokens) == SPECIAL
    assert others
    assert not any(piece.HasField("chat_template") for piece in others)


async def test_model_without_a_template_sends_none(load, serve):
    async with serve(load()) as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        call = stub.GetTokenizer(model_service_pb2.GetTokenizerRequest(), timeout=20)
        assert not any([piece.HasField("chat_template") async for piece in call])


@pytest.mark.parametrize("text", [None, "{% broken", b"\xff"], ids=["absent", "broken", "no text"])
def test_verifier_does_not_start_without_the_template_it_was_given(folders, tmp_path, text):
    file = tmp_path / "chat.jinja"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    settings = VerifierSettings(model=str(folders["llama"]), chat_template=file)
    with pytest.raises(ModelNotLoadable, match=str(file)):
        VerifierService(settings).load()


@pytest.mark.parametrize("backend", ["simulated", "empty"])
def test_backend_that_reads_no_model_takes_no_template(tmp_path: Path, backend):
    settings = VerifierSettings(backend=backend, chat_template=tmp_path / "chat.jinja")
    with pytest.raises(ModelNotLoadable, match=backend):
        VerifierService(settings).load()
