"""How matrices are held, and their codes made numbers.

    plain       numbers [rows, columns]
    int8        codes [rows, columns], a scale a row, with which the sums are multiplied at the end
    fp8         float8 e4m3fn likewise
    fp8_bits    the same codes, made wide by integer arithmetic, for devices that do not know the type
    int4        tiles of 32 rows and groups of 32 columns: codes [tiles, groups, 16, 32], scales and minima
                [tiles, groups, 32]; value = scale * code + minimum

Rows are `stride` values apart, a multiple of 16, and are read up to it: what lies between the last column and the
stride is zeros.

Codes of int4 are read as words of four bytes, which belong to four rows next to each other, a quad: byte p of word
[t, g, j, q] has row 32 t + 4 q + p of columns 32 g + j and 32 g + 16 + j. So each quad's four rows have sums of their
own, which are put in order at the end.
"""

from __future__ import annotations

import triton
import triton.language as tl

TILE_ROWS = 32
GROUP = tl.constexpr(32)
HALF = tl.constexpr(16)
TILE_QUADS = tl.constexpr(8)
ONE_BITS = tl.constexpr(0x3F800000)  # 1.0 in float32
GROUP_WORDS = tl.constexpr(128)  # of a tile of rows


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
def sixteenths(words, one, BIT: tl.constexpr):
    """1 + code / 16 of the code that begins at a bit of each word, float32: its bits become the first four of the
    fraction of `one`, the bits of 1.0, and nothing is converted."""
    if BIT <= 19:
        placed = words << (19 - BIT)
    else:
        placed = words >> (BIT - 19)
    return ((placed & 0x780000) | one).to(tl.float32, bitcast=True)


@triton.jit
def quad_planes(codes, first_out, rows, stride, words, QUADS: tl.constexpr, GROUPS: tl.constexpr):
    """Where QUADS quads of an int4 matrix lie, from its row `first_out` on, in its first GROUPS groups of columns:
    addresses of the words that come `words` [N] after a tile's first, [N, QUADS]; the places of scales and minima of
    their first rows, [GROUPS, QUADS]; which quads there are, [QUADS]."""
    quads = first_out // 4 + tl.arange(0, QUADS)
    tile = (quads // TILE_QUADS).to(tl.int64) * (stride // GROUP)
    codes_at = codes.to(tl.pointer_type(tl.uint32), bitcast=True)
    codes_at += (tile * GROUP_WORDS + quads % TILE_QUADS)[None, :] + words[:, None]
    scale_at = (tile * GROUP + quads % TILE_QUADS * 4)[None, :] + (tl.arange(0, GROUPS) * GROUP)[:, None]
    return codes_at, scale_at, quads < (rows + 31) // 32 * TILE_QUADS


@triton.jit
def in_order(first, second, third, fourth, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[ROWS, COLUMNS / 4] of each of the quads' rows -> [ROWS, COLUMNS]."""
    pairs = tl.join(tl.join(first, third), tl.join(second, fourth))
    return tl.reshape(pairs, (ROWS, COLUMNS))
