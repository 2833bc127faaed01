"""What ``specmesh up`` has its processes load, by its options."""

import pytest
import typer

from specmesh import models
from specmesh.cli.local.model_options import PairOptions, check_revisions
from specmesh.cli.local.models import DRAFTER_BACKENDS, EngineBackend, RealModels
from specmesh.inference.backends.registry import backends, names


def test_heads_are_shipped_for_the_shipped_target_in_our_own_engine_alone():
    assert PairOptions().real_models(1).heads == models.heads()
    assert PairOptions(target="other").real_models(1).heads is None
    assert PairOptions().real_models(1, backend=EngineBackend.VLLM).heads is None


def test_every_drafter_without_a_model_is_offered():
    assert [name for name in names("drafter") if backends()[name].reads == "tokenizer"] == [
        *DRAFTER_BACKENDS
    ]


def test_each_process_is_told_what_computes_its_model():
    pair = PairOptions(target="big", drafter=["small", "ngram"])
    chosen = pair.real_models(1, backend=EngineBackend.VLLM)
    assert chosen.verifier()[:4] == ("--backend", "vllm", "--model", "big")
    small, ngram = chosen.drafters()
    assert small[:4] == ("--backend", "transformers", "--model", "small")
    assert ngram[:4] == ("--backend", "ngram", "--tokenizer", "big")


def test_each_process_is_told_the_revision_of_what_it_reads():
    names = ("a/small", "ngram", "a/smaller")
    chosen = RealModels("a/big", names, revision="v1", drafter_revisions=("v2", "v3"))
    check_revisions(chosen)
    told = [chosen.verifier(), *chosen.drafters()]
    revisions = [each[each.index("--revision") + 1] for each in told]
    assert revisions == ["v1", "v2", "v1", "v3"]


def test_nobody_is_told_a_revision_that_was_not_given():
    chosen = RealModels("a/big", ("a/small", "ngram"))
    check_revisions(chosen)
    assert not any("--revision" in each for each in (chosen.verifier(), *chosen.drafters()))


@pytest.mark.parametrize(
    ("target", "drafters", "revision", "revisions", "reason"),
    [
        (
            "a/big",
            ("a/small", "ngram"),
            "",
            ("v1", "v2"),
            "2 times, but the number of drafters that are models is 1",
        ),
        ("{here}", ("a/small",), "v1", (), "--revision is for .*is a folder"),
        ("a/big", ("a/small", "{here}"), "", ("v1", "v2"), "--drafter-revision is for .* folder"),
    ],
)
def test_a_revision_of_what_has_none_is_refused_before_anything_loads(
    tmp_path, target, drafters, revision, revisions, reason
):
    target, *drafters = (name.format(here=tmp_path) for name in (target, *drafters))
    chosen = RealModels(target, tuple(drafters), revision=revision, drafter_revisions=revisions)
    with pytest.raises(typer.BadParameter, match=reason):
        check_revisions(chosen)
