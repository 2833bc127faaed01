"""Ask a model on a GPU for a token that it does not have, then for one that it has, and print what
each forward pass raises. The first leaves the GPU unusable for its process."""

from tests.gpu.shipped import load

from specmesh import models
from specmesh.decoding.trees.tree import EMPTY
from specmesh.inference.model import Cancellation

model = load(models.DRAFTER, "cuda")
for token in (model.description.vocab_size + 7, 1):
    try:
        model.open([token], Cancellation(), 0).score(EMPTY)
        print("nothing")  # noqa: T201 - for whom started it
    except Exception as error:
        print(type(error).__name__)  # noqa: T201
