"""Linear maps with int4, int8 and fp8 weights, beside the library's product with bfloat16 weights of the same shape.

    python kernels/bench/quantised_linear.py [--device cuda] [--dtype bfloat16] [--small] [--json FILE]

The classes of rows are those of its table of block sizes: one, a few, a prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import frame
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from frame import Bar, Case, Options
from halogen_kernels import WeightFormat, packed_bytes
from halogen_kernels.triton.matrix import Matrix, pack
from halogen_kernels.triton.quantised_linear import quantised_linear

FORMATS: tuple[WeightFormat, ...] = ("int4", "int8", "fp8")
DECODE_SHARE = 0.7  # of a copy's bandwidth, int4 at one row


def cases(options: Options) -> Iterator[Case]:
    matrices = [(64, 96)] if options.small else [(4096, 4096), (14336, 4096)]
    batches = (5,) if options.small else (1, 8, 64, 1024)
    for rows, columns in matrices:
        for weights in FORMATS:
            for n in batches:
                wanted = n == 1 and weights == "int4" and not options.small
                yield Case(
                    "quantised_linear",
                    f"{weights} [{rows}, {columns}], rows {n}",
                    packed_bytes(rows, columns, options.dtype, weights) + n * (rows + columns) * options.dtype.itemsize,
                    2 * n * rows * columns,
                    {
                        "triton": quantised(options, weights, (n, rows, columns)),
                        "torch": plain(options, (n, rows, columns)),
                    },
                    Bar(frame.COPY, DECODE_SHARE) if wanted else None,
                )


def matrix(options: Options, weights: WeightFormat, rows: int, columns: int) -> Matrix:
    source = torch.randn(rows, columns, device=options.device) / columns**0.5
    return pack([source.to(options.dtype) if weights == "plain" else source], weights, options.device)


def copied(held: Matrix) -> Matrix:
    """Elsewhere in memory: a copy takes less time than packing."""
    codes, scales, minima = (plane.clone() for plane in held.planes)
    return replace(held, codes=codes, scales=scales, minima=minima)


def quantised(options: Options, weights: WeightFormat, shape: tuple[int, int, int]) -> Callable[[], frame.Run]:
    n, rows, columns = shape
    first = cache(lambda: matrix(options, weights, rows, columns))

    def make() -> frame.Run:
        held = copied(first())
        x = torch.randn(n, columns, device=options.device).to(options.dtype)
        out = torch.empty(n, rows, dtype=options.dtype, device=options.device)
        return lambda: quantised_linear(x, held, out)

    return make


def plain(options: Options, shape: tuple[int, int, int]) -> Callable[[], frame.Run]:
    n, rows, columns = shape

    def make() -> frame.Run:
        held = torch.randn(rows, columns, device=options.device, dtype=options.dtype)
        x = torch.randn(n, columns, device=options.device).to(options.dtype)
        return lambda: F.linear(x, held)

    return make


def main(argv: Sequence[str] | None = None) -> None:
    frame.main(__doc__, cases, argv)


if __name__ == "__main__":
    main()
