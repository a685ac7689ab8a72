"""Dequantisation against the `gguf` package and against GGML itself, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from support.ggml_library import ggml_dequantise, ggml_quantise

from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.gguf_types import DECODABLE, GgmlType
from halogend.checkpoint.plain_types import PlainType
from halogend.engine import dequant
from halogend.engine.dequant import dequantise
from halogend.engine.embedding import Embedding

HALF_SCALES = {  # where the float16 scales of a block lie
    GgmlType.Q1_0: [0],
    GgmlType.Q4_0: [0],
    GgmlType.Q4_1: [0, 2],
    GgmlType.Q5_0: [0],
    GgmlType.Q5_1: [0, 2],
    GgmlType.Q8_0: [0],
    GgmlType.IQ4_NL: [0],
    GgmlType.MXFP4: [],
    GgmlType.NVFP4: [],
    GgmlType.Q2_K: [80, 82],
    GgmlType.Q3_K: [108],
    GgmlType.Q4_K: [0, 2],
    GgmlType.Q5_K: [0, 2],
    GgmlType.Q6_K: [208],
    GgmlType.IQ4_XS: [0],
    GgmlType.TQ1_0: [52],
    GgmlType.TQ2_0: [64],
    GgmlType.IQ1_S: [0],
    GgmlType.IQ1_M: [],  # in four parts: see `put_half`
    GgmlType.IQ2_XXS: [0],
    GgmlType.IQ2_XS: [0],
    GgmlType.IQ2_S: [0],
    GgmlType.IQ3_XXS: [0],
    GgmlType.IQ3_S: [0],
}
KINDS = list(HALF_SCALES)
NOT_IN_THE_PACKAGE = {GgmlType.Q1_0}  # it knows the size only
QUANTISED_BY_THE_PACKAGE = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4"]
WITH_OFFSETS = {GgmlType.Q4_1, GgmlType.Q5_1, GgmlType.Q2_K, GgmlType.Q4_K, GgmlType.Q5_K}
SLOW_TO_QUANTISE = {GgmlType.IQ1_S, GgmlType.IQ1_M, GgmlType.IQ2_XS, GgmlType.IQ2_S}  # GGML searches its grid first
ODD_HALVES = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x3C00, 0x0400], dtype="<u2")

by_name = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def put_half(kind: GgmlType, blocks: np.ndarray, at: int, halves: np.ndarray) -> None:
    """Sets the scales at byte `at`; IQ1_M keeps four bits of it on top of each of its last four uint16."""
    if kind is not GgmlType.IQ1_M:
        blocks[:, at : at + 2] = halves.reshape(-1, 1).view(np.uint8)
        return
    small = blocks[:, 48:].copy().view("<u2") & 0x0FFF
    quarters = (halves.reshape(-1, 1) >> np.array([0, 4, 8, 12], dtype="<u2")) & 15
    blocks[:, 48:] = (small | (quarters << 12)).astype("<u2").view(np.uint8)


def random_blocks(kind: GgmlType, count: int, seed: int) -> np.ndarray:
    """Random bytes with finite scales."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (count, kind.block_bytes), dtype=np.uint8)
    for at in [0] if kind is GgmlType.IQ1_M else HALF_SCALES[kind]:
        halves = rng.integers(0, 1 << 16, count).astype("<u2")
        halves[(halves & 0x7C00) == 0x7C00] = 0x3555
        put_half(kind, blocks, at, halves)
    return blocks


def ggml(kind: GgmlType, blocks: np.ndarray) -> np.ndarray:
    return ggml_dequantise(kind.name.lower().replace("_k", "_K"), blocks, len(blocks) * kind.block_elements)


def oracle(kind: GgmlType, blocks: np.ndarray) -> np.ndarray:
    if kind in NOT_IN_THE_PACKAGE:
        return ggml(kind, blocks)
    with np.errstate(all="ignore"):
        values = gguf.quants.dequantize(blocks.reshape(-1), gguf.GGMLQuantizationType(kind.number))
    assert values.dtype == np.float32
    return values.reshape(-1)


def ours(kind: GgmlType, blocks: np.ndarray, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    out = torch.full((len(blocks) * kind.block_elements,), float("nan"), dtype=dtype)
    dequantise(kind, torch.from_numpy(blocks.reshape(-1).copy()), out)
    return out


def same_bits(values: torch.Tensor, expected: np.ndarray) -> bool:
    return values.numpy().tobytes() == expected.tobytes()


def test_every_type_of_weights_is_tested_here():
    plain = {kind for kind in DECODABLE if kind.block_elements == 1}
    assert set(KINDS) | plain == DECODABLE
    assert {kind.name for kind in plain} == {"F64", "F32", "F16", "BF16"}
    assert {kind.name for kind in GgmlType} == {kind.name for kind in gguf.GGMLQuantizationType}


@by_name
@pytest.mark.parametrize("count", [1, 7, 3001])
def test_random_blocks_equal_the_package_bit_for_bit(kind: GgmlType, count: int):
    blocks = random_blocks(kind, count, seed=count + kind.number)
    assert same_bits(ours(kind, blocks), oracle(kind, blocks))


@by_name
def test_random_blocks_equal_ggml_itself(kind: GgmlType):
    blocks = random_blocks(kind, 301, seed=kind.number)
    got, expected = ours(kind, blocks).numpy(), ggml(kind, blocks)
    if kind in WITH_OFFSETS:  # a compiler may fuse the product and the sum
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=float(np.abs(expected).max()) * 1e-7)
    else:
        assert np.array_equal(got, expected)


@by_name
def test_odd_scales(kind: GgmlType):
    """Zeros of both signs, subnormal numbers, the largest ones, one."""
    blocks = random_blocks(kind, len(ODD_HALVES) ** 2, seed=1)
    for place, at in enumerate([0] if kind is GgmlType.IQ1_M else HALF_SCALES[kind]):
        index = np.arange(len(blocks)) // len(ODD_HALVES) ** place % len(ODD_HALVES)
        put_half(kind, blocks, at, ODD_HALVES[index])
    assert same_bits(ours(kind, blocks), oracle(kind, blocks))


@pytest.mark.parametrize("kind", [GgmlType.MXFP4, GgmlType.NVFP4], ids=lambda kind: kind.name)
def test_every_scale_of_one_byte(kind: GgmlType):
    blocks = random_blocks(kind, 256, seed=2)
    blocks[:, : 1 if kind is GgmlType.MXFP4 else 4] = np.arange(256, dtype=np.uint8).reshape(-1, 1)
    assert same_bits(ours(kind, blocks), oracle(kind, blocks))


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.slow if kind in SLOW_TO_QUANTISE else (), id=kind.name) for kind in KINDS],
)
def test_quantised_numbers(kind: GgmlType):
    """What GGML makes of a normal distribution is found again."""
    values = np.random.default_rng(kind.number).standard_normal((6, 512)).astype(np.float32)
    count = values.size // kind.block_elements
    blocks = ggml_quantise(kind.number, values, count * kind.block_bytes).reshape(count, -1)
    got = ours(kind, blocks)
    assert same_bits(got, oracle(kind, blocks))
    assert np.corrcoef(got.numpy(), values.reshape(-1))[0, 1] > 0.6


@pytest.mark.parametrize("name", QUANTISED_BY_THE_PACKAGE)
def test_what_the_package_quantised(name: str):
    kind = GgmlType[name]
    values = np.random.default_rng(kind.number).standard_normal(256 * 20).astype(np.float32)
    with np.errstate(all="ignore"):
        raw = gguf.quants.quantize(values, gguf.GGMLQuantizationType(kind.number))
    blocks = raw.reshape(-1, kind.block_bytes)
    assert same_bits(ours(kind, blocks), oracle(kind, blocks))


@by_name
def test_chunks_join_seamlessly(kind: GgmlType, monkeypatch: pytest.MonkeyPatch):
    blocks = random_blocks(kind, 11, seed=3)
    whole = ours(kind, blocks)
    for elements in (1, 2 * kind.block_elements, 10 * kind.block_elements, 11 * kind.block_elements):
        monkeypatch.setattr(dequant, "CHUNK_ELEMENTS", elements)
        assert torch.equal(ours(kind, blocks), whole)


@pytest.mark.parametrize("kind", [GgmlType.Q4_0, GgmlType.Q6_K, GgmlType.IQ3_S], ids=lambda kind: kind.name)
def test_more_than_one_whole_chunk(kind: GgmlType):
    blocks = random_blocks(kind, dequant.CHUNK_ELEMENTS // kind.block_elements + 3, seed=4)
    assert same_bits(ours(kind, blocks), oracle(kind, blocks))


@by_name
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_other_outputs_are_the_rounded_float32(kind: GgmlType, dtype: torch.dtype):
    blocks = random_blocks(kind, 50, seed=5)
    assert torch.equal(ours(kind, blocks, dtype), ours(kind, blocks).to(dtype))


@by_name
def test_rows_are_looked_up_in_every_type(kind: GgmlType):
    rows, width = 9, 2 * kind.block_elements
    blocks = random_blocks(kind, 2 * rows, seed=6)
    table = ours(kind, blocks).view(rows, width)
    embedding = Embedding(kind, torch.from_numpy(blocks.reshape(rows, -1)), width)
    tokens = torch.tensor([8, 0, 3, 3])
    assert torch.equal(embedding(tokens), table[tokens])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("types", [GgmlType, PlainType])
def test_plain_types(dtype: torch.dtype, types: type[GgmlType | PlainType]):
    names = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    values = torch.randn(1000, dtype=torch.float64).to(dtype)
    out = torch.empty(1000)
    dequantise(types[names[dtype]], values.view(torch.uint8), out)
    assert torch.equal(out, values.float())


@pytest.mark.parametrize("kind", GgmlType, ids=lambda kind: kind.name)
def test_what_the_checkpoint_check_lets_through_is_what_can_be_decoded(kind: GgmlType):
    try:
        ours(kind, np.zeros((2, kind.block_bytes), np.uint8))
    except CheckpointError:
        decoded = False
    else:
        decoded = True
    assert decoded == (kind in DECODABLE)


@pytest.mark.parametrize("kind", sorted(set(GgmlType) - DECODABLE, key=lambda kind: kind.number), ids=lambda k: k.name)
def test_a_type_that_is_no_weights_is_refused_by_name(kind: GgmlType):
    with pytest.raises(CheckpointError, match=rf"type {kind.name} "):
        ours(kind, np.zeros((1, kind.block_bytes), np.uint8))
