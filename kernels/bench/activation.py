"""The gate of a feed-forward after two products, beside torch's two operators.

python kernels/bench/activation.py [--device cuda] [--dtype bfloat16] [--small] [--json FILE]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import frame
import torch
from frame import Case, Options
from halogen_kernels import Activation, reference
from halogen_kernels.triton.activation import activation


def cases(options: Options) -> Iterator[Case]:
    kinds: tuple[Activation, ...] = ("silu", "gelu_tanh")
    for rows, width in [(4, 256)] if options.small else [(32, 14336), (2048, 14336)]:
        for kind in kinds:
            values = rows * width
            yield Case(
                "activation",
                f"rows {rows}, width {width}, {kind}",
                3 * values * options.dtype.itemsize,
                6 * values,
                {
                    "triton": way(options, rows, width, lambda gate, up, kind=kind: activation(gate, up, kind)),
                    "torch": way(
                        options, rows, width, lambda gate, up, kind=kind: reference.activate(gate, kind).mul_(up)
                    ),
                },
            )


def way(
    options: Options, rows: int, width: int, run: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> Callable[[], frame.Run]:
    def make() -> frame.Run:
        gate, up = (torch.randn(rows, width, device=options.device).to(options.dtype) for _ in range(2))
        return lambda: run(gate, up)

    return make


def main(argv: Sequence[str] | None = None) -> None:
    frame.main(__doc__, cases, argv)


if __name__ == "__main__":
    main()
