"""The kinds of drafter, and how each is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import numpy as np
from tokenizers import Tokenizer

from specmesh.inference.engine.unit_spec import UnitSpec
from specmesh.inference.model import (
    LanguageModel,
    ModelDescription,
    ModelNotLoadable,
    check_revision,
    reason_of,
)
from specmesh.inference.models.context.lookup import (
    ContextModel,
    NextTokenGuess,
    PromptLookup,
    RandomTokens,
)
from specmesh.inference.models.context.ngram import NGram
from specmesh.inference.models.digests import digest_of, digest_of_array
from specmesh.inference.models.simulated.settings import SimulatedDrafterSettings
from specmesh.inference.models.vllm.settings import VllmSettings
from specmesh.serving.templates.tokenizers import for_whole_texts

Backend = Literal["transformers", "vllm", "ngram", "prompt-lookup", "random", "simulated"]

_WITHOUT_A_MODEL = ("ngram", "prompt-lookup", "random")
"""Backends that guess with the target's tokenizer alone."""

TEXT_SUFFIXES = {".py", ".txt", ".md", ".rst", ".json", ".c", ".h", ".js", ".ts", ".go", ".rs"}


def load(
    backend: Backend,
    *,
    model: str,
    revision: str | None = None,
    tokenizer: str,
    corpus: str,
    ngram_order: int,
    dtype: str,
    device: str,
    cache_bytes: int | None,
    num_threads: int = 1,
    units: Sequence[UnitSpec] | None = None,
    simulated: SimulatedDrafterSettings,
    vllm: VllmSettings,
) -> LanguageModel:
    """Load the drafter of kind ``backend``; raises ``ModelNotLoadable``."""
    for refusal in vllm.refusals(backend):
        raise ModelNotLoadable(refusal)
    if backend in {"transformers", "vllm"} and not Path(model).exists():
        for close in get_close_matches(model, _WITHOUT_A_MODEL, n=1):
            raise ModelNotLoadable(f"no model {model!r}: did you mean --backend {close}?")
    if backend == "transformers":
        from specmesh.inference.models.transformers_model import TransformersModel

        return TransformersModel.load(
            model,
            revision=revision,
            dtype=dtype,
            device=device,
            cache_bytes=cache_bytes,
            units=units,
        )
    if units is not None:
        raise ModelNotLoadable(f"--units: backend {backend!r} has nothing to divide")
    if backend == "vllm":
        from specmesh.inference.models.vllm.model import VllmModel

        return VllmModel.load(
            model,
            revision=revision,
            dtype=dtype,
            device=device,
            num_threads=num_threads,
            cache_bytes=cache_bytes,
            tensor_parallel=vllm.tensor_parallel_size,
            engine_options=vllm.engine_options,
            chat_template=None,
        )
    if backend == "simulated":
        if revision is not None:
            raise ModelNotLoadable("--revision: backend 'simulated' reads no model")
        return simulated.simulated_drafter()
    loaded = _load_tokenizer(tokenizer, revision)
    vocab_size = loaded.get_vocab_size()
    name: str = backend
    guess: NextTokenGuess
    counted = ""
    if backend == "ngram":
        tokens = _count_from(corpus, loaded)
        guess = NGram(tokens, vocab_size, ngram_order)
        name = f"{ngram_order}-gram"
        counted = digest_of_array(np.asarray(tokens, np.int64))
    elif backend == "prompt-lookup":
        guess = PromptLookup(vocab_size)
    else:
        guess = RandomTokens(vocab_size)
    description = ModelDescription(
        name=name,
        vocab_size=vocab_size,
        context_tokens=0,
        end_of_text_ids=(),
        tokenizer_json=loaded.to_str(),
        num_parameters=0,
        backend=backend,
        weights_digest=digest_of(name=name, vocab_size=vocab_size, counted=counted),
    )
    return ContextModel(description, guess)


def _load_tokenizer(name: str, revision: str | None) -> Tokenizer:
    path = Path(name) / "tokenizer.json"
    try:
        if name and path.is_file():
            check_revision(name, revision)
            return for_whole_texts(Tokenizer.from_file(str(path)))
        return for_whole_texts(Tokenizer.from_pretrained(name, revision=revision or "main"))
    except ModelNotLoadable:
        raise
    except Exception as error:  # the library raises bare Exceptions
        raise ModelNotLoadable(
            f"--tokenizer {name!r} is neither a folder with a tokenizer.json "
            f"nor a Hugging Face id that can be fetched: {reason_of(error)}"
        ) from error


def _count_from(corpus: str, tokenizer: Tokenizer) -> list[int]:
    texts: list[str] = []
    if corpus:
        texts = list(_stdlib_texts() if corpus == "stdlib" else _folder_texts(Path(corpus)))
    if not texts:
        raise ModelNotLoadable(f"--corpus {corpus!r} is neither 'stdlib' nor a folder with text")
    return [token for encoding in tokenizer.encode_batch(texts) for token in encoding.ids]


def _stdlib_texts() -> Iterator[str]:
    from specmesh.models.corpus import read_sources, split, standard_library

    return (file.text for file in split(read_sources(standard_library())).training)


def _folder_texts(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in TEXT_SUFFIXES and path.is_file():
            yield path.read_text(encoding="utf-8", errors="replace")
