import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from specmesh import models
from specmesh.inference.models.heads.along_text import drafts_along
from specmesh.inference.models.heads.registry import load_heads
from specmesh.inference.models.loading import read_model
from specmesh.models.corpus import read_sources, split, standard_library
from specmesh.training.heldout import MOST_PROMPTS, PROMPT_TOKENS

ROOT = models.path(models.TARGET).parent
MIB = 1024 * 1024

pytestmark = pytest.mark.skipif(
    not (ROOT / "README.md").exists(), reason="the pair has not been trained in this tree"
)


def test_pair_fits_in_32_mib():
    assert sum(path.stat().st_size for path in ROOT.rglob("*") if path.is_file()) < 32 * MIB


def test_both_models_have_the_same_tokenizer():
    target, drafter = (models.path(name) for name in (models.TARGET, models.DRAFTER))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (target / file).read_bytes() == (drafter / file).read_bytes()


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [(models.TARGET, 8_000_000, 15_000_000), (models.DRAFTER, 500_000, 700_000)],
)
def test_model_loads_and_has_the_stated_size(name, low, high):
    model = AutoModelForCausalLM.from_pretrained(models.path(name))
    assert low <= model.num_parameters() <= high
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


def test_unknown_model_has_no_path():
    with pytest.raises(KeyError):
        models.path("pycode-70b")


def test_prompts_are_held_out_and_of_the_stated_length():
    held_out = json.loads((ROOT / "held_out_files.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(models.path(models.TARGET))
    prompts = models.heldout_prompts(MOST_PROMPTS)
    assert len({prompt.text for prompt in prompts}) == MOST_PROMPTS
    for prompt in prompts:
        assert held_out[prompt.path] == prompt.sha256
        assert PROMPT_TOKENS[0] <= len(tokenizer.encode(prompt.text)) <= PROMPT_TOKENS[1]


def test_no_held_out_file_is_a_training_file():
    """On the Python that the pair was trained with; another one's files differ."""
    held_out = json.loads((ROOT / "held_out_files.json").read_text())
    corpus = split(read_sources(standard_library()))
    if {file.path: file.sha256 for file in corpus.held_out} != held_out:
        pytest.skip("another version of the standard library")
    assert not set(held_out) & {file.path for file in corpus.training}
    assert not set(held_out.values()) & {file.sha256 for file in corpus.training}


def test_target_is_much_surer_of_unseen_code_than_chance():
    """About 2 nats per token; the uniform guess has 8.3."""
    model = AutoModelForCausalLM.from_pretrained(models.path(models.TARGET), dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(models.path(models.TARGET))
    losses = []
    for prompt in models.heldout_prompts()[::4]:
        ids = tokenizer(prompt.text, return_tensors="pt").input_ids
        losses.append(model(ids, labels=ids).loss.item())
    assert sum(losses) / len(losses) < 3.5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_heads_are_the_targets_in_every_number_type(dtype):
    target = read_model(str(models.path(models.TARGET)), dtype, "cpu", None)
    digest = target.describe(dtype, None, None).weights_digest
    heads = load_heads(models.path(models.HEADS), target.model, digest)
    logits = next(iter(drafts_along(heads, target.model, torch.arange(1, 9), 5)))
    assert logits.shape == (2, target.config.vocab_size)
    assert torch.isfinite(logits.max(-1).values).all()
