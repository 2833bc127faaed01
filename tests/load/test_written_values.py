"""What people write on the command line: times, lengths, objectives, variations."""

from random import Random

import pytest

from specmesh.load.results.objectives import Objectives, objectives
from specmesh.load.workload.durations import seconds, written
from specmesh.load.workload.lengths import ConstantLength, Lognormal, Normal, Uniform, length
from specmesh.load.workload.variations import Variation, choose, variation


@pytest.mark.parametrize(
    ("text", "expected"),
    [("200ms", 0.2), ("2s", 2.0), ("1.5m", 90.0), ("1h", 3600.0), ("50us", 5e-5)],
)
def test_a_time_is_a_number_with_its_unit(text, expected):
    assert seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["5", "ms", "-5ms", "5 sec", "5d", ""])
def test_a_time_without_a_unit_that_there_is_is_refused(text):
    with pytest.raises(ValueError, match="write it with a unit"):
        seconds(text)


def test_times_are_said_in_the_unit_that_suits_them():
    assert [written(each) for each in (0.0123, 1.234, 250.0)] == ["12.3 ms", "1.23 s", "250 s"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("128", ConstantLength(128)),
        ("uniform:64-256", Uniform(64, 256)),
        ("normal:100,10", Normal(100, 10)),
        ("lognormal:200,0.5", Lognormal(200, 0.5)),
    ],
)
def test_a_length_is_a_number_or_a_distribution(text, expected):
    assert length(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("0", "ten", "uniform:9-3", "normal:5", "lognormal:0,1", "-4", "99999999999"),
        *(
            "normal:inf,1",
            "normal:9,inf",
            "normal:nan,1",
            "lognormal:9,nan",
            "uniform:1-2147483648",
        ),
    ],
)
def test_a_length_that_there_is_not_is_refused_with_what_there_is(text):
    with pytest.raises(ValueError, match=r"is not a length: write 128, uniform:64-256"):
        length(text)


def test_lengths_are_distributed_as_their_names_say():
    rng = Random(1)
    uniform = [Uniform(2, 4).draw(rng) for _ in range(3000)]
    assert {2: pytest.approx(1000, rel=0.2), 3: pytest.approx(1000, rel=0.2)}.items() <= {
        each: uniform.count(each) for each in (2, 3, 4)
    }.items()
    normal = [Normal(100, 20).draw(rng) for _ in range(3000)]
    assert sum(normal) / 3000 == pytest.approx(100, rel=0.02)
    lognormal = sorted(Lognormal(100, 1.0).draw(rng) for _ in range(3000))
    assert lognormal[1500] == pytest.approx(100, rel=0.1)
    assert lognormal[int(0.8413 * 3000)] == pytest.approx(272, rel=0.15)
    assert min(Normal(1, 50).draw(rng) for _ in range(100)) == 1


def test_a_length_is_never_beyond_what_a_request_can_ask_for():
    rng = Random(1)
    for wide in (length("lognormal:100,1000"), length("normal:100,1e308")):
        drawn = [wide.draw(rng) for _ in range(100)]
        assert (min(drawn), max(drawn)) == (1, 2**31 - 1)


def test_objectives_are_named_and_each_is_optional():
    assert objectives("ttft=200ms,tpot=50ms,e2e=2s") == Objectives(0.2, 0.05, 2.0)
    assert objectives("e2e=1m") == Objectives(e2e_s=60.0)
    with pytest.raises(ValueError, match="the objectives are ttft, tpot and e2e"):
        objectives("itl=3ms")
    with pytest.raises(ValueError, match="ttft is given twice"):
        objectives("ttft=500ms,ttft=5s")


def test_a_variation_has_a_weight_and_any_setting():
    found = variation("2 strategy=dsi lookahead=4 temperature=0.8 top_k=40")
    assert found == Variation(
        weight=2,
        strategy="dsi",
        options={"lookahead": 4},
        sampling={"temperature": 0.8, "top_k": 40},
    )
    assert found.name == "dsi lookahead=4 temperature=0.8 top_k=40"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("dsi", "does not begin with a weight"),
        ("0 strategy=dsi", "a weight must be finite and above 0"),
        ("1 lokahead=4", "'lokahead' is not an option; the options are: strategy, temperature"),
        ("", "'' does not begin with a weight"),
        ("1 temperature=", "temperature must be a finite number, not ''"),
        ("1 temperature=abc", "temperature must be a finite number, not 'abc'"),
        ("1 temperature=nan", "temperature must be a finite number, not 'nan'"),
        ("1 top_k=2.5", "top_k must be a whole number below 2\\^32, not '2.5'"),
        ("1 top_k=99999999999", "top_k must be a whole number below 2\\^32, not '99999999999'"),
        ("1 top_k=-1", "top_k must be a whole number below 2\\^32, not '-1'"),
        ("1 lookahead=many", "lookahead must be a whole number, not 'many'"),
    ],
)
def test_what_is_wrong_with_a_variation_is_said(text, why):
    with pytest.raises(ValueError, match=why):
        variation(text)


def test_variations_are_chosen_by_weight():
    rng = Random(2)
    both = (variation("3 strategy=dsi"), variation("1 strategy=speculative"))
    drawn = [choose(both, rng) for _ in range(4000)]
    assert drawn.count(0) == pytest.approx(3000, rel=0.05)
