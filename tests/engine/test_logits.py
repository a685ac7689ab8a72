"""Logits of one forward pass against transformers, row by row: finer than greedy tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from halogen_kernels import reference as reference_kernels
from support.engine_logits import largest_error
from support.tiny_models import TinyModel, tiny_gemma3, tiny_llama

TOLERANCE = 2e-5  # of the largest logit, in float32
MAKERS: dict[str, Callable[[Path], TinyModel]] = {
    "llama": lambda path: tiny_llama(path, seed=11),
    "llama-odd": lambda path: tiny_llama(path, seed=12, hidden=60, heads=5, kv_heads=1, head_dim=12, ffn=100),
    "llama-q8_0": lambda path: tiny_llama(path, seed=13, kind="Q8_0"),
    "gemma3": lambda path: tiny_gemma3(path, seed=14, window=9),
}


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("name", [name for name in MAKERS if name != "llama-q8_0"])
def test_float32_logits(tmp_path: Path, name: str, backend: str) -> None:
    assert largest_error(MAKERS[name](tmp_path / "model.gguf"), backend=backend) < TOLERANCE


def test_float32_with_bfloat16_cache_is_close(tmp_path: Path) -> None:
    error = largest_error(MAKERS["gemma3"](tmp_path / "model.gguf"), kv_cache_dtype="bf16")
    assert TOLERANCE < error < 0.02


def test_bfloat16_logits_are_close(tmp_path: Path) -> None:
    for name in ("llama", "gemma3"):
        error = largest_error(MAKERS[name](tmp_path / "model.gguf"), precision="bf16")
        assert TOLERANCE < error < 0.05, name


def test_quantised_matrices_are_what_the_file_says(tmp_path: Path) -> None:
    """Against the unquantised oracle: off by the quantisation, no more."""
    assert TOLERANCE < largest_error(MAKERS["llama-q8_0"](tmp_path / "model.gguf")) < 0.08


def test_exact_gelu_instead_of_tanh_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = MAKERS["gemma3"](tmp_path / "model.gguf")
    monkeypatch.setattr(reference_kernels, "activate", lambda x, _: F.gelu(x))
    assert largest_error(tiny, backend="reference") > 2 * TOLERANCE


@pytest.mark.parametrize("off_by", [-1, 1])
def test_window_off_by_one_is_caught(tmp_path: Path, off_by: int) -> None:
    tiny = tiny_gemma3(tmp_path / "model.gguf", seed=14, window=9)
    wrong = tiny_gemma3(tmp_path / "wrong.gguf", seed=14, window=9 + off_by)
    mixed = TinyModel(wrong.path, tiny.vocab_size, tiny.context, tiny.build)
    assert largest_error(mixed) > 100 * TOLERANCE
