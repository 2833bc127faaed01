"""Tiny random models, servers in front of them, and a real Redis."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
import torch
from tests.devices import device
from tests.inference.rounding import assert_rounded
from tests.servers import running_server
from tests.serving.conftest import start_redis
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers import models as tokenizer_models
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

from specmesh.cli.local.redis import redis_binary
from specmesh.decoding.trees.tree import TokenTree
from specmesh.drafter.servicer import DrafterServicer
from specmesh.inference.backends.registry import Backend
from specmesh.inference.grammar.grammars import Grammars
from specmesh.inference.model import LanguageModel
from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.inference.service.features import DRAFTING, VERIFYING
from specmesh.inference.service.prefixes import PrefixResolver
from specmesh.inference.service.service import MODEL_SERVICE, InferenceService, InferenceSettings
from specmesh.mesh.v1alpha1 import drafter_pb2_grpc, verifier_pb2_grpc
from specmesh.verifier.servicer import VerifierServicer

__all__ = ["start_redis"]

VOCAB_SIZE = 60  # below MAX_CANDIDATES, so that draft distributions are whole
CONTEXT_TOKENS = 128
END_OF_TEXT_ID = 0
KV_BYTES = {"llama": 256, "gpt2": 512, "qwen2": 256}
"""What a token takes in the cache: keys and values of 2 layers in fp32."""


def tiny_tokenizer() -> Tokenizer:
    letters = [chr(ord("a") + i) for i in range(26)]
    merges = [("a", letter) for letter in letters]
    tokens = ["<eos>", *letters, *("".join(pair) for pair in merges)]
    tokens += [str(digit) for digit in range(VOCAB_SIZE - len(tokens))]
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(tokenizer_models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_next")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def tiny_configs() -> dict[str, PreTrainedConfig]:
    common = {
        "vocab_size": VOCAB_SIZE,
        "bos_token_id": END_OF_TEXT_ID,
        "eos_token_id": END_OF_TEXT_ID,
        "initializer_range": 0.3,  # far from uniform: what a token attends to must show
    }
    rotary = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT_TOKENS,
    }
    return {
        "llama": LlamaConfig(**common, **rotary),
        "gpt2": GPT2Config(**common, n_positions=CONTEXT_TOKENS, n_embd=32, n_layer=2, n_head=4),
        "qwen2": Qwen2Config(**common, **rotary),
    }


def save(folder: Path, config: PreTrainedConfig) -> None:
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tiny_tokenizer(), eos_token="<eos>", clean_up_tokenization_spaces=False
    ).save_pretrained(folder)


@pytest.fixture(scope="session")
def save_tiny() -> Callable[[Path, PreTrainedConfig], None]:
    """Saves a random model of a configuration, and a tokenizer beside it."""
    return save


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny random models in the Hugging Face layout, by architecture."""
    root = tmp_path_factory.mktemp("models")
    for name, config in tiny_configs().items():
        save(root / name, config)
    return {name: root / name for name in tiny_configs()}


@pytest.fixture(scope="session")
def load(folders: dict[str, Path]) -> Callable[..., TransformersModel]:
    """Loads a tiny model with an empty cache."""

    def load(
        architecture: str = "llama",
        cache_tokens: int = 1 << 14,
        chunk_tokens: int = 256,
    ) -> TransformersModel:
        return TransformersModel.load(
            str(folders[architecture]),
            dtype="float32",
            device=device(),
            cache_bytes=cache_tokens * KV_BYTES[architecture],
            chunk_tokens=chunk_tokens,
        )

    return load


class Plain:
    """A model alone: no cache, no mask, no batch; in double precision, so that differences are
    the rounding of what it is compared with, whatever the processor."""

    def __init__(self, folder: Path, attention: str = "sdpa") -> None:
        self.architecture = folder.name
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention)
        self.config: PreTrainedConfig = model.config
        self._model = model.double().eval()
        self._known: dict[tuple[int, ...], np.ndarray] = {}

    def after(self, tokens: Sequence[int]) -> np.ndarray:
        """Logits ``[vocab]`` after ``tokens``."""
        key = tuple(tokens)
        if key not in self._known:
            with torch.inference_mode():
                self._known[key] = self._model(torch.tensor([key])).logits[0, -1].numpy()
        return self._known[key]

    def assert_says(self, found: np.ndarray, exact: np.ndarray) -> None:
        """``found`` is ``exact``, which this model said, but for rounding in single precision."""
        assert_rounded(found, exact, self.config)

    def rows(self, prefix: Sequence[int], tree: TokenTree) -> np.ndarray:
        """Logits ``[nodes, vocab]`` after the prefix and each node of ``tree``."""
        paths = [tree.tokens_on(tree.path(node)) for node in range(len(tree) + 1)]
        return np.stack([self.after((*prefix, *path)) for path in paths])


@pytest.fixture(params=["llama", "gpt2", "qwen2"], scope="session")
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def plain(folders: dict[str, Path], architecture: str) -> Plain:
    """What the paged model must say."""
    return Plain(folders[architecture])


class BothRoles(InferenceService):
    """A verifier and a drafter on one model and one port."""

    role = "verifier"
    features = tuple({*VERIFYING, *DRAFTING})
    names = (
        "specmesh.mesh.v1alpha1.VerifierService",
        "specmesh.mesh.v1alpha1.DrafterService",
        MODEL_SERVICE,
    )

    def __init__(self, settings: InferenceSettings, model: LanguageModel) -> None:
        super().__init__(settings, Backend(name="loaded"))
        self._loaded = model

    def load(self) -> LanguageModel:
        return self._loaded

    def add_servicer(
        self,
        server: grpc.aio.Server,
        model: LanguageModel,
        prefixes: PrefixResolver,
        grammars: Grammars | None,
    ) -> None:
        verifier_pb2_grpc.add_VerifierServiceServicer_to_server(
            VerifierServicer(model, self._engine, prefixes, grammars), server
        )
        drafter_pb2_grpc.add_DrafterServiceServicer_to_server(
            DrafterServicer(model, self._engine, prefixes, grammars), server
        )


Serve = Callable[..., AbstractAsyncContextManager[grpc.aio.Channel]]


@pytest.fixture(scope="session")
def serve() -> Serve:
    """Puts a model behind gRPC on a socket of its own and gives a channel to it."""

    @asynccontextmanager
    async def serve(
        model: LanguageModel, redis_url: str | None = None
    ) -> AsyncIterator[grpc.aio.Channel]:
        settings = InferenceSettings(redis_url=redis_url, drain_seconds=0)
        async with (
            running_server(settings, BothRoles(settings, model)) as address,
            grpc.aio.insecure_channel(address) as channel,
        ):
            yield channel

    return serve


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    """A real Redis of the test's own, on a Unix socket."""
    socket = tmp_path / "redis.sock"
    options = ["--port", "0", "--unixsocket", str(socket), "--save", ""]
    with subprocess.Popen(
        [redis_binary(), *options], cwd=tmp_path, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if b"ready to accept connections" in line.lower():
                    break
            yield f"unix://{socket}"
        finally:
            process.kill()
