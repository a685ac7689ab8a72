"""New keys and values into the chunks of a cache, as they are or in eight bits with a scale a head.

A program takes BLOCK heads of keys or values, whichever rows they are of. Codes are a head's values over its largest
magnitude, in e4m3 (Micikevicius and others, 2022) to 448, in int8 to 127; the scale is written beside them.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from halogen_kernels.triton import attention_cases, tuning
from halogen_kernels.triton.chunked import ChunkedCache
from halogen_kernels.triton.launching import launch
from halogen_kernels.triton.paged_arguments import constants, tables_of
from halogen_kernels.triton.shapes import Shapes
from halogen_kernels.triton.tiles import chunk_starts

FP8_LARGEST = tl.constexpr(448.0)
INT8_LARGEST = tl.constexpr(127.0)
_ROUND = tl.constexpr(12582912.0)  # 1.5 * 2^23: what is added to it is rounded to a whole number, ties to even
_MOST = tl.constexpr(3.4028234663852886e38)  # float32's largest
_FP8_LEAST = tl.constexpr(0.015625)  # of e4m3's normal numbers; those below are multiples of 2^-9


def write_kv(cache: ChunkedCache, slots: Tensor, kv: Tensor) -> None:
    """As the seam's. `kv` [n, 2 * G * d] has contiguous rows; a row whose slot is negative is left out."""
    heads = 2 * cache.kv_heads
    if kv.stride(0) % cache.head_dim:
        kv = kv.contiguous()
    constexprs = constants(cache, kv.dtype)
    constexprs.pop("DOT")
    sizes = tuning.pick("write_kv", head_dim=cache.head_dim, held_bytes=cache.dtype.itemsize)
    count = len(slots) * heads
    launch(
        write_heads,
        (-(-count // sizes["BLOCK"]),),
        kv,
        slots,
        *tables_of(cache),
        count,
        heads,
        cache.chunk_shift,
        kv.stride(0) // cache.head_dim,
        **constexprs,
        **sizes,
    )


def rehearse(shapes: Shapes) -> None:
    for compute, cache in attention_cases.caches(shapes):
        slots = cache.addresses.new_empty(1)
        write_kv(cache, slots, slots.new_empty((1, cache.kv_width), dtype=compute))


@triton.jit(do_not_specialize=["count", "heads", "shift", "row_heads"])
def write_heads(
    kv,
    slots,
    addresses,
    scale_addresses,
    count,
    heads,
    shift,
    row_heads,
    HEAD_DIM: tl.constexpr,
    D: tl.constexpr,
    T: tl.constexpr,
    HELD: tl.constexpr,
    CODE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = number // heads
    head = number % heads
    slot = tl.load(slots + row, mask=number < count, other=-1)
    held = slot >= 0
    slot = tl.where(held, slot, 0)
    dims = tl.arange(0, D)
    inside = held[:, None] & (dims < HEAD_DIM)[None, :]
    places = (row.to(tl.int64) * row_heads + head) * HEAD_DIM
    values = tl.load(kv + places[:, None] + dims[None, :], mask=inside, other=0.0)

    chunk = slot // T >> shift
    within = (slot - (chunk << shift) * T) * heads + head
    starts = chunk_starts(addresses, chunk, HELD) + within * HEAD_DIM
    if CODE == "plain":
        codes = values.to(HELD)
    else:
        wide = values.to(tl.float32)
        largest: tl.constexpr = INT8_LARGEST if CODE == "int8" else FP8_LARGEST
        finite = tl.abs(wide) <= _MOST
        wide = tl.where(finite, wide, 0.0)
        scale = tl.max(tl.abs(wide), 1) / largest
        codes = coded(wide / tl.where(scale > 0, scale, 1.0)[:, None], CODE)
        # Codes have no way to say that a value is not finite.
        scale = tl.where(tl.max(tl.where(finite, 0, 1), 1) > 0, float("nan"), scale)
        tl.store(chunk_starts(scale_addresses, chunk, tl.float32) + within, scale, mask=held)
    tl.store(starts[:, None] + dims[None, :], codes, mask=inside)


@triton.jit
def coded(scaled, CODE: tl.constexpr):
    """The nearest codes of float32 values that are within what codes reach."""
    if CODE == "int8":
        codes = ((scaled + _ROUND) - _ROUND).to(tl.int8)
    elif CODE == "fp8":
        codes = scaled.to(tl.float8e4nv)
    else:
        bits = scaled.to(tl.uint32, bitcast=True)
        sign = (bits >> 24) & 0x80
        magnitude = tl.abs(scaled)
        small = (magnitude * 512.0 + _ROUND).to(tl.uint32, bitcast=True) & 0xFF
        plain = magnitude.to(tl.uint32, bitcast=True)
        normal = ((plain + 0x7FFFF + ((plain >> 20) & 1)) >> 20) - (120 << 3)
        codes = (sign | tl.where(magnitude < _FP8_LEAST, small, normal)).to(tl.uint8)
    return codes
