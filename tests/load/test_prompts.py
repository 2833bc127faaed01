"""What is asked: made up, from files of prompts, from recorded traffic."""

import json
import math
import time

import pytest

from specmesh.load.workload.conversations import (
    Conversation,
    Listed,
    RecordedPrompts,
    Synthetic,
    Turn,
)
from specmesh.load.workload.lengths import ConstantLength, Uniform
from specmesh.load.workload.prompt_files import read_prompts
from specmesh.load.workload.trace_files import TraceEntry, read_trace

AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.2319600,110,27
2023-11-16 18:17:03.4799600,3180,8
"""
MOONCAKE = [
    {"timestamp": 27_000, "input_length": 600, "output_length": 52, "hash_ids": [0, 1]},
    {"timestamp": 30_000, "input_length": 1100, "output_length": 26, "hash_ids": [0, 2, 3]},
]

DEEP_LINE = '{"prompt": "a"}\n' + "[" * 100_000


def entry(**changed):
    return json.dumps({**MOONCAKE[0], **changed})


def said(content):
    return json.dumps({"messages": [{"role": "user", "content": content}]})


def texts(conversation):
    return [turn.text for turn in conversation.turns]


def test_random_prompts_have_the_length_and_turns_asked_for():
    made = Synthetic(prompt_tokens=Uniform(10, 20), turns=ConstantLength(3)).conversation(5, 0, 1.0)
    assert len(made.turns) == 3
    assert all(10 <= len(text.split()) <= 20 for text in texts(made))
    halved = Synthetic(prompt_tokens=ConstantLength(100)).conversation(5, 0, 0.5)
    assert len(texts(halved)[0].split()) == 50


def test_random_prompts_begin_alike_only_within_a_group():
    source = Synthetic(prompt_tokens=ConstantLength(10), prefix_groups=3, prefix_tokens=8)
    prompts = [texts(source.conversation(number, 0, 1.0))[0].split() for number in range(60)]
    assert len({tuple(words[:8]) for words in prompts}) == 3
    assert len({tuple(words[8:]) for words in prompts}) == 60
    alone = Synthetic(prompt_tokens=ConstantLength(10))
    beginnings = {tuple(texts(alone.conversation(n, 0, 1.0))[0].split()[:4]) for n in range(60)}
    assert len(beginnings) == 60


def test_listed_prompts_come_in_order_and_again_from_the_first():
    listed = Listed([Conversation((Turn("a"),)), Conversation((Turn("b"),))])
    assert [texts(listed.conversation(n, 0, 1.0)) for n in range(3)] == [["a"], ["b"], ["a"]]


def test_a_text_file_has_a_prompt_a_line(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("def f(\n\nimport os\n")
    assert [texts(each) for each in read_prompts(file)] == [["def f("], ["import os"]]


def test_json_lines_have_prompts_or_chats_and_limits(tmp_path):
    file = tmp_path / "prompts.jsonl"
    chat = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "bye"},
    ]
    lines = [{"prompt": "a", "max_tokens": 5}, {"text": "b"}, {"messages": chat}]
    file.write_text("\n".join(map(json.dumps, lines)))
    first, second, third = read_prompts(file)
    assert first == Conversation((Turn("a", 5),))
    assert texts(second) == ["b"]
    assert texts(third) == ["hi", "bye"]


@pytest.mark.parametrize("name", ["prompts.jsonl", "prompts.json", "prompts.txt"])
def test_prompts_may_have_ends_of_lines_that_no_file_has_and_their_file_a_mark(tmp_path, name):
    said = "a\u2028b\u0085c\x0cd"
    written = {
        "prompts.jsonl": json.dumps({"prompt": said}, ensure_ascii=False) + "\n",
        "prompts.json": json.dumps([{"prompt": said}], ensure_ascii=False),
        "prompts.txt": said + "\r\n",
    }
    file = tmp_path / name
    file.write_bytes(written[name].encode("utf-8-sig"))
    assert [texts(each) for each in read_prompts(file)] == [[said]]


def test_a_json_list_has_prompts_too(tmp_path):
    file = tmp_path / "prompts.json"
    file.write_text('[{"text": "a"}, {"prompt": "b", "max_tokens": 3}]')
    assert read_prompts(file) == (Conversation((Turn("a"),)), Conversation((Turn("b", 3),)))


@pytest.mark.parametrize("role", ["system", "developer"])
def test_messages_of_the_system_are_kept_with_their_conversation(tmp_path, role):
    file = tmp_path / "prompts.jsonl"
    roles = (role, "system", "user", "assistant", "user", role)
    chat = [{"role": each, "content": f"{n}"} for n, each in enumerate(roles)]
    file.write_text(json.dumps({"messages": chat}))
    (only,) = read_prompts(file)
    assert (texts(only), only.system, only.num_left_out) == (["2", "4"], ("0", "1"), 1)


def test_parts_of_a_message_are_joined(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text(said([{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]))
    (only,) = read_prompts(file)
    assert texts(only) == ["a b"]


def test_of_sharegpt_the_humans_turns_are_asked(tmp_path):
    file = tmp_path / "sharegpt.json"
    said = [("human", "a"), ("gpt", "x"), ("human", "b"), ("gpt", "y")]
    listed = [
        {"id": "1", "conversations": [{"from": who, "value": text} for who, text in said]},
        {"id": "2", "conversations": []},
    ]
    file.write_text(json.dumps(listed))
    (only,) = read_prompts(file)
    assert texts(only) == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("empty.txt", "\n", "has no prompts"),
        ("bad.jsonl", '{"prompt": "a"}\n{"prmpt": "b"}', "line 2: has no prompt, text, "),
        ("bad.jsonl", '{"prompt": "a"}\n{', "line 2: "),
        ("bad.json", '[{"conversations": [{"from": "human"}]}]', "object 0: .* has no 'value'"),
        ("bad.json", '[{"text": "a"}, {"txt": "b"}]', "object 1: has no prompt, text, "),
        ("bad.json", '["a"]', "object 0: is not an object"),
        ("bad.jsonl", '{"prompt": "a", "max_tokens": "64"}', 'line 1: max_tokens must .* not "64"'),
        ("bad.jsonl", '{"prompt": "a", "max_tokens": -5}', "line 1: max_tokens must .* not -5"),
        ("bad.jsonl", '{"prompt": "a", "max_tokens": 3.7}', "line 1: max_tokens must .* not 3.7"),
        (
            "bad.json",
            '[{"text": "a", "max_tokens": true}]',
            "object 0: max_tokens must .* not true",
        ),
        ("bad.json", f'[{{"text": "a", "max_tokens": {2**31}}}]', "object 0: max_tokens must "),
        ("bad.jsonl", said([{"type": "image_url"}]), "line 1: the content of a message must be"),
        ("bad.jsonl", said(7), "line 1: the content of a message must be text"),
        pytest.param("deep.json", "[" * 100_000, "is nested too deeply", id="deep"),
        pytest.param("deep.jsonl", DEEP_LINE, "line 2: is nested too deeply", id="deep line"),
    ],
)
def test_what_is_wrong_with_a_file_of_prompts_is_said(tmp_path, name, content, why):
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(ValueError, match=why):
        read_prompts(file)


def test_azures_trace_is_read_in_the_order_of_its_times(tmp_path):
    file = tmp_path / "azure.csv"
    file.write_text(AZURE)
    first, second, third = read_trace(file)
    assert first == TraceEntry(0.0, 3180, 8)
    assert second.at_s == pytest.approx(0.5)
    assert (third.num_prompt_tokens, third.num_output_tokens) == (110, 27)
    assert third.at_s == pytest.approx(0.752)


@pytest.mark.parametrize(
    "times",
    [
        ("2024-05-10 00:00:00+02:00", "2024-05-10 00:00:00.5000000+02:00"),
        ("2024-05-10 00:00:00.009930+00:00", "2024-05-10 00:00:00.509930+00:00"),
        ("2024-05-10 00:00:00", "2024-05-10 00:00:00.5+00:00"),
        ("2024-05-10 00:00:00+02:00", "2024-05-09 22:00:00.5000001"),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_azures_times_are_of_their_offset_or_of_utc(tmp_path, monkeypatch, zone, times):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    file = tmp_path / "azure.csv"
    rows = (f"{each},10,5" for each in times)
    file.write_text("\n".join(("TIMESTAMP,ContextTokens,GeneratedTokens", *rows)))
    try:
        assert [each.at_s for each in read_trace(file)] == [0.0, 0.5]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_mooncakes_trace_tells_which_prompts_begin_alike(tmp_path):
    file = tmp_path / "mooncake.jsonl"
    file.write_text("\n".join(map(json.dumps, MOONCAKE)))
    entries = read_trace(file)
    assert [entry.at_s for entry in entries] == [0.0, 3.0]
    recorded = RecordedPrompts(entries)
    first, second = (recorded.conversation(n, 0, 1.0) for n in range(2))
    words = [texts(each)[0].split() for each in (first, second)]
    assert [len(each) for each in words] == [600, 1100]
    assert words[0][:512] == words[1][:512]
    assert words[0][512:] != words[1][512:600]
    assert first.turns[0].num_output_tokens == 52


@pytest.mark.parametrize("content", [AZURE, entry()])
def test_a_trace_may_begin_with_blank_lines(tmp_path, content):
    file = tmp_path / "trace"
    file.write_text(content)
    there_without = read_trace(file)
    file.write_text("\n\n" + content)
    assert read_trace(file) == there_without


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("t.csv", "a,b\n1,2\n", "neither Mooncake's JSON lines nor CSV"),
        ("t.csv", AZURE + "yesterday,1,2\n", "line 5: "),
        ("t.csv", AZURE + "y" * 200_000 + ",1,2\n", "line 4: field larger than"),
        ("t.jsonl", '{"timestamp": 1}', "line 1: has no 'input_length'"),
        ("t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "has no requests"),
        ("t.csv", "\n" + AZURE + "\n2023-11-16 18:17:05,1,1e3\n", "line 7: invalid literal"),
        ("t.csv", AZURE + "2023-11-16 18:17:05,1,99999999999\n", "line 5: 99999999999 tokens"),
        ("t.jsonl", "\n" + entry(timestamp=math.nan), "line 2: timestamp must be a finite number"),
        ("t.jsonl", entry().replace("27000", "1e999"), "line 1: timestamp must be a finite number"),
        ("t.jsonl", entry(input_length=math.inf), "line 1: cannot convert float infinity"),
        ("t.jsonl", entry(input_length=1025), "line 1: hash_ids has the blocks of 1024 tokens, of"),
        pytest.param("t.jsonl", entry() + "\n" + "[" * 100_000, "line 2: is nested", id="deep"),
    ],
)
def test_what_is_wrong_with_a_trace_is_said(tmp_path, name, content, why):
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(ValueError, match=why):
        read_trace(file)
