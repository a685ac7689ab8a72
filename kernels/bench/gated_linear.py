"""The first half of a gated feed-forward with each weight format, beside the library's two products in bfloat16.

    python kernels/bench/gated_linear.py [--device cuda] [--dtype bfloat16] [--small] [--json FILE]

Of plain weights, more than 16 rows are two products of the library and `activation`, and not among the cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import frame
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from frame import Case, Options
from halogen_kernels import WEIGHT_FORMATS, WeightFormat, packed_bytes
from halogen_kernels.triton.gated_linear import PLAIN_ROWS, gated_linear
from halogen_kernels.triton.matrix import Matrix, pack


def cases(options: Options) -> Iterator[Case]:
    rows, columns = (64, 96) if options.small else (14336, 4096)
    for weights in WEIGHT_FORMATS:
        for n in (5,) if options.small else (1, 16, 512):
            if weights == "plain" and n > PLAIN_ROWS:
                continue
            held = 2 * packed_bytes(rows, columns, options.dtype, weights)
            yield Case(
                "gated_linear",
                f"{weights} [{rows}, {columns}], rows {n}",
                held + n * (rows + columns) * options.dtype.itemsize,
                4 * n * rows * columns,
                {
                    "triton": gated(options, weights, (n, rows, columns)),
                    "torch": plain(options, (n, rows, columns)),
                },
            )


def matrix(options: Options, weights: WeightFormat, rows: int, columns: int) -> Matrix:
    source = torch.randn(rows, columns, device=options.device) / columns**0.5
    return pack([source.to(options.dtype) if weights == "plain" else source], weights, options.device)


def copied(held: Matrix) -> Matrix:
    """Elsewhere in memory: a copy takes less time than packing."""
    codes, scales, minima = (plane.clone() for plane in held.planes)
    return replace(held, codes=codes, scales=scales, minima=minima)


def gated(options: Options, weights: WeightFormat, shape: tuple[int, int, int]) -> Callable[[], frame.Run]:
    n, rows, columns = shape
    first = cache(lambda: matrix(options, weights, rows, columns))

    def make() -> frame.Run:
        gate, up = (copied(first()) for _ in range(2))
        x = torch.randn(n, columns, device=options.device).to(options.dtype)
        return lambda: gated_linear(x, gate, up, "silu")

    return make


def plain(options: Options, shape: tuple[int, int, int]) -> Callable[[], frame.Run]:
    n, rows, columns = shape

    def make() -> frame.Run:
        gate, up = (torch.randn(rows, columns, device=options.device, dtype=options.dtype) for _ in range(2))
        x = torch.randn(n, columns, device=options.device).to(options.dtype)
        return lambda: F.silu(F.linear(x, gate)).mul_(F.linear(x, up))

    return make


def main(argv: Sequence[str] | None = None) -> None:
    frame.main(__doc__, cases, argv)


if __name__ == "__main__":
    main()
