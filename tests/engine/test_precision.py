"""Weights held in eight and four bits: the model that is served is the one whose weights were rounded so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support import tiny_hf
from support.engine_logits import largest_error
from support.tiny_layouts import read_state, write_dir
from torch import Tensor

TOLERANCE = 2e-5  # of the largest logit
FAMILIES = ["llama", "qwen3_moe", "gemma2", "phi3"]


def in_8_bits(weight: Tensor) -> Tensor:
    """A scale for each row."""
    scale = weight.abs().amax(-1, keepdim=True) / 127
    return (weight / scale).round() * scale


def in_4_bits(weight: Tensor) -> Tensor:
    """Sixteen levels between the smallest and the largest of 32 values."""
    groups = weight.unflatten(-1, (-1, 32))
    low = groups.amin(-1, keepdim=True)
    scale = ((groups.amax(-1, keepdim=True) - low) / 15).half().float()
    low = low.half().float()
    return (((groups - low) / scale).round().clamp(0, 15) * scale + low).flatten(-2)


def rounded(tiny: tiny_hf.TinyDir, path: Path, precision: str) -> tiny_hf.TinyDir:
    """The twin whose matrices hold what the precision leaves of them. The output matrix keeps eight bits; the
    embedding and routers are not packed."""
    state = read_state(tiny.path)
    for name, weight in state.items():
        if weight.ndim < 2 or "embed_tokens" in name or name.endswith("mlp.gate.weight"):
            continue
        four = precision == "int4" and "lm_head" not in name
        state[name] = in_4_bits(weight) if four else in_8_bits(weight)
    write_dir(path, state, tiny.config, tiny.path)
    return replace(tiny, source=path)


@pytest.mark.parametrize("precision", ["int8", "int4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_rounded_model_is_what_answers(tmp_path: Path, family: str, precision: str) -> None:
    groups_of_32 = {"moe_intermediate_size": 64} if family == "qwen3_moe" else {}
    tiny = tiny_hf.make(family, tmp_path / "model", seed=6, tie_word_embeddings=False, **groups_of_32)
    twin = rounded(tiny, tmp_path / "rounded", precision)
    spec = {"precision": precision, "compute_dtype": "fp32", "kv_cache_dtype": "fp32"}
    assert largest_error(twin, **spec) < TOLERANCE
    assert largest_error(tiny, **spec) > 50 * TOLERANCE
