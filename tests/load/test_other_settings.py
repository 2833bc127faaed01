"""What two runs did not have in common is said in words, with both values."""

import pytest
from tests.load.conftest import workload
from tests.load.reports import run_report

from specmesh.load.html.other_settings import other_settings
from specmesh.load.workload.arrivals import Poisson, Users
from specmesh.load.workload.conversations import Synthetic
from specmesh.load.workload.lengths import ConstantLength, Uniform
from specmesh.load.workload.plan import RunLength
from specmesh.load.workload.variations import variation

MACHINE = {"system": "Linux 6.1", "processor": "AMD EPYC", "cores": 2, "memory_bytes": 2**34}


def between(old, new):
    """What differs between runs of two loads."""
    return other_settings(*(run_report(load=workload(**each)) for each in (old, new)))


def of(*texts):
    return {"variations": tuple(map(variation, texts))}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (of("1 strategy=speculative"), of("1 strategy=dsi"), ["strategy: speculative, then dsi"]),
        (of("1"), of("1 strategy=dsi"), ["strategy: the default, then dsi"]),
        (of("1 lookahead=4"), of("1 lookahead=8"), ["lookahead: 4, then 8"]),
        (
            of("1 strategy=dsi lookahead=4"),
            of("1 strategy=speculative temperature=0"),
            [
                "strategy: dsi, then speculative",
                "lookahead: 4, then the default",
                "temperature: the default, then 0.0",
            ],
        ),
        (
            of("1 strategy=dsi"),
            of("1 strategy=dsi", "3 strategy=filter"),
            ["strategies: dsi, then dsi (25 %), filter (75 %)"],
        ),
        (of("1 strategy=dsi", "3"), of("2 strategy=dsi", "6"), []),
        (
            {"arrivals": Poisson(4.0)},
            {"arrivals": Users(8)},
            [
                "arrivals: open loop, Poisson, 4 conversations per second, "
                "then closed loop, 8 users",
            ],
        ),
        (
            {},
            {"conversations": Synthetic(prompt_tokens=ConstantLength(9))},
            ["prompts: random prompts of 4 tokens, then random prompts of 9 tokens"],
        ),
        (
            {"extent": RunLength(duration_s=9.0)},
            {"extent": RunLength(duration_s=9.0, warm_up_s=2.0)},
            ["measured: 9 s, then 9 s, after 2 s of warm-up"],
        ),
        (
            {"output_tokens": None},
            {"output_tokens": Uniform(4, 8)},
            ["tokens of an answer: no limit, then 4 to 8"],
        ),
        ({}, {"ignore_end": True}, ["answers go on to their limit: no, then yes"]),
        ({}, {"think_s": 2.5}, ["pause between turns: 0 s, then 2.5 s"]),
        (
            {},
            {"cancelled_share": 0.25, "cancelled_after": ConstantLength(3)},
            ["cancelled: 0 %, then 25 %", "tokens before users leave: none, then 3"],
        ),
        ({}, {"timeout_s": 5.0}, ["deadline: 60 s, then 5 s"]),
        ({}, {"words_per_token": 0.75}, []),
    ],
)
def test_another_load_is_told_in_words(old, new, said):
    assert between(old, new) == said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({"seed": 0}, {"seed": 3}, ["seed: 0, then 3"]),
        ({"chat": False}, {"chat": True}, ["requests: texts, then chats"]),
        ({"processes": 1}, {"processes": 4}, ["processes of the generator: 1, then 4"]),
        ({"model": "a"}, {"model": "b"}, ["model: a, then b"]),
        ({"model": "a"}, {"model": ""}, []),  # A report of old doesn't tell.
        ({"server": "gRPC a:1"}, {"server": "gRPC b:1", "command": "specmesh load run b"}, []),
        (
            {"machine": {**MACHINE, "load_average": [0.1]}},
            {"machine": {**MACHINE, "cores": 8, "load_average": [9.0]}},
            [
                "machine of the generator: 2 cores of AMD EPYC, 16 GiB, Linux 6.1, "
                "then 8 cores of AMD EPYC, 16 GiB, Linux 6.1"
            ],
        ),
    ],
)
def test_another_setting_is_told_in_words(old, new, said):
    assert other_settings(run_report(**old), run_report(**new)) == said


def test_a_load_average_is_no_setting():
    busy = run_report(machine={**MACHINE, "load_average": [9.0]})
    assert other_settings(run_report(machine={**MACHINE, "load_average": [0.1]}), busy) == []


def test_what_an_older_report_lacks_is_not_taken_for_another_value():
    old = run_report()
    del old["setting"]["workload"]["cancelled_after"]
    assert other_settings(old, run_report()) == other_settings(run_report(), old) == []


def test_a_later_key_is_told_by_its_name():
    reports = [run_report(), run_report()]
    for number, each in enumerate(reports):
        each["setting"]["workload"]["some_later_s"] = number
    assert other_settings(*reports) == ["some later s: 0, then 1"]
