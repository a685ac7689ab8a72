"""A mixture's feed-forward, grouped by expert: each expert's matrices are read once for all rows that chose it.

    route      (row, choice) pairs in the order of their experts' numbers, cut into tiles of one expert each
    gated      act(gate_e x) * (up_e x) of each tile, [pairs, f], in that order
    down       down_e of it, [pairs, h], in the pairs' own order
    combine    a row's products, each times its share, added up in float32 in the order of its choices

Nothing is read back by the host: how many rows an expert has is known to the kernels alone. There are as many tiles as
there could be, pairs / BLOCK_M + experts, and those that are none end at once. Experts are separate allocations, found
by tables of their addresses. A number that no expert has counts for nothing here, where the CPU's kernels refuse it:
to look would be to wait for the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from halogen_kernels.triton import linear_cases, tuning
from halogen_kernels.triton.activation import activated
from halogen_kernels.triton.expert_tables import Tables, codes_of, scales_of
from halogen_kernels.triton.launching import launch
from halogen_kernels.triton.matrix import Matrix, padded
from halogen_kernels.triton.quantised_linear import laid_out
from halogen_kernels.triton.shapes import Shapes
from halogen_kernels.triton.weight_tiles import products, put_rows
from halogen_kernels.values import Activation, ExpertWeights

OP = "experts"
_NO_TILE = -1
_NO_EXPERT = tl.constexpr(1 << 30)  # larger than any
_ROUTED_BLOCK = 64  # pairs that one program compares at a time, with as many
_COMBINED_BLOCK = 1024


@triton.jit(do_not_specialize=["pairs", "experts"])
def route_kernel(chosen, order, tiles, pairs, experts, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """`order` [pairs]: which pair comes where. `tiles` [tiles, 3]: a tile's expert, its first pair's place and how many
    it has. Place / ROWS + expert numbers the tiles so that no two are one, and their order is that of the places."""
    own = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mine = tl.load(chosen + own, mask=own < pairs, other=-1).to(tl.int32)
    valid = (mine >= 0) & (mine < experts)
    place = tl.zeros((BLOCK,), dtype=tl.int32)
    before = tl.zeros((BLOCK,), dtype=tl.int32)
    count = tl.zeros((BLOCK,), dtype=tl.int32)
    for first in range(0, pairs, BLOCK):
        other = first + tl.arange(0, BLOCK)
        theirs = tl.load(chosen + other, mask=other < pairs, other=-1).to(tl.int32)
        theirs = tl.where((theirs >= 0) & (theirs < experts), theirs, _NO_EXPERT)
        same = (theirs[None, :] == mine[:, None]).to(tl.int32)
        earlier = tl.where(other[None, :] < own[:, None], same, 0)
        lower = (theirs[None, :] < mine[:, None]).to(tl.int32)
        count += tl.sum(same, 1)
        before += tl.sum(earlier, 1)
        place += tl.sum(lower + earlier, 1)
    tl.store(order + place, own, mask=valid)
    leads = valid & (before % ROWS == 0)
    tile = tiles + (place // ROWS + mine) * 3
    tl.store(tile, mine, mask=leads)
    tl.store(tile + 1, place, mask=leads)
    tl.store(tile + 2, tl.minimum(count - before, ROWS), mask=leads)


@triton.jit(do_not_specialize=["experts", "each", "rows", "stride", "x_stride", "out_stride"])
def expert_kernel(
    x,
    addresses,
    order,
    tiles,
    out,
    experts,
    each,
    rows,
    stride,
    x_stride,
    out_stride,
    KIND: tl.constexpr,
    ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """With an activation: gate and up, of row pair / `each` of x, to the pair's place. Without one ("none"): down, of
    the row at the pair's place, to the pair's own row."""
    GATED: tl.constexpr = ACTIVATION != "none"
    tile = tiles + tl.program_id(0) * 3
    expert = tl.load(tile)
    if expert < 0:
        return
    place = tl.load(tile + 1) + tl.arange(0, BLOCK_M)
    kept = tl.arange(0, BLOCK_M) < tl.load(tile + 2)
    pair = tl.load(order + place, mask=kept, other=0)
    first_out = tl.program_id(1) * BLOCK_N
    codes = codes_of(addresses, expert, experts, 0, x, KIND)
    scales = scales_of(addresses, expert, experts, 1, KIND)
    minima = scales_of(addresses, expert, experts, 2, KIND)
    if GATED:
        source, target = pair // each, place
        up_codes = codes_of(addresses, expert, experts, 3, x, KIND)
        up_scales = scales_of(addresses, expert, experts, 4, KIND)
        up_minima = scales_of(addresses, expert, experts, 5, KIND)
    else:
        source, target = place, pair
        up_codes, up_scales, up_minima = codes, scales, minima
    sums, up_sums = products(
        x + source.to(tl.int64) * (x_stride // 16 * 16), kept,
        codes, scales, minima, up_codes, up_scales, up_minima,
        first_out, rows, stride // 16 * 16, 0, stride // 16 * 16, KIND, GATED, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    if GATED:
        sums = activated(sums, ACTIVATION) * up_sums
    outs = first_out + tl.arange(0, BLOCK_N)
    sums = tl.where((outs < rows)[None, :], sums, 0.0)
    put_rows(out, sums, target.to(tl.int64), kept, outs, outs < out_stride, out_stride)


@triton.jit(do_not_specialize=["each", "experts", "width", "stride"])
def combine_kernel(products_, chosen, shares, out, each, experts, width, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for choice in range(each):
        pair = row * each + choice
        expert = tl.load(chosen + pair)
        valid = (expert >= 0) & (expert < experts)
        share = tl.load(shares + pair)
        product = tl.load(products_ + pair * stride + column, mask=inside & valid, other=0.0).to(tl.float32)
        total += tl.where(valid, product * share, 0.0)
    tl.store(out + row * width + column, total.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, slots=True, eq=False)
class _Routed:
    """What `route` found, and the block sizes that it cut tiles for."""

    order: Tensor
    tiles: Tensor
    each: int
    blocks: tuning.Blocks


class Experts:
    """The seam's mixture. Holds the tables of each mixture that it has met, as long as it lives; single writer: the
    thread that runs steps."""

    def __init__(self) -> None:
        self._met: dict[int, tuple[ExpertWeights, Tables]] = {}

    def __call__(
        self, x: Tensor, chosen: Tensor, shares: Tensor, experts: ExpertWeights, activation: Activation
    ) -> Tensor:
        met = self._met.get(id(experts))
        if met is None:  # those that are held keep their identity
            met = self._met[id(experts)] = experts, Tables.of(experts)
        return mixture(x, (chosen, shares), met[1], activation)


def mixture(x: Tensor, choices: tuple[Tensor, Tensor], tables: Tables, activation: Activation) -> Tensor:
    """x [n, h], experts' numbers [n, k] and float32 shares [n, k]: [n, h] in x's dtype."""
    chosen, shares = choices[0].contiguous(), choices[1].float().contiguous()
    pairs = chosen.numel()
    routed = _route(chosen, tables)
    inner = x.new_empty(pairs, padded(tables.gate.rows))
    _run(laid_out(x), inner, routed, tables.gated, tables.gate, activation)
    outer = x.new_empty(pairs, padded(tables.last.rows))
    _run(inner, outer, routed, tables.down, tables.last, "none")
    return _combine(outer, (chosen, shares), tables)


def _route(chosen: Tensor, tables: Tables) -> _Routed:
    pairs, experts = chosen.numel(), tables.count
    blocks = tuning.pick(OP, kind=tables.gate.format, rows=max(1, pairs // experts))
    order = chosen.new_empty(pairs, dtype=torch.int32)
    most = (pairs - 1) // blocks["BLOCK_M"] + experts
    tiles = chosen.new_full((most, 3), _NO_TILE, dtype=torch.int32)
    launch(
        route_kernel,
        (triton.cdiv(pairs, _ROUTED_BLOCK),),
        chosen,
        order,
        tiles,
        pairs,
        experts,
        ROWS=blocks["BLOCK_M"],
        BLOCK=_ROUTED_BLOCK,
        num_warps=4,
    )
    return _Routed(order, tiles, chosen.shape[1], blocks)


def _run(x: Tensor, out: Tensor, routed: _Routed, addresses: Tensor, matrix: Matrix, activation: str) -> None:
    blocks = routed.blocks
    launch(
        expert_kernel,
        (len(routed.tiles), triton.cdiv(out.shape[1], blocks["BLOCK_N"])),
        x,
        addresses,
        routed.order,
        routed.tiles,
        out,
        addresses.shape[1],
        routed.each,
        matrix.rows,
        matrix.stride,
        x.stride(0),
        out.stride(0),
        KIND=matrix.kind,
        ACTIVATION=activation,
        **blocks,
    )


def _combine(outer: Tensor, choices: tuple[Tensor, Tensor], tables: Tables) -> Tensor:
    n, each = choices[0].shape
    width = tables.last.rows
    out = outer.new_empty(n, width)
    grid = (n, triton.cdiv(width, _COMBINED_BLOCK))
    numbers = each, tables.count, width, outer.stride(0)
    launch(combine_kernel, grid, outer, *choices, out, *numbers, BLOCK=_COMBINED_BLOCK, num_warps=4)
    return out


def rehearse(shapes: Shapes) -> None:
    if True not in shapes.experts:
        return
    for x, matrix in linear_cases.multiplied(OP, shapes, linear_cases.ROWS):
        table = x.new_empty((6, 1), dtype=torch.int64)
        tables = Tables(table, table[:3], matrix, matrix, 1)
        chosen, shares = x.new_empty((len(x), 1), dtype=torch.int64), x.new_empty((len(x), 1))
        for kind in shapes.activations:
            mixture(x, (chosen, shares), tables, kind)
