"""Rotary positions in place, with and without the norm of heads, beside the CPU backend's formula in torch.

python kernels/bench/rotate.py [--device cuda] [--dtype bfloat16] [--small] [--json FILE]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import frame
import torch
from frame import Case, Options
from halogen_kernels import NormWeight, reference
from halogen_kernels.triton.rms_norm import pack_norm
from halogen_kernels.triton.rotate import rotate

Rotate = Callable[[torch.Tensor, torch.Tensor, NormWeight | None], None]


def cases(options: Options) -> Iterator[Case]:
    """Heads of Q and K within rows that hold V's too."""
    shapes = [(4, 6, 64)] if options.small else [(32, 40, 128), (2048, 40, 128), (2048, 20, 256)]
    for rows, heads, head_dim in shapes:
        for normed in (False, True):
            values = rows * heads * head_dim
            yield Case(
                "rotate",
                f"rows {rows}, heads {heads}x{head_dim}{', normed' if normed else ''}",
                2 * values * options.dtype.itemsize + rows * head_dim * 4,
                (7 if normed else 3) * values,
                {
                    "triton": way(options, rotate, (rows, heads, head_dim), normed=normed),
                    "torch": way(options, reference.rotate, (rows, heads, head_dim), normed=normed),
                },
            )


def way(options: Options, run: Rotate, shape: tuple[int, int, int], *, normed: bool) -> Callable[[], frame.Run]:
    rows, heads, head_dim = shape

    def make() -> frame.Run:
        qkv = torch.randn(rows, heads + 8, head_dim, device=options.device).to(options.dtype)
        angles = torch.rand(rows, 1, head_dim // 2, device=options.device)
        turns = torch.polar(torch.ones_like(angles), angles)
        norm = pack_norm(torch.ones(heads, head_dim), 1e-6, options.device) if normed else None
        return lambda: run(qkv[:, :heads], turns, norm)

    return make


def main(argv: Sequence[str] | None = None) -> None:
    frame.main(__doc__, cases, argv)


if __name__ == "__main__":
    main()
