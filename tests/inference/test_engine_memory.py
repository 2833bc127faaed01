"""What a model takes in memory under a load that wants more: real figures of a real process."""

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig

pytestmark = pytest.mark.cpu_only("memory of the process")


SCRIPT = Path(__file__).with_name("beyond_memory.py")
MANY_WIDTHS = Path(__file__).with_name("many_widths.py")
CACHE_BYTES = 128 << 20
SLACK_BYTES = 64 << 20
"""What a forward of 256 tokens may take beside KV, and what the allocator keeps of it."""


@pytest.fixture
def model_of_large_kv(save_tiny, tmp_path):
    """32 KiB a token: quickly filled."""
    config = LlamaConfig(
        vocab_size=60,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=512,
    )
    save_tiny(tmp_path, config)
    return tmp_path


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak")
def test_load_that_wants_three_times_the_cache_stays_within_it(model_of_large_kv):
    done = subprocess.run(
        [sys.executable, SCRIPT, str(model_of_large_kv), str(CACHE_BYTES)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["evicted"] > found["blocks"]
    assert found["used"] == 0
    assert found["held_bytes"] > 0.9 * CACHE_BYTES  # it was filled
    assert found["peak_bytes"] < CACHE_BYTES + SLACK_BYTES


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="only glibc tells")
@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="layers are packed for oneDNN alone"
)
def test_code_for_forwards_of_many_widths_is_not_kept():
    done = subprocess.run(
        [sys.executable, MANY_WIDTHS], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 64 << 20
