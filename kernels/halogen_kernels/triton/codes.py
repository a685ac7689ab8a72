"""How matrices are held, and their codes made numbers.

    plain       numbers [rows, columns]
    int8        codes [rows, columns], a scale a row, with which the sums are multiplied at the end
    fp8         float8 e4m3fn likewise
    fp8_bits    the same codes, made wide by integer arithmetic, for devices that do not know the type
    int4        tiles of 32 rows and groups of 32 columns: codes [tiles, groups, 16, 32], scales and minima
                [tiles, groups, 32]; value = scale * code + minimum

Rows are `stride` values apart, a multiple of 16, and are read up to it: what lies between the last column and the
stride is zeros.
"""

from __future__ import annotations

import triton
import triton.language as tl

TILE_ROWS = 32
GROUP = tl.constexpr(32)
HALF = tl.constexpr(16)
TILE_BYTES = tl.constexpr(512)  # the codes of a group of columns in a tile of rows
INT_BITS = tl.constexpr(0x4B000000)  # float32's 2^23, whose last bits count in ones
INT_BASE = tl.constexpr(8388608.0)


@triton.jit
def from_e4m3(bits):
    """float8 e4m3fn, given as uint8, in float16: whose bias is larger by 8, and which has every value, the
    subnormal ones too. Not a number is told apart from none."""
    wide = bits.to(tl.uint16)
    half = ((wide & 0x80) << 8) | ((wide & 0x7F) << 7)
    return half.to(tl.float16, bitcast=True) * 256.0


@triton.jit
def widened(codes, KIND: tl.constexpr, DTYPE: tl.constexpr):
    """Codes of a kind with one scale a row, as numbers."""
    if KIND == "int8":
        values = codes.to(tl.float32).to(DTYPE)
    elif KIND == "fp8":
        values = codes.to(tl.float8e4nv, bitcast=True).to(tl.float32).to(DTYPE)
    elif KIND == "fp8_bits":
        values = from_e4m3(codes).to(tl.float32).to(DTYPE)
    else:
        values = codes.to(DTYPE)
    return values


@triton.jit
def counted(nibbles):
    """0 to 15 as float32, in two operations where a conversion takes longer."""
    return (nibbles.to(tl.int32) | INT_BITS).to(tl.float32, bitcast=True) - INT_BASE
