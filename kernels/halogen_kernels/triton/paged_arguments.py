"""What the kernels over paged keys and values are given: the tables of a cache, the numbers of a launch, and the
constexprs that say how what lies in the cache is read.

For launchers; the kernels' own pieces are in `tiles`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from halogen_kernels.triton import targets
from halogen_kernels.triton.attention_plan import AttentionPlan
from halogen_kernels.triton.chunked import CODED, ChunkedCache
from halogen_kernels.triton.shapes import power_of_two

LEAST_DIM = 16
"""Products of fewer columns are not made."""
LOG2E = 1.4426950408889634

_TYPES = {
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
    torch.float32: tl.float32,
    torch.int8: tl.int8,
    torch.float8_e4m3fn: tl.float8e4nv,
}


def tables_of(cache: ChunkedCache) -> tuple[Tensor, Tensor]:
    """`addresses` and `scale_addresses`. A kernel wants an address even where it reads nothing there."""
    return cache.addresses, cache.addresses if cache.scale_addresses is None else cache.scale_addresses


def numbers_of(
    queries: Tensor, cache: ChunkedCache, plan: AttentionPlan, tables: Tensor
) -> tuple[float, float, int, int, int, int, int, int]:
    """`inner`, `outer`, `window`, `shift`, `kv_heads`, `group`, `row_heads` and `table_stride`, in the order in which
    both kernels of attention take them. `queries` [n, H, d]; `tables` [s, width] has the blocks."""
    shape = plan.shape
    return (
        *softening(shape.scale, shape.softcap),
        plan.window,
        cache.chunk_shift,
        shape.kv_heads,
        shape.group,
        queries.stride(0) // shape.head_dim,
        tables.shape[1],
    )


def constants(cache: ChunkedCache, compute: torch.dtype) -> dict[str, Any]:
    """The constexprs that say how a cache is read: HELD is what lies there, CODE how it becomes values, DOT what is
    multiplied. In the interpreter products are of float32, since NumPy knows no bfloat16."""
    coded = cache.dtype in CODED
    held, code = _TYPES[cache.dtype], "plain"
    if cache.dtype == torch.int8:
        code = "int8"
    elif cache.dtype == torch.float8_e4m3fn:
        native = targets.current().native_fp8
        held, code = (held, "fp8") if native else (tl.uint8, "fp8_bits")
    narrow = compute if coded else cache.dtype
    dot = tl.float32 if targets.current() is targets.INTERPRETER else _TYPES[narrow]
    return {
        "HEAD_DIM": cache.head_dim,
        "D": max(LEAST_DIM, power_of_two(cache.head_dim)),
        "T": cache.block_tokens,
        "HELD": held,
        "CODE": code,
        "DOT": dot,
    }


def softening(scale: float, softcap: float) -> tuple[float, float]:
    """`inner` and `outer` of `tiles.scores_of`, which are in powers of two."""
    if softcap:
        return 2.0 * LOG2E * scale / softcap, softcap * LOG2E
    return scale * LOG2E, 0.0
