"""Which sessions keep their blocks when there are not enough for all."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field

from tests.forks import surroundings
from tests.vllm import PYTHON, START_SECONDS, needs_vllm

from specmesh import models
from specmesh.inference.models.vllm.precedence import MAX_AHEAD, MAX_STEPS, Precedence, in_order

STEP = 100


@dataclass
class IdleCall:
    name: str
    precedence: Precedence = field(default_factory=Precedence)


def idle(name: str, num_ahead: int = 0, num_steps: int = 0) -> IdleCall:
    return IdleCall(name, Precedence(num_ahead, STEP - num_steps))


def names(requests: list[IdleCall]) -> list[str]:
    return [each.name for each in requests]


def test_of_sessions_that_take_turns_the_one_served_last_gives_up_its_blocks_first():
    others, keeping = in_order([idle("first"), idle("second"), idle("third")], STEP)
    assert not others
    assert names(keeping) == ["third", "second", "first"]


def test_a_session_that_may_have_ended_gives_up_its_blocks_before_those_that_go_on():
    ended = [idle("long ago", num_steps=MAX_STEPS + 2), idle("lately", num_steps=MAX_STEPS + 1)]
    others, keeping = in_order([*ended, idle("now", num_steps=MAX_STEPS)], STEP)
    assert names(others) == ["long ago", "lately"]
    assert names(keeping) == ["now"]


def test_a_session_that_went_ahead_often_enough_keeps_nothing_from_others():
    others, keeping = in_order([idle("had", MAX_AHEAD), idle("has", MAX_AHEAD - 1)], STEP)
    assert names(others) == ["had"]
    assert names(keeping) == ["has"]


NUM_PROMPT_TOKENS, NUM_SESSIONS, NUM_CALLS = 224, 6, 24
CACHE_BYTES = 6 << 20
"""Of the shipped target, 1,184 tokens: five prompts."""
SESSIONS = """
import sys
from random import Random
from specmesh.decoding.prefix import PrefixChain
from specmesh.inference.models.vllm.core import Core
from specmesh.inference.models.vllm.options import CoreOptions
folder, *numbers = sys.argv[1:]
cache_bytes, num_prompt_tokens, num_sessions, num_calls = map(int, numbers)
core = Core(CoreOptions(folder, "float32", "cpu", 1024, cache_bytes, 64, 512, 256, 1, 1))
random = Random(1)
texts = [random.choices(range(4096), k=num_prompt_tokens) for _ in range(num_sessions)]
left, under_way, num_computed = [num_calls] * num_sessions, {}, 0
while any(left):
    for number, text in enumerate(texts):
        if left[number] and number not in under_way.values():
            under_way[core.add(PrefixChain(text), len(text) - 1)] = number
    for name, part in core.step().items():
        num_computed += part.num_computed
        if part.is_last:
            number = under_way.pop(name)
            left[number] -= 1
            texts[number].append(number)
            if left[number] == num_calls - 1:
                print("first", sum(num_calls - each for each in left))
print("computed", num_computed)
"""


@needs_vllm
def test_sessions_that_need_more_than_all_blocks_seldom_read_their_prompts_again():
    """And the one that finds no room is not kept waiting until others end."""
    sizes = (CACHE_BYTES, NUM_PROMPT_TOKENS, NUM_SESSIONS, NUM_CALLS)
    done = subprocess.run(
        [str(PYTHON), "-c", SESSIONS, str(models.path(models.TARGET)), *map(str, sizes)],
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=True,
        env=surroundings(),
    )
    told = [line.split() for line in done.stdout.splitlines()]
    *_, last_first = [int(number) for what, number in told if what == "first"]
    (num_computed,) = [int(number) for what, number in told if what == "computed"]
    assert last_first <= (NUM_SESSIONS - 1) * (MAX_AHEAD + 2)
    once = NUM_SESSIONS * NUM_PROMPT_TOKENS
    assert num_computed <= 3 * once + NUM_SESSIONS * NUM_CALLS
