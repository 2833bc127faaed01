"""An error of a library is told in one line that says what is wrong."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, Field, model_validator

from specmesh.inference.reasons import field_of, in_file, reason_of


class Config(BaseModel):
    """One of a library, such as vLLM's."""

    block_size: int = Field(16, ge=1)
    architecture: str = "Known"

    @model_validator(mode="after")
    def _check(self) -> Config:
        if self.architecture != "Known":
            raise ValueError(f"{self.architecture} is not supported\nand much advice")
        return self


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"architecture": "Strange"}, "Strange is not supported"),
        ({"block_size": 0}, "block_size: Input should be greater than or equal to 1"),
    ],
)
def test_of_what_pydantic_refuses_the_finding_is_told_and_not_the_count(values, reason):
    with pytest.raises(ValueError, match="1 validation error") as raised:
        Config(**values)
    assert reason_of(raised.value) == reason


def test_what_a_first_line_announces_is_told_with_it():
    announced = ValueError("wrong field 'size':\n    TypeError:\n  expected int\nand advice")
    assert reason_of(announced) == "wrong field 'size': TypeError: expected int"
    assert reason_of(ValueError("one of: ")) == "one of:"


def test_an_error_in_a_file_is_told_with_its_name():
    with pytest.raises(ValueError, match=r"^config: KeyError: 'gelu'$"), in_file("config"):
        raise KeyError("gelu")
    with pytest.raises(FileNotFoundError, match="weights"), in_file("config"):
        raise FileNotFoundError("weights")


def test_a_value_is_told_with_the_fields_that_contain_it():
    settings = {"hidden_act": "silu", "rope_parameters": {"factor": 4, "rope_type": "long"}}
    assert field_of(settings, "silu") == "hidden_act"
    assert field_of(settings, "long") == "rope_parameters.rope_type"
    assert field_of(settings, "gelu") is None


def test_an_error_whose_text_says_little_is_told_with_its_type():
    assert reason_of(KeyError("size")) == "KeyError: 'size'"
    assert reason_of(RuntimeError("no memory\nsee the manual")) == "no memory"
    assert reason_of(RuntimeError()) == "RuntimeError"


def _assert_something() -> None:
    raise AssertionError


def test_an_error_without_a_text_is_told_with_where_it_was_raised():
    with pytest.raises(AssertionError) as raised:
        _assert_something()
    line = _assert_something.__code__.co_firstlineno + 1
    assert reason_of(raised.value) == f"AssertionError in line {line} of {__name__}"
