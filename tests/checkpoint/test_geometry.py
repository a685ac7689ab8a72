"""A model's shape from its header, and the tensors that it must have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.gguf_files import bpe_tokenizer, llama_sizes, llama_tensors, write_gguf

from halogend.checkpoint import errors
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.geometry import Geometry, read_geometry
from halogend.checkpoint.gguf import GgufHeader, read_header
from halogend.checkpoint.inventory import check_tensors

VOCAB = 48
Make = Callable[..., GgufHeader]


@pytest.fixture
def llama(tmp_path: Path) -> Make:
    """A tiny llama header; `drop` and `add` are tensors, keywords metadata."""

    def make(drop: str = "", add: dict[str, np.ndarray] | None = None, **metadata: Any) -> GgufHeader:
        tensors = {name: value for name, value in llama_tensors(VOCAB).items() if name != drop}
        keys = {f"llama.{name.replace('__', '.')}": value for name, value in metadata.items()}
        path = write_gguf(tmp_path / "m.gguf", {**llama_sizes(), **keys}, {**tensors, **(add or {})})
        return read_header(path)

    return make


@pytest.fixture
def gemma3(tmp_path: Path) -> Make:
    def make(**metadata: Any) -> GgufHeader:
        sizes = {
            "gemma3.block_count": 8,
            "gemma3.context_length": 512,
            "gemma3.embedding_length": 32,
            "gemma3.feed_forward_length": 64,
            "gemma3.attention.head_count": 4,
            "gemma3.attention.head_count_kv": 1,
            "gemma3.attention.key_length": 16,
            "gemma3.attention.value_length": 16,
            "gemma3.attention.layer_norm_rms_epsilon": 1e-6,
            "gemma3.attention.sliding_window": 32,
            "gemma3.rope.freq_base": 1e6,
        }
        keys = {f"gemma3.{name.replace('__', '.')}": value for name, value in metadata.items()}
        tensors = {"token_embd.weight": np.zeros((VOCAB, 32), np.float32)}
        return read_header(write_gguf(tmp_path / "g.gguf", {**sizes, **keys}, tensors, architecture="gemma3"))

    return make


def refusal(header: GgufHeader) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        check_tensors(header, read_geometry(header))
    return caught.value


def test_llama(llama: Make):
    header = llama()
    g = read_geometry(header)
    check_tensors(header, g)
    assert (g.layers, g.hidden, g.heads, g.kv_heads, g.head_dim, g.ffn, g.vocab) == (2, 32, 4, 2, 8, 64, VOCAB)
    assert g.tied_embeddings
    assert g.global_layers == (True, True)
    assert g.sliding_window is None
    assert (g.activation, g.qk_norm, g.embedding_scale) == ("silu", False, 1.0)
    assert g.query_scale == 8**-0.5
    assert g.kv_bytes_per_token(2) == 2 * 2 * 2 * 8 * 2
    assert g.weight_count == sum(value.size for value in llama_tensors(VOCAB).values())
    assert g.weight_bytes(4) == 4 * g.weight_count + g.table_bytes
    assert g.table_bytes == 4 * VOCAB * g.hidden  # F32


def test_gemma3(gemma3: Make):
    g = read_geometry(gemma3())
    assert g.global_layers == tuple(index == 5 for index in range(8))
    assert (g.sliding_window, g.rope_base_global, g.rope_base_local) == (32, 1e6, 1e4)
    assert (g.activation, g.qk_norm) == ("gelu_tanh", True)
    assert (g.query_scale, g.embedding_scale) == (0.25, 32**0.5)


def test_the_query_scale_of_the_largest_gemma3_is_by_its_width(gemma3: Make):
    assert read_geometry(gemma3(block_count=62)).query_scale == (32 / 4) ** -0.5


def test_linear_rope_scaling(gemma3: Make, llama: Make):
    scaled = {"rope__scaling__type": "linear", "rope__scaling__factor": 8.0}
    assert read_geometry(gemma3(**scaled)).rope_scaling_factor == 8.0
    assert read_geometry(llama(rope__scale_linear=4.0)).rope_scaling_factor == 4.0
    assert read_geometry(llama(rope__scaling__type="none")).rope_scaling_factor == 1.0
    assert refusal(llama(rope__scaling__type="yarn")).code == errors.ARCHITECTURE_UNSUPPORTED


def test_an_output_matrix_and_frequency_factors(llama: Make):
    header = llama(
        add={"output.weight": np.zeros((VOCAB, 32), np.float32), "rope_freqs.weight": np.ones(4, np.float32)}
    )
    g = read_geometry(header)
    check_tensors(header, g)
    assert not g.tied_embeddings
    assert g.rope_freqs


def test_an_unsupported_architecture_is_named_with_what_is_supported(tmp_path: Path):
    header = read_header(write_gguf(tmp_path / "m.gguf", {}, architecture="mamba"))
    error = refusal(header)
    assert error.code == errors.ARCHITECTURE_UNSUPPORTED
    for word in ("mamba", "gemma3", "llama", str(tmp_path)):
        assert word in error.message


@pytest.mark.parametrize(
    "key",
    [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
    ],
)
@pytest.mark.parametrize("value", [None, "seven", 0, [1, 2], True])
def test_a_key_that_is_missing_or_impossible_is_named(llama: Make, key: str, value: object):
    error = refusal(llama(**{key.replace(".", "__"): value}))
    assert error.code == errors.KEY_INVALID
    assert f"llama.{key}" in error.message


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("attention__head_count_kv", 3, errors.KEY_INVALID),
        ("attention__head_count", 5, errors.KEY_INVALID),
        ("rope__freq_base", float("nan"), errors.KEY_INVALID),
        ("rope__freq_base", -1.0, errors.KEY_INVALID),
        ("rope__freq_base", 1e-30, errors.KEY_INVALID),
        ("attention__key_length", 7, errors.KEY_INVALID),
        ("attention__value_length", 4, errors.ARCHITECTURE_UNSUPPORTED),
        ("rope__dimension_count", 4, errors.ARCHITECTURE_UNSUPPORTED),
        ("expert_count", 8, errors.ARCHITECTURE_UNSUPPORTED),
    ],
)
def test_values_that_contradict_each_other_or_ask_for_more(llama: Make, key: str, value: object, code: str):
    error = refusal(llama(**{key: value}))
    assert error.code == code
    assert key.replace("__", ".") in error.message


def test_heads_of_an_odd_width_that_nobody_stated(llama: Make):
    error = refusal(llama(embedding_length=36))
    assert error.code == errors.KEY_INVALID
    assert "llama.embedding_length" in error.message
    assert "heads of 9" in error.message


def test_the_other_rope_base_of_gemma3(gemma3: Make):
    assert "gemma3.rope.freq_base_swa" in refusal(gemma3(rope__freq_base_swa=0.5)).message


@pytest.mark.parametrize("name", ["blk.1.ffn_up.weight", "blk.0.attn_norm.weight", "token_embd.weight"])
def test_a_tensor_of_a_type_that_nobody_decodes_is_named(tmp_path: Path, name: str):
    tensors = llama_tensors(VOCAB)
    tensors[name] = tensors[name].astype(np.int32)
    error = refusal(read_header(write_gguf(tmp_path / "m.gguf", llama_sizes(), tensors)))
    assert error.code == errors.TYPE_UNSUPPORTED
    assert name in error.message
    assert "I32" in error.message


def test_capped_logits_are_refused(gemma3: Make):
    assert "final_logit_softcapping" in refusal(gemma3(final_logit_softcapping=30.0)).message


def test_missing_surplus_and_misshapen_tensors_are_named(llama: Make):
    missing = refusal(llama(drop="blk.1.attn_k.weight"))
    assert (missing.code, "blk.1.attn_k.weight" in missing.message) == (errors.TENSOR_MISSING, True)
    assert refusal(llama(drop="token_embd.weight")).code == errors.TENSOR_MISSING
    surplus = refusal(llama(add={"blk.0.attn_q.bias": np.zeros(32, np.float32)}))
    assert (surplus.code, "blk.0.attn_q.bias" in surplus.message) == (errors.TENSOR_MISMATCH, True)
    misshapen = refusal(llama(feed_forward_length=65))
    assert (misshapen.code, "ffn_gate" in misshapen.message) == (errors.TENSOR_MISMATCH, True)


def test_an_embedding_with_fewer_rows_than_there_are_tokens(tmp_path: Path):
    metadata = {**llama_sizes(), **bpe_tokenizer()}
    check = [read_header(write_gguf(tmp_path / f"{rows}", metadata, llama_tensors(rows))) for rows in (272, 300, 271)]
    for header in check[:2]:
        check_tensors(header, read_geometry(header))
    error = refusal(check[2])
    assert error.code == errors.TENSOR_MISMATCH
    assert "271 rows for the 272 tokens" in error.message


@pytest.mark.models
def test_the_real_models(smollm2: Path, gemma: Path):
    for path in (smollm2, gemma):
        header = read_header(path)
        check_tensors(header, read_geometry(header))
    small: Geometry = read_geometry(read_header(smollm2))
    assert (small.layers, small.hidden, small.heads, small.kv_heads, small.head_dim) == (30, 576, 9, 3, 64)
    assert small.weight_count == 134_515_008
