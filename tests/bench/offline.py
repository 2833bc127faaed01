"""What tests of models without a mesh share: prompts, samplings, and a model's next logits."""

from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.trees.tree import EMPTY
from specmesh.inference.model import Cancellation

GREEDY = Sampling(mode=AcceptanceMode.GREEDY)
COUPLED = Sampling(0.8, seed=11)
PROMPTS = ([5, 6, 7], list(range(8, 40)), [30])
NUM_TOKENS = 12


def logits_after(model, tokens):
    """The model's logits for the position after ``tokens``, from a sequence of their own."""
    sequence = model.open(tokens, Cancellation(), 1)
    try:
        return sequence.score(EMPTY)[0]
    finally:
        sequence.close(())
