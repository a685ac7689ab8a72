"""From names and `quantization_config` to encodings: what is read, and every contradiction by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halogend.checkpoint import errors
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.gguf_types import GgmlType
from halogend.checkpoint.plain_types import PLAIN_TYPES
from halogend.checkpoint.quantisation import describe, encode
from halogend.checkpoint.stored import Awq, Fp8, Gptq, Plain
from halogend.checkpoint.tensor_table import TensorInfo

WHERE = Path("/m/config.json")
Shapes = dict[str, tuple[str, tuple[int, ...]]]


def table(shapes: Shapes) -> dict[str, TensorInfo]:
    out = {}
    for name, (label, shape) in shapes.items():
        info = TensorInfo(name, shape, PLAIN_TYPES[label], 0, 0)
        out[name] = TensorInfo(name, shape, info.type, 0, info.elements * info.type.block_bytes)
    return out


def refusal(shapes: Shapes, config: dict[str, Any] | None) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        encode(table(shapes), config, WHERE)
    assert caught.value.message.startswith(f"{WHERE}: ")
    return caught.value


NORM: Shapes = {"norm.weight": ("F16", (256,)), "q.bias": ("F16", (64,))}
# A matrix of 64 rows and 256 columns, groups of 128.
AWQ_PARTS: Shapes = {
    "q.qweight": ("I32", (256, 8)),
    "q.qzeros": ("I32", (2, 8)),
    "q.scales": ("F16", (2, 64)),
}
GPTQ_PARTS: Shapes = {
    "q.qweight": ("I32", (32, 64)),
    "q.qzeros": ("I32", (2, 8)),
    "q.scales": ("F16", (2, 64)),
    "q.g_idx": ("I32", (256,)),
}
FP8_PARTS: Shapes = {"q.weight": ("F8_E4M3", (200, 300)), "q.weight_scale_inv": ("F32", (2, 3))}
ONE_SCALE: Shapes = {
    "q.weight": ("F8_E5M2", (200, 300)),
    "q.weight_scale": ("F32", ()),
    "q.input_scale": ("F32", (1,)),
    "attn.k_scale": ("F32", ()),
}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": False, "desc_act": False}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
PER_TENSOR = {"quant_method": "fp8", "activation_scheme": "static"}


def without(shapes: Shapes, *names: str) -> Shapes:
    return {name: shape for name, shape in shapes.items() if name not in names}


def test_nothing_quantised_is_plain_under_its_own_name() -> None:
    tensors = table({**NORM, "w.weight": ("BF16", (3, 5)), "position_ids": ("I64", (1, 7)), "s": ("F32", ())})
    encoded = encode(tensors, None, WHERE)
    assert encoded == {name: Plain(info) for name, info in tensors.items()}
    assert (encoded["w.weight"].rows, encoded["w.weight"].columns) == (3, 5)
    assert (encoded["norm.weight"].rows, encoded["norm.weight"].columns) == (256, 1)
    assert (encoded["s"].rows, encoded["s"].columns) == (1, 1)


def test_awq() -> None:
    tensors = table({**NORM, **AWQ_PARTS})
    encoded = encode(tensors, AWQ, WHERE)
    assert set(encoded) == {"norm.weight", "q.bias", "q.weight"}
    matrix = encoded["q.weight"]
    assert matrix == Awq(tensors["q.qweight"], tensors["q.qzeros"], tensors["q.scales"], 128)
    assert (matrix.rows, matrix.columns) == (64, 256)


def test_awq_without_zero_points_is_signed() -> None:
    encoded = encode(table(without(AWQ_PARTS, "q.qzeros")), {**AWQ, "zero_point": False}, WHERE)
    assert isinstance(matrix := encoded["q.weight"], Awq)
    assert matrix.qzeros is None
    kept = encode(table(AWQ_PARTS), {**AWQ, "zero_point": False}, WHERE)["q.weight"]
    assert isinstance(kept, Awq)
    assert kept.qzeros is not None


def test_awq_with_the_older_and_newer_spelling_of_the_version() -> None:
    for change in ({"version": "GEMM"}, {"version": None, "format": "gemm"}, {"version": None}):
        assert "q.weight" in encode(table(AWQ_PARTS), {**AWQ, **change}, WHERE)


@pytest.mark.parametrize(
    ("change", "offset", "carry"),
    [
        ({}, 1, False),
        ({"checkpoint_format": "gptq"}, 1, False),
        ({"checkpoint_format": "gptq_v2"}, 0, False),
        ({"format": "gptq_v2"}, 0, False),
        ({"meta": {"quantizer": ["gptqmodel:2.2.0"]}}, 1, True),
        ({"meta": {"quantizer": ["optimum:1.2", "auto_gptq:0.4"]}}, 1, False),
        ({"checkpoint_format": "gptq_v2", "meta": {"quantizer": "gptqmodel:2.2.0"}}, 0, False),
    ],
)
def test_gptq_and_its_zero_points(change: dict[str, Any], offset: int, carry: bool) -> None:
    tensors = table({**NORM, **GPTQ_PARTS})
    encoded = encode(tensors, {**GPTQ, **change}, WHERE)
    assert set(encoded) == {"norm.weight", "q.bias", "q.weight"}
    parts = [tensors[f"q.{part}"] for part in ("qweight", "qzeros", "scales", "g_idx")]
    assert encoded["q.weight"] == Gptq(*parts, 128, offset, carry)
    assert (encoded["q.weight"].rows, encoded["q.weight"].columns) == (64, 256)


def test_gptq_without_group_index() -> None:
    shapes = without(GPTQ_PARTS, "q.g_idx")
    assert isinstance(matrix := encode(table(shapes), GPTQ, WHERE)["q.weight"], Gptq)
    assert matrix.g_idx is None
    error = refusal(shapes, {**GPTQ, "desc_act": True})
    assert (error.code, "tensor 'q.g_idx' is missing" in error.message) == (errors.TENSOR_MISSING, True)


def test_one_group_for_all_columns() -> None:
    one: Shapes = {"q.qzeros": ("I32", (1, 8)), "q.scales": ("F16", (1, 64))}
    gptq = encode(table({**GPTQ_PARTS, **one}), {**GPTQ, "group_size": -1}, WHERE)["q.weight"]
    awq = encode(table({**AWQ_PARTS, **one}), {**AWQ, "group_size": -1}, WHERE)["q.weight"]
    assert isinstance(gptq, Gptq)
    assert isinstance(awq, Awq)
    assert gptq.group == awq.group == 256
    alone = encode(
        table({**without(GPTQ_PARTS, "q.g_idx"), **one}), {**GPTQ, "group_size": -1, "desc_act": True}, WHERE
    )["q.weight"]
    assert isinstance(alone, Gptq)
    assert alone.g_idx is None


def test_a_last_group_of_gptq_may_be_shorter() -> None:
    short: Shapes = {"q.qweight": ("I32", (20, 64)), "q.g_idx": ("I32", (160,))}
    assert encode(table({**GPTQ_PARTS, **short}), GPTQ, WHERE)["q.weight"].columns == 160


def test_fp8() -> None:
    tensors = table({**NORM, **FP8_PARTS})
    encoded = encode(tensors, FP8, WHERE)
    assert set(encoded) == {"norm.weight", "q.bias", "q.weight"}
    assert encoded["q.weight"] == Fp8(tensors["q.weight"], tensors["q.weight_scale_inv"], (128, 128))


def test_fp8_with_one_scale_ignores_those_of_activations() -> None:
    tensors = table({**NORM, **ONE_SCALE})
    encoded = encode(tensors, PER_TENSOR, WHERE)
    assert set(encoded) == {"norm.weight", "q.bias", "q.weight"}
    assert encoded["q.weight"] == Fp8(tensors["q.weight"], tensors["q.weight_scale"], None)


def test_fp8_of_stacked_experts() -> None:
    shapes: Shapes = {"e.up": ("F8_E4M3", (4, 256, 300)), "e.up_scale_inv": ("BF16", (4, 2, 3))}
    matrix = encode(table(shapes), FP8, WHERE)["e.up"]
    assert (matrix.rows, matrix.columns) == (1024, 300)
    shapes = {"e.up": ("F8_E4M3", (4, 200, 300)), "e.up_scale_inv": ("F32", (4, 2, 3))}
    assert "200 rows a matrix" in refusal(shapes, FP8).message


CONFIGS: dict[str, tuple[Shapes, dict[str, Any], str, str]] = {
    "no method": (AWQ_PARTS, {"bits": 4}, errors.KEY_INVALID, "'quantization_config.quant_method' is missing"),
    "method a number": (AWQ_PARTS, {"quant_method": 4}, errors.KEY_INVALID, "quant_method' is 4, no string"),
    "fbgemm": (
        FP8_PARTS,
        {"quant_method": "fbgemm_fp8"},
        errors.TYPE_UNSUPPORTED,
        "is 'fbgemm_fp8'; supported are awq, gptq and fp8",
    ),
    "compressed": (NORM, {"quant_method": "compressed-tensors"}, errors.TYPE_UNSUPPORTED, "'compressed-tensors'"),
    "bitsandbytes": (NORM, {"quant_method": "bitsandbytes"}, errors.TYPE_UNSUPPORTED, "'bitsandbytes'"),
    "awq bits": (
        AWQ_PARTS,
        {**AWQ, "bits": 8},
        errors.TYPE_UNSUPPORTED,
        "quantization_config.bits' is 8; only 4 is supported",
    ),
    "awq gemv": (
        AWQ_PARTS,
        {**AWQ, "version": "gemv"},
        errors.TYPE_UNSUPPORTED,
        "version' is 'gemv'; only gemm is supported",
    ),
    "awq format": (
        AWQ_PARTS,
        {**AWQ, "version": None, "format": "llm-awq"},
        errors.TYPE_UNSUPPORTED,
        "format' is 'llm",
    ),
    "awq zero_point": (AWQ_PARTS, {**AWQ, "zero_point": "yes"}, errors.KEY_INVALID, "zero_point' is 'yes', neither"),
    "group text": (AWQ_PARTS, {**AWQ, "group_size": "128"}, errors.KEY_INVALID, "group_size' is '128', no whole"),
    "group zero": (AWQ_PARTS, {**AWQ, "group_size": 0}, errors.TYPE_UNSUPPORTED, "group_size' is 0"),
    "group odd": (AWQ_PARTS, {**AWQ, "group_size": 100}, errors.TYPE_UNSUPPORTED, "group_size' is 100"),
    "gptq no bits": (GPTQ_PARTS, {**GPTQ, "bits": None}, errors.KEY_INVALID, "quantization_config.bits' is missing"),
    "gptq bits": (GPTQ_PARTS, {**GPTQ, "bits": 3}, errors.TYPE_UNSUPPORTED, "bits' is 3"),
    "gptq true bits": (GPTQ_PARTS, {**GPTQ, "bits": True}, errors.KEY_INVALID, "bits' is True"),
    "marlin": (GPTQ_PARTS, {**GPTQ, "checkpoint_format": "marlin"}, errors.TYPE_UNSUPPORTED, "format' is 'marlin'"),
    "marlin flag": (GPTQ_PARTS, {**GPTQ, "is_marlin_format": True}, errors.TYPE_UNSUPPORTED, "is_marlin_format"),
    "packing": (GPTQ_PARTS, {**GPTQ, "pack_dtype": "int16"}, errors.TYPE_UNSUPPORTED, "pack_dtype' is 'int16'"),
    "mixed": (GPTQ_PARTS, {**GPTQ, "dynamic": {"+:.*": {"bits": 8}}}, errors.TYPE_UNSUPPORTED, "dynamic' is {'+:.*'"),
    "dynamic list": (GPTQ_PARTS, {**GPTQ, "dynamic": ["x"]}, errors.KEY_INVALID, "dynamic' is ['x']"),
    "fp4 experts": (FP8_PARTS, {**FP8, "expert_dtype": "fp4"}, errors.TYPE_UNSUPPORTED, "expert_dtype' is 'fp4'"),
    "block": (FP8_PARTS, {**FP8, "weight_block_size": [128]}, errors.KEY_INVALID, "weight_block_size' is [128]"),
    "block zero": (FP8_PARTS, {**FP8, "weight_block_size": [128, 0]}, errors.KEY_INVALID, "is [128, 0]"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_configuration_that_is_not_read_is_refused_by_key(case: str) -> None:
    shapes, config, code, says = CONFIGS[case]
    error = refusal(shapes, config)
    assert error.code == code
    assert says in error.message


@pytest.mark.parametrize("section", [[], "awq", 4, False])
def test_a_section_that_is_no_object_is_refused(section: Any) -> None:
    error = refusal(NORM, section)
    assert (error.code, "'quantization_config' is" in error.message) == (errors.KEY_INVALID, True)


def test_modules_that_gptq_leaves_alone_are_plain() -> None:
    shapes = {**GPTQ_PARTS, "lm_head.weight": ("F16", (7, 9))}
    encoded = encode(table(shapes), {**GPTQ, "dynamic": {"-:lm_head": {}}}, WHERE)
    assert isinstance(encoded["lm_head.weight"], Plain)


# CASES C4: what the configuration says and what the tensors are must agree.
TENSORS: dict[str, tuple[Shapes, dict[str, Any] | None, str, str]] = {
    "int4 unstated": (AWQ_PARTS, None, errors.KEY_INVALID, "'q.qweight' (I32) is part of a quantised matrix"),
    "fp8 unstated": (FP8_PARTS, None, errors.KEY_INVALID, "'q.weight' (F8_E4M3) is part of a quantised matrix"),
    "scale unstated": (
        {"q.weight": ("BF16", (4, 4)), "q.weight_scale_inv": ("F32", (1, 1))},
        None,
        errors.KEY_INVALID,
        "'q.weight_scale_inv' (F32) is part of a quantised matrix, but the configuration has no 'quantization_config'",
    ),
    "compressed unstated": ({"q.weight_packed": ("I32", (4, 4))}, None, errors.KEY_INVALID, "'q.weight_packed'"),
    "bytes unstated": ({"q.weight": ("U8", (4, 4))}, None, errors.TYPE_UNSUPPORTED, "'q.weight' is U8"),
    "awq of fp8": ({**AWQ_PARTS, "v.weight": ("F8_E4M3", (8, 8))}, AWQ, errors.KEY_INVALID, "configuration says awq"),
    "fp8 of awq": ({**FP8_PARTS, **AWQ_PARTS}, FP8, errors.KEY_INVALID, "'q.qweight' (I32) is part of"),
    "awq of nothing": (NORM, AWQ, errors.TENSOR_MISSING, "says awq, but no tensor is quantised"),
    "gptq of nothing": (NORM, GPTQ, errors.TENSOR_MISSING, "says gptq, but no tensor is quantised"),
    "fp8 of nothing": (NORM, FP8, errors.TENSOR_MISSING, "says fp8, but no tensor is quantised"),
    "both": ({**AWQ_PARTS, "q.weight": ("F16", (64, 256))}, AWQ, errors.TENSOR_MISMATCH, "both quantised and not"),
    "awq no scales": (without(AWQ_PARTS, "q.scales"), AWQ, errors.TENSOR_MISSING, "tensor 'q.scales' is missing"),
    "awq no zeros": (without(AWQ_PARTS, "q.qzeros"), AWQ, errors.TENSOR_MISSING, "tensor 'q.qzeros' is missing"),
    "no codes": (
        {**AWQ_PARTS, "k.scales": ("F16", (2, 64))},
        AWQ,
        errors.TENSOR_MISSING,
        "tensor 'k.qweight' is missing",
    ),
    "awq group": (AWQ_PARTS, {**AWQ, "group_size": 64}, errors.TENSOR_MISMATCH, "'q.scales' has shape [2, 64]"),
    "awq group wide": (AWQ_PARTS, {**AWQ, "group_size": 512}, errors.TENSOR_MISMATCH, "fewer than the group of 512"),
    "awq group uneven": (
        {**AWQ_PARTS, "q.qweight": ("I32", (200, 8))},
        AWQ,
        errors.TENSOR_MISMATCH,
        "200 columns, no multiple of the group 128",
    ),
    "awq as gptq": (AWQ_PARTS, GPTQ, errors.TENSOR_MISMATCH, "tensor 'q.scales' has shape [2, 64]"),
    "gptq as awq": (
        without(GPTQ_PARTS, "q.g_idx"),
        {**AWQ, "group_size": 32},
        errors.TENSOR_MISMATCH,
        "tensor 'q.scales' has shape [2, 64]",
    ),
    "awq with g_idx": (
        {**AWQ_PARTS, "q.g_idx": ("I32", (256,))},
        AWQ,
        errors.KEY_INVALID,
        "'q.g_idx' (I32) is part of",
    ),
    "zeros shape": ({**AWQ_PARTS, "q.qzeros": ("I32", (2, 64))}, AWQ, errors.TENSOR_MISMATCH, "'q.qzeros' has shape"),
    "zeros type": (
        {**AWQ_PARTS, "q.qzeros": ("F16", (2, 8))},
        AWQ,
        errors.TENSOR_MISMATCH,
        "'q.qzeros' is F16, not I32",
    ),
    "codes type": ({**AWQ_PARTS, "q.qweight": ("I8", (256, 8))}, AWQ, errors.TENSOR_MISMATCH, "'q.qweight' is I8"),
    "codes vector": ({**AWQ_PARTS, "q.qweight": ("I32", (256,))}, AWQ, errors.TENSOR_MISMATCH, "[256], no matrix"),
    "scales type": (
        {**AWQ_PARTS, "q.scales": ("I8", (2, 64))},
        AWQ,
        errors.TENSOR_MISMATCH,
        "'q.scales' is I8, not F32",
    ),
    "gptq no zeros": (without(GPTQ_PARTS, "q.qzeros"), GPTQ, errors.TENSOR_MISSING, "tensor 'q.qzeros' is missing"),
    "gptq rows": ({**GPTQ_PARTS, "q.qweight": ("I32", (32, 63))}, GPTQ, errors.TENSOR_MISMATCH, "63 rows"),
    "gptq g_idx": (
        {**GPTQ_PARTS, "q.g_idx": ("I32", (128,))},
        GPTQ,
        errors.TENSOR_MISMATCH,
        "'q.g_idx' has shape [128]",
    ),
    "gptq 8 bits": ({**GPTQ_PARTS, "q.qweight": ("I32", (64, 64))}, GPTQ, errors.TENSOR_MISMATCH, "want [4, 64]"),
    "fp8 no scale": (
        without(FP8_PARTS, "q.weight_scale_inv"),
        FP8,
        errors.TENSOR_MISSING,
        "tensor 'q.weight_scale_inv' is missing, but 'q.weight' is F8_E4M3",
    ),
    "fp8 scale alone": (
        {**FP8_PARTS, "k.weight_scale_inv": ("F32", (2, 3))},
        FP8,
        errors.KEY_INVALID,
        "'k.weight_scale_inv' (F32) is part of",
    ),
    "fp8 scale of bf16": (
        {**FP8_PARTS, "q.weight": ("BF16", (200, 300))},
        FP8,
        errors.TENSOR_MISMATCH,
        "'q.weight' is BF16, but there is 'q.weight_scale_inv'",
    ),
    "fp8 scale shape": (
        {**FP8_PARTS, "q.weight_scale_inv": ("F32", (3, 2))},
        FP8,
        errors.TENSOR_MISMATCH,
        "'q.weight_scale_inv' has shape [3, 2]; 'q.weight' [200, 300] and 'quantization_config' want [2, 3]",
    ),
    "fp8 scale a row": (
        {**ONE_SCALE, "q.weight_scale": ("F32", (200, 1))},
        PER_TENSOR,
        errors.TENSOR_MISMATCH,
        "'q.weight_scale' has shape [200, 1], but 'quantization_config.weight_block_size' is absent",
    ),
    "fp8 blocks unstated": (FP8_PARTS, PER_TENSOR, errors.TENSOR_MISMATCH, "weight_block_size' is absent"),
    "fp8 scale type": ({**FP8_PARTS, "q.weight_scale_inv": ("U8", (2, 3))}, FP8, errors.TENSOR_MISMATCH, "is U8, not"),
    "fp8 vector": (
        {"q.weight": ("F8_E4M3", (200,)), "q.weight_scale_inv": ("F32", (2,))},
        FP8,
        errors.TENSOR_MISMATCH,
        "'q.weight' has shape [200], no matrix",
    ),
}


@pytest.mark.parametrize("case", TENSORS)
def test_tensors_that_contradict_the_configuration_are_refused_by_name(case: str) -> None:
    shapes, config, code, says = TENSORS[case]
    error = refusal(shapes, config)
    assert error.code == code
    assert says in error.message


@pytest.mark.parametrize(
    ("shapes", "config", "said"),
    [
        (AWQ_PARTS, AWQ, "awq int4 g128"),
        (GPTQ_PARTS, GPTQ, "gptq int4 g128"),
        (FP8_PARTS, FP8, "fp8 e4m3 128x128"),
        (ONE_SCALE, PER_TENSOR, "fp8 e5m2 per tensor"),
        ({"w.weight": ("BF16", (64, 64)), "norm.weight": ("F32", (64,))}, None, "BF16"),
        ({}, None, "nothing"),
    ],
)
def test_a_checkpoint_in_a_few_words(shapes: Shapes, config: dict[str, Any] | None, said: str) -> None:
    big_and_plain: Shapes = {"embed.weight": ("F16", (9999, 64))} if config else {}
    assert describe(encode(table({**shapes, **big_and_plain}), config, WHERE).values()) == said


def test_one_group_a_row_and_ggml_in_a_few_words() -> None:
    one: Shapes = {"q.qzeros": ("I32", (1, 8)), "q.scales": ("F16", (1, 64))}
    wide = {name.replace("q.", "k."): shape for name, shape in one.items()} | {"k.qweight": ("I32", (512, 8))}
    config = {**AWQ, "group_size": -1}
    assert describe(encode(table({**AWQ_PARTS, **one, **wide}), config, WHERE).values()) == "awq int4 one group a row"
    assert describe([Plain(TensorInfo("w", (4, 256), GgmlType.Q4_K, 0, 576))]) == "Q4_K"


_SIZES = st.lists(st.sampled_from([0, 1, 2, 8, 32, 64, 256, 1 << 40]), max_size=3).map(tuple)
_ENTRIES = st.tuples(st.sampled_from(["I32", "F16", "F8_E4M3", "U8"]), _SIZES)
_ALL_PARTS = [*AWQ_PARTS, *GPTQ_PARTS, *FP8_PARTS, *ONE_SCALE, "scales", ".qweight", "q"]
_VALUES = st.none() | st.booleans() | st.integers(-1, 512) | st.text(max_size=3) | st.lists(st.integers(-1, 300))
_CONFIG = st.sampled_from([None, AWQ, GPTQ, FP8, PER_TENSOR])
_KEYS = st.sampled_from(["quant_method", "bits", "group_size", "version", "dynamic", "meta", "weight_block_size"])


@settings(max_examples=300, deadline=None)
@given(
    base=st.sampled_from([AWQ_PARTS, GPTQ_PARTS, FP8_PARTS, ONE_SCALE]),
    changes=st.dictionaries(st.sampled_from(_ALL_PARTS), _ENTRIES, max_size=2),
    config=_CONFIG,
    edits=st.dictionaries(_KEYS, _VALUES, max_size=1),
)
def test_anything_else_is_a_checkpoint_error_or_whole_matrices(
    base: Shapes, changes: Shapes, config: dict[str, Any] | None, edits: dict[str, Any]
) -> None:
    try:
        encoded = encode(table({**base, **changes}), None if config is None else {**config, **edits}, WHERE)
    except CheckpointError as error:
        assert error.code in errors.ALL_CODES  # noqa: PT017 (most examples raise it, some rightly do not)
        return
    assert describe(encoded.values())
    for matrix in encoded.values():
        assert matrix.rows * matrix.columns >= 0
