"""Products with int8, fp8 and int4 weights that are made wide piece by piece, then multiplied: the definition
of these formats, and fast enough for any backend that has nothing better.

Arithmetic is in float32 (float64 for float64 input) and rounded once, at the end. A row's arithmetic
does not depend on the other rows of a step; that of an activation in float32 only where the width fills
whole vectors, a multiple of 32, as models' widths do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor

from halogen_kernels.adopt import adopt_fp8, adopt_int4, adopt_int8
from halogen_kernels.formats import FP8_ROWS, INT4_TILES, INT8_ROWS
from halogen_kernels.quantise import (
    Fp8Part,
    Int4Part,
    Int4Tiles,
    Int8Part,
    pack_fp8,
    pack_int4,
    pack_int8,
    rows_at_once,
    widen_int4,
    widen_tiles,
)
from halogen_kernels.reference import activate, wide_of
from halogen_kernels.seam import GatedLinear, Kernels, Linear, Mixture, nothing_built
from halogen_kernels.values import Activation, LinearWeight, StoredPart, Workspace

# A float32 product of one to three rows is summed in another order than one of four and more.
_LEAST_ROWS = 4
Quantised = Literal["int8", "int4", "fp8"]
LAYOUTS: Mapping[Quantised, str] = MappingProxyType({"int8": INT8_ROWS, "int4": INT4_TILES, "fp8": FP8_ROWS})
"""The layout in which a matrix of a format is used where it lies."""


class Dequantised:
    """The operators for weights of one format. Single writer of the scratch: the thread that runs
    steps; packing uses none of it, so that several threads may pack."""

    def __init__(self, dtype: torch.dtype, weights: Quantised) -> None:
        self._dtype = dtype
        self._weights = weights
        self._scratch = Workspace()

    @property
    def takes(self) -> frozenset[str]:
        return frozenset([LAYOUTS[self._weights]])

    def pack_linear(self, slices: Iterable[Tensor]) -> LinearWeight:
        rows, columns = 0, 0
        parts: list[Int8Part | Fp8Part | Int4Part] = []
        for slice_ in slices:
            rows, columns = rows + len(slice_), slice_.shape[1]
            parts.extend(_packed(slice_, self._weights))
        return LinearWeight(tuple(parts), rows, columns, self._dtype, sum(part.nbytes for part in parts))

    def adopt_linear(self, parts: Sequence[StoredPart]) -> LinearWeight:
        columns = {part.columns for part in parts}
        if len(columns) != 1:
            raise ValueError(f"matrices of {sorted(columns)} columns do not go below each other")
        held: list[Int8Part | Fp8Part | Int4Tiles] = []
        for part in parts:
            held.extend(_adopted(part, self._weights))
        rows = sum(part.rows for part in parts)
        return LinearWeight(tuple(held), rows, columns.pop(), self._dtype, sum(part.nbytes for part in held))

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
        for product, scales in self._products(x, weight):
            into = out[:, done : done + product.shape[1]]
            torch.mul(product[:rows], scales, out=into) if scales is not None else into.copy_(product[:rows])
            done += product.shape[1]

    def _products(self, x: Tensor, weight: LinearWeight) -> Iterator[tuple[Tensor, Tensor | None]]:
        """`x` with some rows of the matrix at a time, [n, rows], and what is still to be multiplied with."""
        for part in weight.parts:
            match part:
                case Int8Part() | Fp8Part():
                    yield from self._row_products(x, part)
                case Int4Tiles():
                    yield self._tiles_product(x, part), None
                case Int4Part():
                    matrix = self._scratch.take("matrix", (weight.columns, part.rows), x.dtype)
                    yield x @ widen_int4(part, matrix, self._nibbles(part)), None

    def _row_products(self, x: Tensor, part: Int8Part | Fp8Part) -> Iterator[tuple[Tensor, Tensor]]:
        step = rows_at_once(part.codes.shape[1])
        for codes, scales in zip(torch.split(part.codes, step), torch.split(part.scales, step), strict=True):
            matrix = self._scratch.take("matrix", tuple(codes.shape), x.dtype).copy_(codes)
            yield x @ matrix.t(), scales

    def _tiles_product(self, x: Tensor, part: Int4Tiles) -> Tensor:
        shape = part.tiles, x.shape[1], part.block
        matrices = widen_tiles(part, self._scratch.take("matrix", shape, x.dtype), self._nibbles(part))
        products = torch.bmm(x.expand(part.tiles, *x.shape), matrices)
        return products.transpose(0, 1).flatten(1)[:, : part.rows]

    def _nibbles(self, part: Int4Part | Int4Tiles) -> Tensor:
        return self._scratch.take("nibbles", (part.codes.numel(),), torch.uint8)


def _packed(rows: Tensor, weights: Quantised) -> Iterator[Int8Part | Fp8Part | Int4Part]:
    match weights:
        case "int8":
            yield pack_int8(rows)
        case "fp8":
            yield pack_fp8(rows)
        case "int4":
            yield from pack_int4(rows)


def _adopted(stored: StoredPart, weights: Quantised) -> Iterator[Int8Part | Fp8Part | Int4Tiles]:
    match weights:
        case "int8":
            yield from adopt_int8(stored)
        case "fp8":
            yield from adopt_fp8(stored)
        case "int4":
            yield from adopt_int4(stored)


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
        takes=products.takes,
        adopt_linear=products.adopt_linear,
        linear=products.linear,
        logits=products.logits,
        gated_linear=products.gated_linear,
        mixture=make_mixture(products.linear, products.gated_linear),
        names={**kernels.names, "linear": name, "gated_linear": name},
        built_sizes=nothing_built,
    )
