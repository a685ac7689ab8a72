"""Keys and values written into a chunked cache, as they are and as codes, beside a copy of as many bytes.

python kernels/bench/write_kv.py [--device cuda] [--dtype bfloat16] [--small] [--json FILE]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import frame
import torch
from frame import Case, Options
from halogen_kernels.triton.write_kv import write_kv
from pools import T, attention_shape, make_pool, position_bytes


def cases(options: Options) -> Iterator[Case]:
    heads = (4, 2, 64) if options.small else (32, 8, 128)
    shape = attention_shape(*heads)
    for rows in (3,) if options.small else (1, 32, 2048):
        for held in (options.dtype, torch.int8, torch.float8_e4m3fn):
            yield Case(
                "write_kv",
                f"rows {rows}, {heads[1]} x {heads[2]}, {str(held).removeprefix('torch.')}",
                rows * (shape.kv_width * options.dtype.itemsize + position_bytes(shape, held) + 8),
                rows * shape.kv_width,
                {"triton": ours(options, heads, rows, held)},
            )


def ours(options: Options, heads: tuple[int, int, int], rows: int, held: torch.dtype) -> Callable[[], frame.Run]:
    def make() -> frame.Run:
        shape = attention_shape(*heads)
        pool = make_pool(options, shape, [(rows - 1, 1)], held)
        blocks = torch.tensor(pool.spans[0].blocks)
        slots = (blocks.unsqueeze(1) * T + torch.arange(T)).flatten()[:rows].to(options.device)
        kv = torch.randn(rows, shape.kv_width, device=options.device).to(options.dtype)
        return lambda: write_kv(pool.cache, slots, kv)

    return make


def main(argv: Sequence[str] | None = None) -> None:
    frame.main(__doc__, cases, argv)


if __name__ == "__main__":
    main()
