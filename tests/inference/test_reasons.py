"""An error of a library is told in one line that says what is wrong."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, Field, model_validator

from specmesh.inference.model import reason_of


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
