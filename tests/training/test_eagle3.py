"""EAGLE-3 heads are trained on what a verifier will let them see."""

import numpy as np
import pytest
import torch
from tests.inference.conftest import save, tiny_configs
from tests.training.test_heads import _trainee as make_trainee

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.heads.along_text import drafts_along
from specmesh.inference.models.heads.registry import load_heads
from specmesh.inference.models.loading import read_model
from specmesh.training.heads.eagle3 import eagle3_config, trained_layer_ids

GUESSED = torch.arange(5, 50)


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def target(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    save(folder, tiny_configs()[request.param])
    return read_model(str(folder), "float32", "cpu", None)


@pytest.fixture
def trainee(target):
    trainee = make_trainee("eagle3", target, GUESSED)
    with torch.no_grad():
        for parameter in trainee.network.parameters():
            parameter.copy_((parameter + 0.3 * torch.randn(parameter.shape)).bfloat16())
    return trainee


def test_what_is_trained_is_what_is_served(target, trainee, tmp_path):
    text = torch.randint(1, 60, (18,), generator=torch.Generator().manual_seed(2))
    trainee.save(tmp_path)
    digest = target.describe("float32", None, None).weights_digest
    served = drafts_along(load_heads(tmp_path, target.model, digest), target.model, text, 1)
    with torch.no_grad():
        trained = trainee.unroll(trainee.look(text[None]), 3)
        for guess, logits in zip(trained, served, strict=True):
            drafts = min(guess.logits.shape[1], len(logits))
            torch.testing.assert_close(
                guess.logits[0, :drafts], logits[:drafts, GUESSED], rtol=1e-3, atol=1e-3
            )


def test_a_guess_depends_on_earlier_tokens_only(trainee):
    text = torch.randint(1, 60, (1, 18), generator=torch.Generator().manual_seed(2))
    other = text.clone()
    other[0, 9] = (other[0, 9] + 1) % 60
    with torch.no_grad():
        pairs = zip(
            trainee.unroll(trainee.look(text), 3),
            trainee.unroll(trainee.look(other), 3),
            strict=True,
        )
        for mine, theirs in pairs:
            same = (mine.logits[0] - theirs.logits[0]).abs().amax(-1) < 1e-4
            # Row r guesses token r + 1 + first, having read the tokens before it.
            before = np.arange(len(same)) + mine.first < 9
            assert same[before].all()
            assert not same[~before].any()


def test_an_untrained_head_passes_on_the_deepest_state(target):
    trainee = make_trainee("eagle3", target)
    text = torch.randint(1, 60, (2, 30), generator=torch.Generator().manual_seed(2))
    trainee.start(text)
    network = trainee.network
    seen = trainee.look(text)
    states = network.fuse(seen.hidden)
    deepest = seen.hidden[..., -32:]
    normed = deepest / deepest.square().mean(-1, keepdim=True).sqrt()
    torch.testing.assert_close(states, normed, rtol=1e-4, atol=1e-4)
    output = target.model.get_output_embeddings()
    assert torch.equal(network.lm_head.weight, output.weight)


@pytest.mark.parametrize(
    ("layers", "expected"), [(2, (1, 1, 1)), (5, (2, 2, 2)), (10, (2, 5, 7)), (32, (2, 16, 29))]
)
def test_targets_of_any_depth_have_layers_to_read(layers, expected):
    assert trained_layer_ids(layers) == expected


def test_a_target_without_an_output_layer_is_refused(target, monkeypatch):
    monkeypatch.setattr(target.model, "get_output_embeddings", lambda: None)
    with pytest.raises(ModelNotLoadable, match="no output layer"):
        eagle3_config(target.model, num_guessed=60, inner_size=0, max_depth=5)
