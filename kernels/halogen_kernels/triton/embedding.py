"""Rows of the embedding table, plain or int8 with a scale a row, made float32."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from halogen_kernels.triton import tuning
from halogen_kernels.triton.hints import aligned, sixteens
from halogen_kernels.triton.launching import launch
from halogen_kernels.triton.shapes import Shapes

OP = "embedding"


@triton.jit(do_not_specialize=["vocab", "width"])
def embedding_kernel(
    table,
    scales,
    tokens,
    out,
    vocab,
    width,
    SCALED: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    width = sixteens(width, ALIGNED)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(tokens + row)
    known = (token >= 0) & (token < vocab)
    token = tl.where(known, token, 0)
    values = tl.load(table + token * width + column, mask=column < width, other=0).to(tl.float32)
    if SCALED:
        values *= tl.load(scales + token)
    values = tl.where(known, values, float("nan"))
    tl.store(out + row * width + column, values, mask=column < width)


def embedding(table: Tensor, scales: Tensor | None, tokens: Tensor) -> Tensor:
    """float32 [n, h] of `tokens` int64 [n]. `table` is [vocab, h], contiguous; of int8 codes, if `scales` float32
    [vocab] is given. A token outside the vocabulary has a row of NaN: there is nobody on a device to tell."""
    (rows,), (vocab, width) = tokens.shape, table.shape
    out = torch.empty(rows, width, dtype=torch.float32, device=table.device)
    blocks = tuning.pick(OP)
    launch(
        embedding_kernel,
        (rows, triton.cdiv(width, blocks["BLOCK"])),
        table,
        tokens if scales is None else scales,
        tokens,
        out,
        vocab,
        width,
        SCALED=scales is not None,
        ALIGNED=aligned(width),
        **blocks,
    )
    return out


def rehearse(shapes: Shapes) -> None:
    """Tables are small, and so large that AMD's code addresses them in another way."""
    tokens = torch.empty(4, dtype=torch.int64, device="meta")
    for rows in (8, 1 << 26):
        for width in (64, 65):
            for dtype in (*shapes.dtypes, torch.float32):
                embedding(torch.empty(rows, width, dtype=dtype, device="meta"), None, tokens)
            codes = torch.empty(rows, width, dtype=torch.int8, device="meta")
            embedding(codes, torch.empty(rows, dtype=torch.float32, device="meta"), tokens)
