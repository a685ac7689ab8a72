"""Malformed AWQ, GPTQ and FP8 directories: a llama model in one file, with one thing wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from support import malformed_hf as hf
from support.malformed_files import Folder, Tensors

HIDDEN = 16  # two groups, two blocks
GROUP = 8
BLOCK = (8, 8)
AWQ: dict[str, Any] = {
    "quant_method": "awq",
    "bits": 4,
    "group_size": GROUP,
    "zero_point": True,
    "version": "gemm",
}
GPTQ: dict[str, Any] = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": True}
FP8: dict[str, Any] = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": list(BLOCK)}
_Q = "model.layers.0.self_attn.q_proj"
_CONFIG = hf.CONFIG | {"hidden_size": HIDDEN}
Stored = dict[str, tuple[str, tuple[int, ...]]]


def _awq_parts(module: str, rows: int, columns: int) -> Stored:
    return {
        f"{module}.qweight": ("I32", (columns, rows // 8)),
        f"{module}.qzeros": ("I32", (columns // GROUP, rows // 8)),
        f"{module}.scales": ("F16", (columns // GROUP, rows)),
    }


def _gptq_parts(module: str, rows: int, columns: int) -> Stored:
    return {
        f"{module}.qweight": ("I32", (columns // 8, rows)),
        f"{module}.qzeros": ("I32", (columns // GROUP, rows // 8)),
        f"{module}.scales": ("F16", (columns // GROUP, rows)),
        f"{module}.g_idx": ("I32", (columns,)),
    }


def _fp8_parts(module: str, rows: int, columns: int) -> Stored:
    scales = (-(-rows // BLOCK[0]), -(-columns // BLOCK[1]))
    return {f"{module}.weight": ("F8_E4M3", (rows, columns)), f"{module}.weight_scale_inv": ("F32", scales)}


def _stored(parts: Callable[[str, int, int], Stored]) -> Stored:
    found: Stored = {}
    for name, (dtype, shape) in hf.tensors(HIDDEN).items():
        if "_proj." in name:
            found |= parts(name.removesuffix(".weight"), *shape)
        else:
            found[name] = (dtype, shape)
    return found


def _model(table: Tensors, settings: Mapping[str, Any] | None) -> Folder:
    section = {} if settings is None else {"quantization_config": settings}
    return hf.single(table, _CONFIG | section)


def awq(*, leave_out: str = "", tensors: Mapping[str, Any] | None = None, **changes: Any) -> Folder:
    return _edited(_stored(_awq_parts), AWQ | changes, leave_out, tensors)


def gptq(*, leave_out: str = "", tensors: Mapping[str, Any] | None = None, **changes: Any) -> Folder:
    return _edited(_stored(_gptq_parts), GPTQ | changes, leave_out, tensors)


def fp8(*, leave_out: str = "", tensors: Mapping[str, Any] | None = None, **changes: Any) -> Folder:
    return _edited(_stored(_fp8_parts), FP8 | changes, leave_out, tensors)


def _edited(table: Stored, settings: dict[str, Any], leave_out: str, tensors: Mapping[str, Any] | None) -> Folder:
    kept = {name: kind for name, kind in table.items() if name != leave_out}
    return _model(kept | dict(tensors or {}), {key: value for key, value in settings.items() if value is not None})


def zero_biases() -> Stored:
    """Beside every quantised matrix, as quantisers write them where the model has none."""
    matrices = {name: shape for name, (_, shape) in hf.tensors(HIDDEN).items() if "_proj." in name}
    return {f"{name.removesuffix('weight')}bias": ("F16 zeros", shape[:1]) for name, shape in matrices.items()}


CASES: dict[str, Callable[[], Folder]] = {
    "sound-hf-awq": awq,
    "sound-hf-gptq": gptq,
    "sound-hf-fp8": fp8,
    "quant-method-unsupported": lambda: _model(
        hf.tensors(HIDDEN), {"quant_method": "bitsandbytes", "load_in_4bit": True}
    ),
    "quant-method-missing": lambda: awq(quant_method=None),
    "quant-section-no-object": lambda: hf.single(_stored(_awq_parts), _CONFIG | {"quantization_config": "awq"}),
    "quant-nothing-quantised": lambda: _model(hf.tensors(HIDDEN), AWQ),
    "awq-eight-bits": lambda: awq(bits=8),
    "awq-version-gemv": lambda: awq(version="gemv"),
    "awq-scales-missing": lambda: awq(leave_out=f"{_Q}.scales"),
    "awq-qweight-missing": lambda: awq(leave_out=f"{_Q}.qweight"),
    "awq-group-larger-than-row": lambda: awq(group_size=128),
    "awq-group-not-dividing": lambda: awq(tensors={f"{_Q}.qweight": ("I32", (12, 2))}),
    "awq-group-not-that-of-scales": lambda: awq(group_size=16),
    "awq-qweight-of-shorts": lambda: awq(tensors={f"{_Q}.qweight": ("F16", (16, 2))}),
    "awq-also-plain": lambda: awq(tensors={f"{_Q}.weight": ("F16", (16, 16))}),
    "awq-misshapen": lambda: awq(tensors=_awq_parts("model.layers.1.self_attn.v_proj", 16, HIDDEN)),
    "gptq-without-section": lambda: _model(_stored(_gptq_parts), None),
    "gptq-three-bits": lambda: gptq(bits=3),
    "gptq-marlin": lambda: gptq(checkpoint_format="marlin"),
    "gptq-group-odd": lambda: gptq(group_size=12),
    "gptq-zeros-misshapen": lambda: gptq(tensors={f"{_Q}.qzeros": ("I32", (2, 4))}),
    "gptq-index-missing": lambda: gptq(leave_out=f"{_Q}.g_idx"),
    "gptq-dynamic": lambda: gptq(dynamic={r"+:.*\.down_proj": {"bits": 8}}),
    "fp8-scale-missing": lambda: fp8(leave_out=f"{_Q}.weight_scale_inv"),
    "fp8-scale-misshapen": lambda: fp8(tensors={f"{_Q}.weight_scale_inv": ("F32", (1, 1))}),
    "fp8-scale-without-block": lambda: fp8(weight_block_size=None),
    "fp8-block-no-pair": lambda: fp8(weight_block_size=[128]),
    "fp8-scale-of-plain": lambda: fp8(tensors={f"{_Q}.weight": ("F16", (16, 16))}),
}
