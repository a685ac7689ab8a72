"""Tiny quantised directories, and the plain weights that each of them stands for.

    tiny = gptq(make("llama", tmp_path / "base", **WIDE), tmp_path / "gptq", group_size=64)
    tiny.path            the quantised directory
    tiny.source          one with the dequantised weights in float32, which tiny.reference() loads

The plain weights are computed from the integers and scales before these are packed, so that nothing
that unpacks is part of the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from support.tiny_hf import TinyDir
from support.tiny_layouts import State, read_state, write_dir
from torch import Tensor

# Sizes that groups of 128 fit in, beside some that blocks of 128 do not.
WIDE: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the column that each nibble of a word holds
FP8_MAX = 448.0
BLOCK = 128

# A stored module's tensors by suffix, and the matrix [out, in] that they stand for.
Quantised = tuple[dict[str, Tensor], Tensor]


def awq(
    base: TinyDir, path: Path, *, group_size: int = 128, zero_point: bool = True, skip: Collection[str] = ()
) -> TinyDir:
    """As AutoAWQ's GEMM version writes it. `skip` are parts of names of modules left as they are."""

    def quantise(weight: Tensor) -> Quantised:
        levels, scales, zeros = _to_4bit(weight, group_size, symmetric=not zero_point, least_zero=0)
        packed = {
            "qweight": _packed_columns(levels.T, AWQ_ORDER),
            "qzeros": _packed_columns(zeros.T, AWQ_ORDER),
            "scales": scales.T.half(),
        }
        return packed, _plain(levels, scales, zeros, _groups_in_order(weight, group_size))

    settings = {
        "quant_method": "awq",
        "bits": 4,
        "group_size": group_size,
        "zero_point": zero_point,
        "version": "gemm",
        "modules_to_not_convert": list(skip) or None,
    }
    return _quantised(base, path, quantise, settings, torch.float16, skip)


def gptq(
    base: TinyDir, path: Path, *, group_size: int = 128, sym: bool = True, desc_act: bool = False, v2: bool = False
) -> TinyDir:
    """As AutoGPTQ writes it, with a bias beside every matrix; `v2` keeps zeros as they are where the older
    format takes one off. With `desc_act` the columns of a group lie anywhere. A group size of -1 is one group."""
    generator = torch.Generator().manual_seed(7)

    def quantise(weight: Tensor) -> Quantised:
        size = weight.shape[1] if group_size == -1 else group_size
        groups = _groups_in_order(weight, size)
        if desc_act:
            groups = groups[torch.randperm(len(groups), generator=generator)]
        order = groups.argsort(stable=True)
        levels, scales, zeros = _to_4bit(weight[:, order], size, symmetric=sym, least_zero=0 if v2 else 1)
        levels = levels[:, order.argsort()]
        packed = {
            "qweight": _packed_columns(levels, range(8)).T,
            "qzeros": _packed_columns(zeros.T - (0 if v2 else 1), range(8)),
            "scales": scales.T.half(),
            "g_idx": groups.int(),
            "bias": torch.zeros(len(weight), dtype=torch.float16),
        }
        return packed, _plain(levels, scales, zeros, groups)

    settings = {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": group_size,
        "sym": sym,
        "desc_act": desc_act,
        "static_groups": False,
        "true_sequential": True,
        "damp_percent": 0.1,
        "checkpoint_format": "gptq_v2" if v2 else "gptq",
    }
    return _quantised(base, path, quantise, settings, torch.float16, ())


def fp8_blocks(base: TinyDir, path: Path, *, skip: Collection[str] = ()) -> TinyDir:
    """As DeepSeek and Qwen3 are published: one scale a block of 128 x 128, blocks at the edges smaller.
    `skip` are parts of names; the configuration lists the modules in full."""

    def quantise(weight: Tensor) -> Quantised:
        rows, columns = weight.shape
        scales = torch.empty(-(-rows // BLOCK), -(-columns // BLOCK))
        stored = torch.empty(rows, columns, dtype=torch.float8_e4m3fn)
        plain = torch.empty(rows, columns)
        for i in range(scales.shape[0]):
            for j in range(scales.shape[1]):
                block = (slice(i * BLOCK, (i + 1) * BLOCK), slice(j * BLOCK, (j + 1) * BLOCK))
                scales[i, j] = weight[block].abs().max() / FP8_MAX
                stored[block] = (weight[block] / scales[i, j]).to(torch.float8_e4m3fn)
                plain[block] = stored[block].float() * scales[i, j]
        return {"weight": stored, "weight_scale_inv": scales}, plain

    settings: dict[str, Any] = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [BLOCK, BLOCK],
    }
    if skip:
        skipped = [name for name in read_state(base.source) if any(part in name for part in skip)]
        settings["modules_to_not_convert"] = ["lm_head", *(name.removesuffix(".weight") for name in skipped)]
    return _quantised(base, path, quantise, settings, torch.bfloat16, skip)


def fp8_tensors(base: TinyDir, path: Path, *, static: bool = False) -> TinyDir:
    """One scale a matrix; `static` adds the scale of its inputs, which computing in float does not need."""

    def quantise(weight: Tensor) -> Quantised:
        scale = weight.abs().max() / FP8_MAX
        stored = (weight / scale).to(torch.float8_e4m3fn)
        tensors = {"weight": stored, "weight_scale": scale}
        return tensors | ({"input_scale": torch.tensor(0.02)} if static else {}), stored.float() * scale

    settings = {"quant_method": "fp8", "activation_scheme": "static" if static else "dynamic"}
    return _quantised(base, path, quantise, settings, torch.bfloat16, ())


def _quantised(
    base: TinyDir,
    path: Path,
    quantise: Callable[[Tensor], Quantised],
    settings: dict[str, Any],
    dtype: torch.dtype,
    skip: Collection[str],
) -> TinyDir:
    """Both directories. What is not quantised is rounded to `dtype`."""
    stored: State = {}
    plain: State = {}
    matrices_first = sorted(read_state(base.source).items(), key=lambda item: item[0].endswith(".bias"))
    for name, tensor in matrices_first:  # a bias that the model has takes the place of one of zeros
        if _is_matrix_of_layer(name) and not any(part in name for part in skip):
            tensors, plain[name] = quantise(tensor)
            stored |= {f"{name.removesuffix('weight')}{suffix}": part for suffix, part in tensors.items()}
        else:
            stored[name] = tensor.to(dtype)
            plain[name] = stored[name].float()
    config = {**base.config, "dtype": str(dtype).removeprefix("torch."), "quantization_config": settings}
    write_dir(path, stored, config, base.source)
    source = path.with_name(f"{path.name}-plain")
    write_dir(source, plain, base.config, base.source)
    return replace(base, path=path, source=source)


def _is_matrix_of_layer(name: str) -> bool:
    """All projections; not embeddings, norms, biases and routers."""
    parts = name.split(".")
    return parts[1] == "layers" and parts[-1] == "weight" and "norm" not in parts[-2] and parts[-2] != "gate"


def _to_4bit(weight: Tensor, group_size: int, *, symmetric: bool, least_zero: int) -> tuple[Tensor, Tensor, Tensor]:
    """[out, in] to levels [out, in] in 0..15, scales [out, groups] that float16 holds, zeros [out, groups]."""
    grouped = weight.unflatten(1, (-1, group_size))
    if symmetric:
        scales = grouped.abs().amax(2) / 7.5
        zeros = torch.full_like(scales, 8)
    else:
        low, high = grouped.amin(2).clamp(max=0), grouped.amax(2).clamp(min=0)
        scales = (high - low) / 15
        zeros = (-low / scales).round().clamp(least_zero, 15)
    scales = scales.half().float()
    levels = (grouped / scales[..., None] + zeros[..., None]).round().clamp(0, 15)
    return levels.flatten(1).int(), scales, zeros.int()


def _groups_in_order(weight: Tensor, group_size: int) -> Tensor:
    return torch.arange(weight.shape[1]) // group_size


def _plain(levels: Tensor, scales: Tensor, zeros: Tensor, groups: Tensor) -> Tensor:
    """(level - zero) x scale, with the zero and the scale of each column's group."""
    return (levels - zeros[:, groups]).float() * scales[:, groups]


def _packed_columns(values: Tensor, order: Collection[int]) -> Tensor:
    """[rows, columns] of 0..15 to int32 [rows, columns / 8]: nibble k of a word, from the low end, is the
    `order`-th of its eight columns."""
    eights = values.long().unflatten(1, (-1, 8))
    words = torch.zeros(eights.shape[:2], dtype=torch.int64)
    for nibble, column in enumerate(order):
        words |= eights[..., column] << (4 * nibble)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).int()
