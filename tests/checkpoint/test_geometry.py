"""A model's shape from its header, and the tensors that it must have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.gguf_files import bpe_tokenizer, llama_sizes, llama_tensors, write_gguf

from halogend.checkpoint import errors
from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.families import BY_GGUF
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.gguf import GgufHeader, read_header
from halogend.checkpoint.gguf_parameters import GgufParameters
from halogend.checkpoint.sizes import weight_bytes

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


def read_geometry(header: GgufHeader) -> Geometry:
    return BY_GGUF[header.architecture].read(GgufParameters(header))


def refusal(header: GgufHeader) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(header.path)
    return caught.value


def test_llama(llama: Make):
    checkpoint = open_checkpoint(llama().path)
    g = checkpoint.geometry
    assert (g.layers, g.hidden, g.heads, g.kv_heads, g.head_dim, g.ffn, g.vocab) == (2, 32, 4, 2, 8, 64, VOCAB)
    assert g.tied_embeddings
    assert g.windows == (None, None)
    assert (g.activation, g.qk_norm, g.embedding_scale) == ("silu", False, 1.0)
    assert g.query_scale == 8**-0.5
    matrices = sum(value.size for value in llama_tensors(VOCAB).values() if value.ndim > 1)
    table = 4 * VOCAB * g.hidden  # F32, beside the output matrix
    assert weight_bytes(checkpoint, "fp32", "fp32") == 4 * matrices + table
    assert weight_bytes(checkpoint, "bf16", "bf16") == 2 * matrices + table


def test_gemma3(gemma3: Make):
    g = read_geometry(gemma3())
    assert g.windows == tuple(None if index == 5 else 32 for index in range(8))
    assert g.rope_of == tuple(int(index != 5) for index in range(8))
    assert [rope.frequencies[1] for rope in g.ropes] == [1e6 ** (-1 / 8), 1e4 ** (-1 / 8)]
    assert (g.activation, g.qk_norm) == ("gelu_tanh", True)
    assert (g.query_scale, g.embedding_scale) == (0.25, 32**0.5)


def test_the_query_scale_of_the_largest_gemma3_is_by_its_width(gemma3: Make):
    assert read_geometry(gemma3(block_count=62)).query_scale == (32 / 4) ** -0.5


def test_linear_rope_scaling(gemma3: Make, llama: Make):
    scaled = {"rope__scaling__type": "linear", "rope__scaling__factor": 8.0}
    whole, local = read_geometry(gemma3(**scaled)).ropes
    assert (whole.frequencies[0], local.frequencies[0]) == (1 / 8, 1.0)
    assert read_geometry(llama(rope__scale_linear=4.0)).ropes[0].frequencies[0] == 1 / 4
    assert read_geometry(llama(rope__scaling__type="none")).ropes[0].frequencies[0] == 1.0
    unknown = refusal(llama(rope__scaling__type="dynamic"))
    assert (unknown.code, "'dynamic'" in unknown.message) == (errors.ARCHITECTURE_UNSUPPORTED, True)


@pytest.mark.parametrize(
    ("stated", "original", "found"), [(128, 128, 512), (160, 128, 512), (256, None, 1024), (4096, 128, 4096)]
)
def test_yarn_reaches_as_far_as_it_stretches_whatever_length_is_stated(
    llama: Make, stated: int, original: int | None, found: int
):
    yarn = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}
    header = llama(context_length=stated, rope__scaling__original_context_length=original, **yarn)
    assert read_geometry(header).context_length == found


def test_linear_scaling_leaves_the_stated_length(llama: Make):
    linear = {"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}
    assert read_geometry(llama(context_length=128, **linear)).context_length == 128


@pytest.mark.parametrize("scaling", ["none", "linear", "yarn"])
def test_the_factor_of_attention_multiplies_whatever_the_scaling(llama: Make, gemma3: Make, scaling: str):
    keys = {"rope__scaling__type": scaling, "rope__scaling__factor": 4.0}
    for make in (llama, gemma3):
        plain, factored = read_geometry(make(**keys)), read_geometry(make(rope__scaling__attn_factor=1.5, **keys))
        for before, after in zip(plain.ropes, factored.ropes, strict=True):
            assert after == replace(before, magnitude=1.5 * before.magnitude)


def test_gemma2_has_a_window_that_files_need_not_state(tmp_path: Path):
    assert read_geometry(read_header(gemma2(tmp_path / "a"))).windows == (4096, None, 4096, None)
    window = {"gemma2.attention.sliding_window": 64}
    assert read_geometry(read_header(gemma2(tmp_path / "b", **window))).windows == (64, None, 64, None)


def gemma2(path: Path, **metadata: Any) -> Path:
    sizes = {key.replace("llama", "gemma2"): value for key, value in llama_sizes(**{"llama.block_count": 4}).items()}
    tensors = {"token_embd.weight": np.zeros((VOCAB, 32), np.float32)}
    return write_gguf(path, sizes | metadata, tensors, architecture="gemma2")


def test_numbers_that_are_stated_for_each_layer(llama: Make):
    each = {"attention__head_count": [4, 4], "attention__head_count_kv": [2, 2], "feed_forward_length": [64, 64]}
    assert read_geometry(llama(**each)) == read_geometry(llama())
    many = {"block_count": 100, "attention__head_count_kv": [2] * 100}  # an array that is not read with the header
    assert read_geometry(llama(**many)).kv_heads == 2
    for key in each:
        error = refusal(llama(**{key: [2, 4]}))
        assert error.code == errors.ARCHITECTURE_UNSUPPORTED
        assert f"llama.{key.replace('__', '.')}" in error.message


def test_an_output_matrix_and_frequency_factors(llama: Make):
    header = llama(
        add={"output.weight": np.zeros((VOCAB, 32), np.float32), "rope_freqs.weight": np.ones(4, np.float32)}
    )
    g = open_checkpoint(header.path).geometry
    assert not g.tied_embeddings
    assert g.ropes[0].divisors == "rope_freqs"


def test_heads_that_are_turned_in_part(llama: Make):
    assert len(read_geometry(llama(rope__dimension_count=4)).ropes[0].frequencies) == 2


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
@pytest.mark.parametrize("value", [None, "seven", 0, [1, 2, 3], True])
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
        ("rope__dimension_count", 10, errors.KEY_INVALID),
        ("rope__dimension_count", 5, errors.KEY_INVALID),
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


def test_capped_logits(gemma3: Make):
    assert read_geometry(gemma3(final_logit_softcapping=30.0)).logits_softcap == 30.0
    assert read_geometry(gemma3(final_logit_softcapping=0.0)).logits_softcap == 0.0
    assert "final_logit_softcapping" in refusal(gemma3(final_logit_softcapping=-1.0)).message


def test_a_vector_of_blocks_is_named(tmp_path: Path):
    tensors = llama_tensors(VOCAB)
    path = write_gguf(tmp_path / "m.gguf", llama_sizes(), tensors, kinds={"blk.0.attn_norm.weight": "Q8_0"})
    error = refusal(read_header(path))
    assert (error.code, "blk.0.attn_norm.weight" in error.message) == (errors.TYPE_UNSUPPORTED, True)


def test_missing_surplus_and_misshapen_tensors_are_named(llama: Make):
    missing = refusal(llama(drop="blk.1.attn_k.weight"))
    assert (missing.code, "blk.1.attn_k.weight" in missing.message) == (errors.TENSOR_MISSING, True)
    assert refusal(llama(drop="token_embd.weight")).code == errors.TENSOR_MISSING
    surplus = refusal(llama(add={"blk.0.ffn_up.bias": np.zeros(64, np.float32)}))
    assert (surplus.code, "blk.0.ffn_up.bias" in surplus.message) == (errors.TENSOR_MISMATCH, True)
    misshapen = refusal(llama(feed_forward_length=65))
    assert (misshapen.code, "ffn_gate" in misshapen.message) == (errors.TENSOR_MISMATCH, True)


def test_an_embedding_with_fewer_rows_than_there_are_tokens(tmp_path: Path):
    metadata = {**llama_sizes(), **bpe_tokenizer()}
    check = [read_header(write_gguf(tmp_path / f"{rows}", metadata, llama_tensors(rows))) for rows in (272, 300, 271)]
    for header in check[:2]:
        open_checkpoint(header.path)
    error = refusal(check[2])
    assert error.code == errors.TENSOR_MISMATCH
    assert "271 rows for the 272 tokens" in error.message


@pytest.mark.models
def test_the_real_models(smollm2: Path, gemma: Path):
    open_checkpoint(gemma)
    small = open_checkpoint(smollm2)
    g = small.geometry
    assert (g.layers, g.hidden, g.heads, g.kv_heads, g.head_dim) == (30, 576, 9, 3, 64)
    assert sum(weight.rows * weight.columns for weight in small.weights.values()) == 134_515_008
