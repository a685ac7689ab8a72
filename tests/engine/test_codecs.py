"""Each encoding against one number at a time in plain Python, bit for bit, on odd slices."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support import tiny_quantised
from support.byte_sources import FileSource, MemorySource
from support.tiny_hf import TinyDir, make
from torch import Tensor

from halogend.checkpoint import errors
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.gguf_types import GgmlType
from halogend.checkpoint.quantisation import encode
from halogend.checkpoint.safetensors import read_shards
from halogend.checkpoint.stored import Awq, Encoded, Fp8, Gptq, Plain
from halogend.checkpoint.tensor_table import TensorInfo
from halogend.engine.codecs import decode_rows, packed, plain
from halogend.engine.dequant import dequantise

Number = Callable[[int, int], float]  # row, column -> what is there
ROWS, COLUMNS = 48, 320
SLICES = [(0, ROWS), (1, 1), (5, 11), (8, 8), (15, 2), (ROWS - 3, 3)]


@pytest.fixture(params=["small chunks"], autouse=True)
def chunk_elements(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of five rows, so that slices cross some, at places that no word begins at."""
    if request.param == "small chunks":
        monkeypatch.setattr(packed, "CHUNK_ELEMENTS", 5 * COLUMNS)


real_chunks = pytest.mark.parametrize("chunk_elements", ["real chunks"], indirect=True)


def decoded(
    encoded: Encoded, source: MemorySource, first: int, count: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    out = torch.full((count, encoded.columns), float("nan"), dtype=dtype)
    decode_rows(encoded, first, count, out, source)
    return out


def check(source: MemorySource, made: tuple[Encoded, Number], dtype: torch.dtype = torch.float32) -> None:
    """Every slice is what the numbers are, to the bit; bfloat16 is the rounded float32."""
    encoded, number = made
    wanted = torch.tensor([[number(row, column) for column in range(encoded.columns)] for row in range(encoded.rows)])
    assert wanted.dtype == torch.float32
    for first, count in SLICES:
        got = decoded(encoded, source, first, count, dtype)
        assert torch.equal(got, wanted[first : first + count].to(dtype)), (first, count)


def random_words(*shape: int) -> Tensor:
    return torch.randint(-(1 << 31), 1 << 31, shape, dtype=torch.int64).int()


def nibble(word: int, place: int) -> int:
    return (word >> (4 * place)) & 0xF


def scaled(code: int, zero: int, scale: float) -> float:
    return float(np.float32(code - zero) * np.float32(scale))


# --- GPTQ ------------------------------------------------------------------------------------------


def gptq_matrix(
    source: MemorySource,
    group: int,
    *,
    sym: bool = False,
    order: str = "none",
    offset: int = 1,
    carry: bool = False,
    scale_type: torch.dtype = torch.float16,
) -> tuple[Gptq, Number]:
    groups = math.ceil(COLUMNS / group)
    words, scales = random_words(COLUMNS // 8, ROWS), torch.randn(groups, ROWS).to(scale_type)
    zero_words = random_words(groups, ROWS // 8)
    if sym:
        zero_words = torch.full_like(zero_words, 0x77777777 if offset else -0x77777778)
    g_idx = torch.arange(COLUMNS, dtype=torch.int32) // group
    if order == "acting":
        g_idx = g_idx[torch.randperm(COLUMNS)]
    matrix = Gptq(
        source.put("qweight", words),
        source.put("qzeros", zero_words),
        source.put("scales", scales),
        None if order == "none" else source.put("g_idx", g_idx),
        group,
        offset,
        carry,
    )

    code_list, zero_list, scale_list, group_list = (part.tolist() for part in (words, zero_words, scales, g_idx))

    def number(row: int, column: int) -> float:
        zero_word = zero_list[group_list[column]][row // 8]
        if carry:
            zero = nibble((zero_word + offset * 0x11111111) & 0xFFFFFFFF, row % 8)
        else:
            zero = (nibble(zero_word, row % 8) + offset) % 16
        return scaled(nibble(code_list[column // 8][row], column % 8), zero, scale_list[group_list[column]][row])

    return matrix, number


@pytest.mark.parametrize("group", [32, 64, 128, COLUMNS])
@pytest.mark.parametrize("order", ["none", "trivial", "acting"])
def test_gptq(group: int, order: str) -> None:
    source = MemorySource()
    check(source, gptq_matrix(source, group, order=order))


@pytest.mark.parametrize("sym", [True, False])
@pytest.mark.parametrize(("offset", "carry"), [(0, False), (1, False), (1, True)])
def test_gptq_zero_points(sym: bool, offset: int, carry: bool) -> None:
    source = MemorySource()
    check(source, gptq_matrix(source, 64, sym=sym, offset=offset, carry=carry))


def test_gptq_symmetric_codes_lie_around_eight() -> None:
    source = MemorySource()
    for offset in (0, 1):
        matrix, _ = gptq_matrix(source, 64, sym=True, offset=offset)
        source.put("scales", torch.ones(5, ROWS, dtype=torch.float16))
        values = decoded(matrix, source, 0, ROWS)
        assert (int(values.min()), int(values.max())) == (-8, 7)


@pytest.mark.parametrize("skew", [1, 2])
@pytest.mark.parametrize("scale_type", [torch.float32, torch.bfloat16])
def test_gptq_in_bfloat16_from_unaligned_bytes(skew: int, scale_type: torch.dtype) -> None:
    source = MemorySource(skew)
    check(source, gptq_matrix(source, 128, order="acting", scale_type=scale_type), torch.bfloat16)


@pytest.mark.parametrize("wrong", [-1, 5, 1 << 30])
def test_a_group_index_out_of_range_is_refused_by_name(wrong: int) -> None:
    source = MemorySource()
    matrix, _ = gptq_matrix(source, 64, order="trivial")
    g_idx = torch.arange(COLUMNS, dtype=torch.int32) // 64
    g_idx[77] = wrong
    source.put("g_idx", g_idx)
    with pytest.raises(CheckpointError, match=f"'g_idx': holds the group {wrong}; there are groups 0 to 4") as caught:
        decoded(matrix, source, 3, 2)
    assert caught.value.code == errors.INDEX_INVALID


# --- AWQ -------------------------------------------------------------------------------------------

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the row of eight that each place of a word holds


def awq_matrix(source: MemorySource, group: int, *, signed: bool = False) -> tuple[Awq, Number]:
    words, scales = random_words(COLUMNS, ROWS // 8), torch.randn(COLUMNS // group, ROWS).half()
    zero_words = random_words(COLUMNS // group, ROWS // 8)
    qzeros = None if signed else source.put("qzeros", zero_words)
    matrix = Awq(source.put("qweight", words), qzeros, source.put("scales", scales), group)

    code_list, zero_list, scale_list = (part.tolist() for part in (words, zero_words, scales))

    def number(row: int, column: int) -> float:
        word, place = row // 8, AWQ_ORDER.index(row % 8)
        zero = 8 if signed else nibble(zero_list[column // group][word], place)
        return scaled(nibble(code_list[column][word], place), zero, scale_list[column // group][row])

    return matrix, number


@pytest.mark.parametrize("group", [32, 64, COLUMNS])
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("skew", [0, 1])
def test_awq(group: int, signed: bool, skew: int) -> None:
    source = MemorySource(skew)
    check(source, awq_matrix(source, group, signed=signed))


def test_awq_in_bfloat16() -> None:
    source = MemorySource()
    check(source, awq_matrix(source, 64), torch.bfloat16)


# --- FP8 -------------------------------------------------------------------------------------------


def float_of(code: int, exponent_bits: int) -> float:
    """The number that an eight-bit float stands for, from the specification's formula."""
    mantissa_bits = 7 - exponent_bits
    bias = (1 << (exponent_bits - 1)) - 1
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code & 0x7F) >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)


def fp8_matrix(
    source: MemorySource, kind: torch.dtype, block: tuple[int, int] | None, scale_type: torch.dtype = torch.float32
) -> tuple[Fp8, Number]:
    codes = torch.randint(0, 256, (ROWS, COLUMNS), dtype=torch.uint8)
    codes.view(-1)[:256] = torch.arange(256)
    finite = codes & 0x7F
    codes[finite >= (0x7F if kind == torch.float8_e4m3fn else 0x7C)] = 0x80
    grid = (1, 1) if block is None else (math.ceil(ROWS / block[0]), math.ceil(COLUMNS / block[1]))
    scales = torch.randn(grid).to(scale_type)
    stored_scales = scales.view(()) if block is None else scales
    matrix = Fp8(source.put("w", codes.view(kind)), source.put("scale", stored_scales), block)
    exponent_bits = 4 if kind == torch.float8_e4m3fn else 5

    code_list, scale_list = codes.tolist(), scales.tolist()

    def number(row: int, column: int) -> float:
        scale = scale_list[0][0] if block is None else scale_list[row // block[0]][column // block[1]]
        return float(np.float32(float_of(code_list[row][column], exponent_bits)) * np.float32(scale))

    return matrix, number


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("block", [None, (16, 64), (16, 128), (7, 48), (128, 128), (1, 1)])
def test_fp8(kind: torch.dtype, block: tuple[int, int] | None) -> None:
    source = MemorySource(skew=1)
    check(source, fp8_matrix(source, kind, block))


@pytest.mark.parametrize("scale_type", [torch.float16, torch.bfloat16])
def test_fp8_in_bfloat16(scale_type: torch.dtype) -> None:
    source = MemorySource()
    check(source, fp8_matrix(source, torch.float8_e4m3fn, (16, 128), scale_type), torch.bfloat16)


def test_fp8_of_stacked_experts_is_their_rows_below_each_other() -> None:
    source = MemorySource()
    weight = torch.randn(3, 32, 40).to(torch.float8_e4m3fn)
    scales = torch.randn(3, 2, 2)
    matrix = Fp8(source.put("w", weight), source.put("scale", scales), (16, 32))
    wanted = weight.float() * scales.repeat_interleave(16, 1).repeat_interleave(32, 2)[:, :, :40]
    assert torch.equal(decoded(matrix, source, 30, 40), wanted.flatten(0, 1)[30:70])


def test_fp8_nan_stays_nan() -> None:
    source = MemorySource()
    codes = torch.tensor([[0x7F, 0xFF, 0x7E, 0]], dtype=torch.uint8)
    matrix = Fp8(source.put("w", codes.view(torch.float8_e4m3fn)), source.put("s", torch.tensor([2.0])), None)
    values = decoded(matrix, source, 0, 1)[0]
    assert values.isnan().tolist() == [True, True, False, False]
    assert values[2:].tolist() == [896.0, 0.0]


# --- Plain numbers and GGML blocks -----------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("skew", [0, 1])
@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16])
def test_plain(kind: torch.dtype, skew: int, out: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "_RAW_BYTES", 7 * 33 * 2)
    source = MemorySource(skew)
    values = torch.randn(4, ROWS // 4, 33, dtype=torch.float64).to(kind)
    matrix = Plain(source.put("w", values))
    for first, count in SLICES:
        got = decoded(matrix, source, first, count, out)
        assert torch.equal(got, values.view(ROWS, 33)[first : first + count].float().to(out))


def test_a_vector_is_a_column_and_a_scalar_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "_RAW_BYTES", 1200)
    source = MemorySource(skew=1)
    values = torch.randn(1000).half()
    matrix = Plain(source.put("v", values))
    assert torch.equal(decoded(matrix, source, 3, 990)[:, 0], values[3:993].float())
    assert decoded(Plain(source.put("s", torch.tensor(2.5))), source, 0, 1).tolist() == [[2.5]]


def test_a_flat_buffer_is_filled_too() -> None:
    source = MemorySource()
    out = torch.empty(12)
    decode_rows(Plain(source.put("w", torch.arange(30.0).view(5, 6))), 2, 2, out, source)
    assert out.tolist() == list(range(12, 24))


@pytest.mark.parametrize("kind", [GgmlType.Q4_K, GgmlType.Q8_0, GgmlType.Q6_K, GgmlType.BF16])
@pytest.mark.parametrize("shape", [(6, 512), (2, 3, 512), (3072,)])
def test_ggml_blocks(kind: GgmlType, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "_RAW_BYTES", 2500)
    source = MemorySource(skew=3)
    nbytes = math.prod(shape) // kind.block_elements * kind.block_bytes
    raw = torch.randint(0, 100, (nbytes,), dtype=torch.uint8)
    matrix = Plain(source.put_raw(TensorInfo("w", shape, kind, 0, nbytes), raw))
    whole = torch.empty(math.prod(shape))
    dequantise(kind, raw, whole)
    scale = matrix.rows // 6
    for first, count in [(0, 6), (1, 2), (4, 2)]:
        got = decoded(matrix, source, first * scale, count * scale)
        assert torch.equal(got.flatten(), whole[first * 512 : (first + count) * 512])


def test_blocks_of_a_vector_are_not_cut_inside() -> None:
    source = MemorySource()
    matrix = Plain(source.put_raw(TensorInfo("v", (64,), GgmlType.Q8_0, 0, 68), torch.zeros(68, dtype=torch.uint8)))
    assert decoded(matrix, source, 32, 32).abs().sum() == 0
    for first, count in [(1, 32), (0, 31)]:
        with pytest.raises(CheckpointError, match="'v': Q8_0 blocks cannot be cut"):
            decoded(matrix, source, first, count)


def test_integers_are_no_weights() -> None:
    source = MemorySource()
    with pytest.raises(CheckpointError, match="tensor 'w': type I8") as caught:
        decoded(Plain(source.put("w", torch.ones(2, 2, dtype=torch.int8))), source, 0, 2)
    assert caught.value.code == errors.TYPE_UNSUPPORTED


# --- All of it, at real sizes ----------------------------------------------------------------------


@real_chunks
def test_real_chunks_join_seamlessly() -> None:
    source = MemorySource()
    rows, columns, group = 200, 4096, 128
    words, zero_words = random_words(columns // 8, rows), random_words(columns // group, rows // 8)
    scales = torch.randn(columns // group, rows).half()
    parts = [source.put(name, part) for name, part in [("w", words), ("z", zero_words), ("s", scales)]]
    places = torch.arange(0, 32, 4)
    codes = ((words[:, None].long() >> places[None, :, None]) & 15).flatten(0, 1).T
    zeros = ((zero_words[:, :, None].long() >> places) & 15).flatten(1).T
    wanted = (codes - zeros.repeat_interleave(group, 1)).float() * scales.T.float().repeat_interleave(group, 1)
    assert torch.equal(decoded(Gptq(*parts, None, group, 0), source, 3, 190), wanted[3:193])


QUANTISED: dict[str, Callable[[TinyDir, Path], TinyDir]] = {
    "awq": lambda base, path: tiny_quantised.awq(base, path, group_size=32),
    "awq-signed": lambda base, path: tiny_quantised.awq(base, path, zero_point=False),
    "gptq": tiny_quantised.gptq,
    "gptq-asym-act": lambda base, path: tiny_quantised.gptq(base, path, group_size=64, sym=False, desc_act=True),
    "gptq-v2": lambda base, path: tiny_quantised.gptq(base, path, sym=False, v2=True),
    "gptq-one-group": lambda base, path: tiny_quantised.gptq(base, path, group_size=-1),
    "fp8-blocks": tiny_quantised.fp8_blocks,
    "fp8-tensors": lambda base, path: tiny_quantised.fp8_tensors(base, path, static=True),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> TinyDir:
    return make("llama", tmp_path_factory.mktemp("codecs") / "base", **tiny_quantised.WIDE)


@real_chunks
@pytest.mark.parametrize("name", QUANTISED)
def test_a_directory_decodes_to_the_weights_that_it_stands_for(name: str, base: TinyDir, tmp_path: Path) -> None:
    tiny = QUANTISED[name](base, tmp_path / name)
    shards = read_shards(tiny.path)
    config = json.loads((tiny.path / "config.json").read_text())
    encoded = encode(shards.tensors, config["quantization_config"], tiny.path)
    source = FileSource(shards.files)
    plain_weights: dict[str, Tensor] = {}
    for file in tiny.source.glob("*.safetensors"):
        plain_weights |= load_file(file)
    beside = {name for name in encoded if name.endswith(".bias")} - set(plain_weights)  # of zeros, by GPTQ's writers
    assert set(encoded) - beside == set(plain_weights)
    for key, wanted in plain_weights.items():
        matrix = encoded[key]
        out = torch.empty(matrix.rows, matrix.columns)
        decode_rows(matrix, 0, matrix.rows, out, source)
        assert torch.equal(out, wanted.view(out.shape)), key
