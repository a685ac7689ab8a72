"""Dequantisation against the `gguf` package, bit for bit, on random bytes."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.gguf_types import DECODABLE, GgmlType
from halogend.engine import dequant
from halogend.engine.dequant import dequantise

NATIVE = [GgmlType.Q4_0, GgmlType.Q4_1, GgmlType.Q5_0, GgmlType.Q8_0, GgmlType.Q4_K, GgmlType.Q6_K]
FALLBACK = [GgmlType.Q5_1, GgmlType.Q5_K, GgmlType.Q3_K, GgmlType.IQ4_NL]
HALF_SCALES = {  # where the float16 scales of a block lie
    GgmlType.Q4_0: [0],
    GgmlType.Q4_1: [0, 2],
    GgmlType.Q5_0: [0],
    GgmlType.Q8_0: [0],
    GgmlType.Q4_K: [0, 2],
    GgmlType.Q6_K: [208],
}
ODD_HALVES = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x3C00, 0x0400], dtype="<u2")


def random_blocks(kind: GgmlType, count: int, seed: int) -> np.ndarray:
    """Random bytes with finite scales."""
    blocks = np.random.default_rng(seed).integers(0, 256, (count, kind.block_bytes), dtype=np.uint8)
    for at in HALF_SCALES.get(kind, []):
        halves = blocks[:, at : at + 2].copy().view("<u2")
        halves[(halves & 0x7C00) == 0x7C00] = 0x3555
        blocks[:, at : at + 2] = halves.view(np.uint8)
    return blocks


def oracle(kind: GgmlType, blocks: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(blocks.reshape(-1), gguf.GGMLQuantizationType(kind.number)).reshape(-1)


def ours(kind: GgmlType, blocks: np.ndarray, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    out = torch.full((len(blocks) * kind.block_elements,), float("nan"), dtype=dtype)
    dequantise(kind, torch.from_numpy(blocks.reshape(-1).copy()), out)
    return out


@pytest.mark.parametrize("kind", NATIVE, ids=lambda kind: kind.name)
@pytest.mark.parametrize("count", [1, 7, 3000])
def test_equals_the_oracle_bit_for_bit(kind: GgmlType, count: int) -> None:
    blocks = random_blocks(kind, count, seed=count + kind.number)
    expected = oracle(kind, blocks)
    assert ours(kind, blocks).numpy().tobytes() == expected.astype(np.float32).tobytes()


@pytest.mark.parametrize("kind", NATIVE, ids=lambda kind: kind.name)
def test_odd_scales(kind: GgmlType) -> None:
    blocks = random_blocks(kind, len(ODD_HALVES) ** 2, seed=1)
    for index, block in enumerate(blocks):
        for place, at in enumerate(HALF_SCALES[kind]):
            half = ODD_HALVES[(index // len(ODD_HALVES) ** place) % len(ODD_HALVES)]
            block[at : at + 2] = np.array([half]).view(np.uint8)
    assert ours(kind, blocks).numpy().tobytes() == oracle(kind, blocks).astype(np.float32).tobytes()


def test_chunks_join_seamlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = random_blocks(GgmlType.Q6_K, 11, seed=3)
    whole = ours(GgmlType.Q6_K, blocks)
    monkeypatch.setattr(dequant, "CHUNK_ELEMENTS", 2 * 256)
    assert torch.equal(ours(GgmlType.Q6_K, blocks), whole)


@pytest.mark.parametrize("kind", NATIVE, ids=lambda kind: kind.name)
def test_bfloat16_is_the_rounded_float32(kind: GgmlType) -> None:
    blocks = random_blocks(kind, 50, seed=5)
    assert torch.equal(ours(kind, blocks, torch.bfloat16), ours(kind, blocks).bfloat16())


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(GgmlType.F32, torch.float32), (GgmlType.F16, torch.float16), (GgmlType.BF16, torch.bfloat16)],
)
def test_plain_types(kind: GgmlType, dtype: torch.dtype) -> None:
    values = torch.randn(1000).to(dtype)
    out = torch.empty(1000)
    dequantise(kind, values.view(torch.uint8), out)
    assert torch.equal(out, values.float())


@pytest.mark.parametrize("kind", FALLBACK, ids=lambda kind: kind.name)
def test_other_types_go_through_the_package(kind: GgmlType) -> None:
    values = np.random.default_rng(9).standard_normal(4096).astype(np.float32)
    blocks = random_blocks(kind, 5, seed=7)
    if kind == GgmlType.Q5_1:
        blocks = gguf.quants.quantize(values, gguf.GGMLQuantizationType(kind.number)).reshape(-1, kind.block_bytes)
    got = ours(kind, blocks).numpy()
    assert np.array_equal(got, oracle(kind, blocks), equal_nan=True)


@pytest.mark.parametrize("kind", GgmlType, ids=lambda kind: kind.name)
def test_what_the_checkpoint_check_lets_through_is_what_can_be_decoded(kind: GgmlType) -> None:
    try:
        ours(kind, np.zeros((2, kind.block_bytes), np.uint8))
    except CheckpointError:
        decoded = False
    else:
        decoded = True
    assert decoded == (kind in DECODABLE)


def test_a_type_that_nobody_decodes_is_refused_by_name() -> None:
    with pytest.raises(CheckpointError, match="Q8_K"):
        dequantise(GgmlType.Q8_K, torch.zeros(292, dtype=torch.uint8), torch.empty(256))
