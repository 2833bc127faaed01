"""What ``specmesh up`` has its processes load, by its options."""

from specmesh import models
from specmesh.cli.local.models import Backend
from specmesh.cli.up import real_models


def test_heads_are_shipped_for_the_shipped_target_in_our_own_engine_alone():
    assert real_models(None, None, 1).heads == models.heads()
    assert real_models("other", None, 1).heads is None
    assert real_models(None, None, 1, backend=Backend.VLLM).heads is None


def test_each_process_is_told_what_computes_its_model():
    chosen = real_models("big", ["small", "ngram"], 1, backend=Backend.VLLM)
    assert chosen.verifier()[:4] == ("--backend", "vllm", "--model", "big")
    small, ngram = chosen.drafters()
    assert small[:4] == ("--backend", "transformers", "--model", "small")
    assert ngram[:4] == ("--backend", "ngram", "--tokenizer", "big")
