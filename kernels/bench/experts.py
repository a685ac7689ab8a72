"""A mixture of experts with each weight format, beside the library's products of one expert after the other.

    python kernels/bench/experts.py [--device cuda] [--dtype bfloat16] [--small] [--json FILE]

Rows choose experts in turn, so that as many are read as can be; bytes are those of the experts that are chosen. The
other way needs to know on the host how many rows each has, as it does here beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count

import frame
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from frame import Case, Options
from halogen_kernels import WEIGHT_FORMATS, ExpertWeights, LinearWeight, WeightFormat, packed_bytes
from halogen_kernels.triton.experts import Experts
from halogen_kernels.triton.linear import Products
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Shape:
    """`n` rows choose `each` of `count` experts."""

    n: int
    each: int
    count: int
    width: int
    inner: int

    def chosen(self, first: int) -> Tensor:
        """Experts in turn, from `first` on."""
        return (torch.arange(first, first + self.n * self.each) % self.count).view(self.n, self.each)


def cases(options: Options) -> Iterator[Case]:
    batches = (5,) if options.small else (1, 16, 512)
    for weights in ("int8",) if options.small else WEIGHT_FORMATS:
        for n in batches:
            shape = Shape(n, 2, 4, 64, 32) if options.small else Shape(n, 8, 128, 2048, 768)
            read = min(shape.count, n * shape.each)
            matrices = 2 * packed_bytes(shape.inner, shape.width, options.dtype, weights)
            matrices += packed_bytes(shape.width, shape.inner, options.dtype, weights)
            yield Case(
                "experts",
                f"{weights}, {shape.each} of {shape.count}, rows {n}",
                read * matrices + 2 * n * shape.width * options.dtype.itemsize,
                6 * n * shape.each * shape.width * shape.inner,
                {"triton": grouped(options, weights, shape), "torch": one_by_one(options, shape)},
            )


def grouped(options: Options, weights: WeightFormat, shape: Shape) -> Callable[[], frame.Run]:
    """Calls have the experts in common, and each other ones of them."""
    firsts, mixture = count(0, shape.each), Experts()

    @cache
    def experts() -> ExpertWeights:
        kernels = Products(options.dtype, weights, options.device)

        def packed(rows: int, columns: int) -> tuple[LinearWeight, ...]:
            source = torch.randn(rows, columns, device=options.device).to(options.dtype) / columns**0.5
            return tuple(kernels.pack_linear([source]) for _ in range(shape.count))

        inward = (packed(shape.inner, shape.width) for _ in range(2))
        return ExpertWeights(*inward, packed(shape.width, shape.inner))

    def make() -> frame.Run:
        x = torch.randn(shape.n, shape.width, device=options.device).to(options.dtype)
        chosen = shape.chosen(next(firsts)).to(options.device)
        shares = torch.full(chosen.shape, 1 / shape.each, device=options.device)
        return lambda: mixture(x, chosen, shares, experts(), "silu")

    return make


def one_by_one(options: Options, shape: Shape) -> Callable[[], frame.Run]:
    firsts = count(0, shape.each)

    @cache
    def matrices(rows: int, columns: int, number: int) -> Tensor:
        del number  # each has its own
        return torch.randn(shape.count, rows, columns, device=options.device, dtype=options.dtype)

    def make() -> frame.Run:
        gate, up = (matrices(shape.inner, shape.width, number) for number in range(2))
        down = matrices(shape.width, shape.inner, 2)
        x = torch.randn(shape.n, shape.width, device=options.device).to(options.dtype)
        chosen = shape.chosen(next(firsts))
        rows = [(chosen == number).nonzero()[:, 0].to(options.device) for number in range(shape.count)]

        def run() -> Tensor:
            out = torch.zeros_like(x)
            for number, own in enumerate(rows):
                if len(own):
                    taken = x[own]
                    inner = F.silu(F.linear(taken, gate[number])).mul_(F.linear(taken, up[number]))
                    out.index_add_(0, own, F.linear(inner, down[number]), alpha=1 / shape.each)
            return out

        return run

    return make


def main(argv: Sequence[str] | None = None) -> None:
    frame.main(__doc__, cases, argv)


if __name__ == "__main__":
    main()
