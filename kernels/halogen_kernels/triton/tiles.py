"""What the attention kernels share: where a tile of keys and values lies, what its codes mean, and the running
softmax over tiles (Milakov and Gimelshein, 2018; Dao and others, 2022).

Pieces of kernels, inlined where they are called; nothing here is launched. A tile is BLOCK_N positions of one
sequence from a multiple of BLOCK_N on, that is BLOCK_N / T blocks. Where these lie in a row, which RUN says, one
address serves the tile; otherwise each position has its own.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOWEST = tl.constexpr(-1.0e30)  # finite: a row that has seen nothing keeps it, and its shares are 0, not NaN
FP8_STEP = tl.constexpr(256.0)  # bits of e4m3 read as float16 are too small by this: exponents are biased by 7, not 15


@triton.jit
def widened(codes, CODE: tl.constexpr):
    """Codes as float32, before their scale."""
    if CODE == "fp8_bits":
        wide = codes.to(tl.uint16)
        half = (((wide & 0x80) << 8) | ((wide & 0x7F) << 7)).to(tl.uint16)
        value = half.to(tl.float16, bitcast=True).to(tl.float32) * FP8_STEP
    else:
        value = codes.to(tl.float32)
    return value


@triton.jit
def scores_of(products, inner, outer, SOFTCAP: tl.constexpr):
    """log2(e) times the score of each product q . k: softcap * tanh(scale * qk / softcap), or scale * qk."""
    if SOFTCAP:
        scores = outer - 2.0 * outer / (tl.exp2(products * inner) + 1.0)
    else:
        scores = products * inner
    return scores


@triton.jit
def tile_places(blocks, tile, last, shift, T: tl.constexpr, BLOCK_N: tl.constexpr, RUN: tl.constexpr):
    """A tile's chunk and its positions' places there, int32: one chunk for all if RUN, else [BLOCK_N] both.

    `blocks` points at the sequence's table, of which `last` blocks are meant. Places of positions behind them are
    not to be used, nor are those of blocks in front of a window."""
    positions = tl.arange(0, BLOCK_N)
    blocks_each: tl.constexpr = BLOCK_N // T
    if RUN:
        anchor = tl.minimum((tile + 1) * blocks_each, last) - 1
        block = tl.load(blocks + anchor) - (anchor - tile * blocks_each)
        within = positions
    else:
        at = tl.minimum(tile * blocks_each + positions // T, last - 1)
        block = tl.load(blocks + at)
        within = positions % T
    chunk = block >> shift
    return chunk, (block - (chunk << shift)) * T + within


@triton.jit
def chunk_starts(addresses, chunk, HELD: tl.constexpr):
    """Where chunks start. The compiler is told that it is at 16 bytes: heads are read as wide as that then."""
    return tl.multiple_of(tl.load(addresses + chunk).to(tl.pointer_type(HELD)), 16)


@triton.jit
def lies_in_runs(blocks, first, last, shift, T: tl.constexpr, BLOCK_N: tl.constexpr, STEP: tl.constexpr):
    """Whether blocks `first` to `last` - 1 of a table may be read with RUN: each tile's lie in a row from a multiple
    of their number on, so that they are in one chunk. As `attention_plan.in_runs`."""
    blocks_each: tl.constexpr = BLOCK_N // T
    broken = tl.where((1 << shift) < blocks_each, 1, 0)
    for start in range(first, last, STEP):
        at = start + tl.arange(0, STEP)
        anchor = tl.minimum((at // blocks_each + 1) * blocks_each, last) - 1
        here = tl.load(blocks + at, mask=at < last, other=0)
        there = tl.load(blocks + anchor, mask=at < last, other=0)
        whole = (here % blocks_each == at % blocks_each) & (here // blocks_each == there // blocks_each)
        broken += tl.sum(tl.where(whole | (at >= last), 0, 1))
    return broken == 0


@triton.jit
def load_heads(starts, seen, FIRST: tl.constexpr, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, MASKED: tl.constexpr):
    """[n, WIDTH] values of heads from FIRST on, given pointers to their first; 0 where not `seen`, and as padding."""
    dims = FIRST + tl.arange(0, WIDTH)
    places = starts[:, None] + dims[None, :]
    if MASKED:
        heads = tl.load(places, mask=seen[:, None] & (dims < HEAD_DIM)[None, :], other=0.0)
    elif HEAD_DIM < FIRST + WIDTH:
        heads = tl.load(places, mask=(dims < HEAD_DIM)[None, :], other=0.0)
    else:
        heads = tl.load(places)
    return heads


@triton.jit
def query_of(starts, held, HEAD_DIM: tl.constexpr, D: tl.constexpr, DOT: tl.constexpr, PARTS: tl.constexpr):
    """What `fold_tile` takes as `query`, given pointers to the first values of heads."""
    if PARTS == 1:
        query = load_heads(starts, held, 0, HEAD_DIM, D, True).to(DOT)
    else:
        query = starts
    return query


@triton.jit
def part_products(
    query, held, starts, seen,
    FIRST: tl.constexpr, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, MASKED: tl.constexpr, IS_LOADED: tl.constexpr,
    CODE: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """[M, BLOCK_N] sums over WIDTH values of heads, from FIRST on; `query` as in `products_of`."""
    keys = load_heads(starts, seen, FIRST, HEAD_DIM, WIDTH, MASKED)
    if CODE != "plain":
        keys = widened(keys, CODE)
    if IS_LOADED:
        rows = query
    else:
        rows = load_heads(query, held, FIRST, HEAD_DIM, WIDTH, True).to(DOT)
    return tl.dot(rows, tl.trans(keys.to(DOT)), input_precision="ieee")


@triton.jit
def products_of(
    query, held, starts, seen,
    HEAD_DIM: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr, CODE: tl.constexpr, DOT: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """[M, BLOCK_N] sums over whole heads. With one of PARTS, `query` is [M, D]. With more, products are made in as many
    parts of a head, one after the other, and it is [M] pointers, of which `held` are good: each part is read again for
    each tile, for devices whose registers do not hold the whole."""
    width: tl.constexpr = D // PARTS
    products = part_products(query, held, starts, seen, 0, HEAD_DIM, width, MASKED, PARTS == 1, CODE, DOT)
    for part in tl.static_range(1, PARTS):
        products += part_products(query, held, starts, seen, part * width, HEAD_DIM, width, MASKED, False, CODE, DOT)
    return products


@triton.jit
def visible_only(scores, key, seen, position, window, MASK: tl.constexpr):
    """-inf in place of the scores [M, BLOCK_N] that MASK hides, as in `fold_tile`."""
    if MASK == "ends":
        scores = tl.where(seen[None, :], scores, float("-inf"))
    if MASK == "rows":
        visible = (key[None, :] <= position[:, None]) & (key[None, :] > (position - window)[:, None])
        scores = tl.where(visible, scores, float("-inf"))
    return scores


@triton.jit
def fold_tile(
    acc, peak, total, query, held,
    addresses, scale_addresses, blocks, tile, last, low, high, position, window,
    inner, outer, shift, head, kv_heads,
    HEAD_DIM: tl.constexpr, D: tl.constexpr, T: tl.constexpr, BLOCK_N: tl.constexpr, RUN: tl.constexpr,
    MASK: tl.constexpr, HELD: tl.constexpr, CODE: tl.constexpr, DOT: tl.constexpr, SOFTCAP: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """`acc` [M, D], `peak` [M] and `total` [M] of the softmax so far, and one more tile of keys in them. `query` and
    `held` are those of `products_of`.

    MASK "none": every row of `query` sees the whole tile; "ends": all see positions `low` to `high` - 1;
    "rows": row m sees the `window` positions up to `position[m]`, and none does outside `low` to `high` - 1.
    Nothing outside is read."""
    key = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    seen = (key >= low) & (key < high)
    chunk, place = tile_places(blocks, tile, last, shift, T, BLOCK_N, RUN)
    starts = chunk_starts(addresses, chunk, HELD) + (place * (2 * kv_heads) + head) * HEAD_DIM
    masked: tl.constexpr = MASK != "none"
    products = products_of(query, held, starts, seen, HEAD_DIM, D, masked, CODE, DOT, PARTS)
    if CODE != "plain":
        scales = chunk_starts(scale_addresses, chunk, tl.float32) + (place * (2 * kv_heads) + head)
        products *= tl.load(scales, mask=seen, other=0.0)[None, :]
    scores = visible_only(scores_of(products, inner, outer, SOFTCAP), key, seen, position, window, MASK)
    higher = tl.maximum(peak, tl.max(scores, 1))
    shares = tl.exp2(scores - higher[:, None])
    kept = tl.exp2(peak - higher)
    values = load_heads(starts + kv_heads * HEAD_DIM, seen, 0, HEAD_DIM, D, masked)
    if CODE == "plain":
        values = values.to(DOT)
    else:
        values = (widened(values, CODE) * tl.load(scales + kv_heads, mask=seen, other=0.0)[:, None]).to(DOT)
    acc = tl.dot(shares.to(DOT), values, acc * kept[:, None], input_precision="ieee")
    return acc, higher, total * kept + tl.sum(shares, 1)
