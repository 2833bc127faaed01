"""Prompts from a file, or those that come with specmesh."""

import json

import pytest
from typer import BadParameter

from specmesh.tools.kit.prompts import read_prompts


def test_prompts_are_the_texts_of_a_list_of_objects(tmp_path):
    file = tmp_path / "prompts.json"
    file.write_text(json.dumps([{"text": "one", "path": "x"}, {"text": "two"}]))
    assert read_prompts(file) == ["one", "two"]


@pytest.mark.parametrize("content", [None, "", "3", "[]", "[1]", '[{"no": 1}]'])
def test_a_file_without_prompts_is_refused_by_name(tmp_path, content):
    file = tmp_path / "prompts.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(BadParameter, match=r"prompts\.json"):
        read_prompts(file)
