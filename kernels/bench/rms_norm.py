"""RMSNorm alone, and in one with the addition around it, beside torch's.

python kernels/bench/rms_norm.py [--device cuda] [--dtype bfloat16] [--small] [--json FILE]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import frame
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from frame import Case, Options
from halogen_kernels.triton.rms_norm import norm_of_sum, pack_norm, rms_norm

EPS = 1e-6


def cases(options: Options) -> Iterator[Case]:
    shapes = [(4, 256)] if options.small else [(1, 4096), (32, 4096), (2048, 4096), (2048, 8192)]
    for rows, width in shapes:
        shape, values = f"rows {rows}, width {width}", rows * width
        size = options.dtype.itemsize
        yield Case(
            "rms_norm",
            shape,
            values * (4 + size) + width * 4,
            4 * values,
            {"triton": alone(options, rows, width), "torch": torch_alone(options, rows, width)},
        )
        yield Case(
            "norm_of_sum",
            shape,
            values * (8 + 2 * size) + width * 4,
            5 * values,
            {"triton": summed(options, rows, width), "torch": torch_summed(options, rows, width)},
        )


def alone(options: Options, rows: int, width: int) -> Callable[[], frame.Run]:
    def make() -> frame.Run:
        x = torch.randn(rows, width, device=options.device)
        norm = pack_norm(torch.randn(width), EPS, options.device)
        return lambda: rms_norm(x, norm, options.dtype)

    return make


def torch_alone(options: Options, rows: int, width: int) -> Callable[[], frame.Run]:
    def make() -> frame.Run:
        x = torch.randn(rows, width, device=options.device)
        weight = torch.randn(width, device=options.device)
        return lambda: F.rms_norm(x, (width,), weight, EPS).to(options.dtype)

    return make


def summed(options: Options, rows: int, width: int) -> Callable[[], frame.Run]:
    def make() -> frame.Run:
        residual = torch.randn(rows, width, device=options.device)
        delta = torch.zeros(rows, width, device=options.device, dtype=options.dtype)
        norm = pack_norm(torch.randn(width), EPS, options.device)
        return lambda: norm_of_sum(residual, delta, norm, options.dtype)

    return make


def torch_summed(options: Options, rows: int, width: int) -> Callable[[], frame.Run]:
    def make() -> frame.Run:
        residual = torch.randn(rows, width, device=options.device)
        delta = torch.zeros(rows, width, device=options.device, dtype=options.dtype)
        weight = torch.randn(width, device=options.device)
        return lambda: F.rms_norm(residual.add_(delta), (width,), weight, EPS).to(options.dtype)

    return make


def main(argv: Sequence[str] | None = None) -> None:
    frame.main(__doc__, cases, argv)


if __name__ == "__main__":
    main()
