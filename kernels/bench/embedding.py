"""Rows of the embedding table, plain and int8, beside torch's.

python kernels/bench/embedding.py [--device cuda] [--dtype bfloat16] [--small] [--json FILE]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import frame
import torch
from frame import Case, Options
from halogen_kernels.triton.embedding import embedding
from torch import Tensor

VOCAB = 128_000


def cases(options: Options) -> Iterator[Case]:
    """Of one table each, which no cache holds: rows are drawn anew for each call."""
    vocab = 1000 if options.small else VOCAB
    for rows, width in [(4, 256)] if options.small else [(32, 4096), (2048, 4096)]:
        values, shape = rows * width, f"rows {rows}, width {width}"
        table = torch.empty(vocab, width, dtype=options.dtype, device=options.device).normal_()
        ways = {
            "triton": way(table, rows, lambda table, tokens: embedding(table, None, tokens)),
            "torch": way(table, rows, lambda table, tokens: table.index_select(0, tokens).float()),
        }
        yield Case("embedding", shape, values * (4 + options.dtype.itemsize), values, ways)
        codes = torch.randint(-127, 128, (vocab, width), dtype=torch.int8, device=options.device)
        scales = torch.rand(vocab, device=options.device)
        scaled = {"triton": way(codes, rows, lambda codes, tokens, scales=scales: embedding(codes, scales, tokens))}
        yield Case("embedding", f"{shape}, int8", values * 5, values, scaled)


def way(table: Tensor, rows: int, run: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], frame.Run]:
    def make() -> frame.Run:
        tokens = torch.randint(len(table), (rows,), device=table.device)
        return lambda: run(table, tokens)

    return make


def main(argv: Sequence[str] | None = None) -> None:
    frame.main(__doc__, cases, argv)


if __name__ == "__main__":
    main()
