"""Products with int8 and int4 weights that are made wide piece by piece, then multiplied: the definition
of these formats, and fast enough for any backend that has nothing better.

Arithmetic is in float32 (float64 for float64 input) and rounded once, at the end. A row's arithmetic
does not depend on the other rows of a step; that of an activation in float32 only where the width fills
whole vectors, a multiple of 32, as models' widths do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from halogen_kernels.quantise import Int4Part, Int8Part, pack_int4, pack_int8, rows_at_once, widen_int4
from halogen_kernels.reference import activate, wide_of
from halogen_kernels.seam import GatedLinear, Kernels, Linear, Mixture, nothing_built
from halogen_kernels.values import Activation, LinearWeight, Workspace

# A float32 product of one to three rows is summed in another order than one of four and more.
_LEAST_ROWS = 4


class Dequantised:
    """The operators for weights of one format. Single writer of the scratch: the thread that runs
    steps; packing uses none of it, so that several threads may pack."""

    def __init__(self, dtype: torch.dtype, weights: Literal["int8", "int4"]) -> None:
        self._dtype = dtype
        self._weights = weights
        self._scratch = Workspace()

    def pack_linear(self, slices: Iterable[Tensor]) -> LinearWeight:
        rows, columns = 0, 0
        parts: list[Int8Part | Int4Part] = []
        for slice_ in slices:
            rows, columns = rows + len(slice_), slice_.shape[1]
            parts.extend([pack_int8(slice_)] if self._weights == "int8" else pack_int4(slice_))
        return LinearWeight(tuple(parts), rows, columns, self._dtype, sum(part.nbytes for part in parts))

    def linear(self, x: Tensor, weight: LinearWeight, bias: Tensor | None = None) -> Tensor:
        product = self._product(x, weight)
        return (product if bias is None else product.add_(bias)).to(x.dtype)

    def logits(self, x: Tensor, weight: LinearWeight, out: Tensor) -> None:
        self._multiply(x, weight, out)

    def gated_linear(self, x: Tensor, gate: LinearWeight, up: LinearWeight, activation: Activation) -> Tensor:
        return activate(self._product(x, gate), activation).mul_(self._product(x, up)).to(x.dtype)

    def _product(self, x: Tensor, weight: LinearWeight) -> Tensor:
        """[n, rows], wide."""
        out = torch.empty(len(x), weight.rows, dtype=wide_of(x.dtype))
        self._multiply(x, weight, out)
        return out

    def _multiply(self, x: Tensor, weight: LinearWeight, out: Tensor) -> None:
        rows, wide = len(x), wide_of(x.dtype)
        repeats = -(-_LEAST_ROWS // rows) if rows < _LEAST_ROWS else 1
        x = x.to(wide).repeat(repeats, 1) if repeats > 1 else x.to(wide)
        done = 0
        for matrix, scales in self._pieces(weight, wide):
            product = (x @ matrix)[:rows]
            into = out[:, done : done + matrix.shape[1]]
            torch.mul(product, scales, out=into) if scales is not None else into.copy_(product)
            done += matrix.shape[1]

    def _pieces(self, weight: LinearWeight, wide: torch.dtype) -> Iterator[tuple[Tensor, Tensor | None]]:
        """The matrix as [columns, some rows] at a time, and what the product's columns are still to be
        multiplied with. A piece is valid until the next."""
        if self._weights == "int4":
            for part in weight.parts:
                matrix = self._scratch.take("matrix", (weight.columns, part.rows), wide)
                nibbles = self._scratch.take("nibbles", (part.codes.numel(),), torch.uint8)
                yield widen_int4(part, matrix, nibbles), None
        else:
            for part in weight.parts:
                yield from self._int8_pieces(part, wide)

    def _int8_pieces(self, part: Int8Part, wide: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
        step = rows_at_once(part.codes.shape[1])
        for codes, scales in zip(torch.split(part.codes, step), torch.split(part.scales, step), strict=True):
            matrix = self._scratch.take("matrix", tuple(codes.shape), wide).copy_(codes)
            yield matrix.t(), scales


def with_products(
    kernels: Kernels,
    products: Dequantised,
    name: str,
    make_mixture: Callable[[Linear, GatedLinear], Mixture],
) -> Kernels:
    """`kernels` with these products, called `name`."""
    return replace(
        kernels,
        pack_linear=products.pack_linear,
        linear=products.linear,
        logits=products.logits,
        gated_linear=products.gated_linear,
        mixture=make_mixture(products.linear, products.gated_linear),
        names={**kernels.names, "linear": name, "gated_linear": name},
        built_sizes=nothing_built,
    )
