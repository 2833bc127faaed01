import numpy as np
import pytest

from specmesh.training import pair
from specmesh.training.optimise import Schedule

TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


@pytest.fixture(autouse=True)
def _tiny_models_uncompiled(monkeypatch):
    """Tiny shapes, and no g++ on the path: compiling takes longer than the test's steps."""
    monkeypatch.setitem(pair.SHAPES, "target", TINY)
    monkeypatch.setitem(pair.SHAPES, "drafter", TINY)
    monkeypatch.setattr("shutil.which", lambda name: None)


@pytest.fixture
def schedule():
    return Schedule(
        steps=6, batch_sequences=2, sequence_tokens=16, warmup_steps=2, checkpoint_every=3
    )


@pytest.fixture
def tokens():
    """A text with something to learn: each token is a function of the one before."""
    ids = [1]
    for _ in range(999):
        ids.append((ids[-1] * 5 + 1) % 61)
    return np.array(ids, dtype=np.uint16)
