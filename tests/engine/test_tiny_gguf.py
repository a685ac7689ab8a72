"""The GGUF files that tests write of tiny models are what llama.cpp takes them for.

Otherwise their writer and our reader could share a mistake.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import tiny_gguf, tiny_hf
from support.engine_logits import COMPARED, engine_logits
from support.llamacpp_logits import llama_logits
from support.tiny_families import IN_GGUF, VARIANTS, WINDOW

pytestmark = pytest.mark.slow

TOLERANCE = 5e-5  # of the largest logit
GELU_TOLERANCE = 2e-3  # llama.cpp looks gelu up in a float16 table


@pytest.mark.parametrize("name", [*IN_GGUF, "mistral", "qwen2-window"])
def test_llamacpp_reads_what_transformers_reads(tmp_path: Path, name: str) -> None:
    tiny = tiny_hf.make(name, tmp_path / "hf", seed=1)
    path = tiny_gguf.from_hf(tiny, tmp_path / "model.gguf")
    reference = tiny.reference()
    # It knows no windows of these.
    lengths = [WINDOW] if name in ("mistral", "qwen2-window", "phi3-window") else [WINDOW, 60, 150]
    for length in lengths:
        tokens = torch.randint(4, tiny.vocab_size, (length,), generator=torch.Generator().manual_seed(length))
        with torch.no_grad():
            expected = reference(tokens[None]).logits[0]
        got = torch.from_numpy(llama_logits(path, tokens.tolist(), tiny.vocab_size, exact=True, threads=1))
        error = (got - expected).abs().max() / expected.abs().max()
        assert error < (GELU_TOLERANCE if VARIANTS[name].gemma else TOLERANCE)
        assert got.argmax(-1).tolist() == expected.argmax(-1).tolist()


@pytest.mark.parametrize("name", ["llama", "llama-linear", "llama-yarn", "gemma3_text"])
@pytest.mark.parametrize("key", ["attn_factor", "yarn_attn_factor"])
def test_factors_of_attention(tmp_path: Path, name: str, key: str) -> None:
    """llama.cpp heeds the first, whatever the scaling, and works the second out by itself."""
    tiny = tiny_hf.make(name, tmp_path / "hf", seed=1)
    path = tiny_gguf.from_hf(tiny, tmp_path / "model.gguf", numbers={f"rope.scaling.{key}": 1.5})
    tokens = torch.randint(4, tiny.vocab_size, (41,), generator=torch.Generator().manual_seed(0)).tolist()
    expected = torch.from_numpy(llama_logits(path, tokens, tiny.vocab_size, exact=True, threads=1))[-COMPARED:]
    error = (engine_logits(path, tokens) - expected).abs().max() / expected.abs().max()
    assert error < (GELU_TOLERANCE if VARIANTS[name].gemma else TOLERANCE)


def test_half_precision_matrices(tmp_path: Path) -> None:
    tiny = tiny_hf.make("mixtral", tmp_path / "hf", seed=1)
    tokens = list(range(4, 24))
    exact, half = (
        llama_logits(tiny_gguf.from_hf(tiny, tmp_path / kind, kind), tokens, tiny.vocab_size, exact=True, threads=1)
        for kind in ("F32", "F16")
    )
    assert 1e-5 < abs(exact - half).max() / abs(exact).max() < 0.01
