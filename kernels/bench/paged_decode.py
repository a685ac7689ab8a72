"""Attention of single positions over a paged cache, beside a copy of as many bytes.

python kernels/bench/paged_decode.py [--device cuda] [--dtype bfloat16] [--small] [--json FILE]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import frame
import torch
from frame import COPY, Bar, Case, Options
from halogen_kernels.triton import attention, attention_plan
from pools import Layout, attention_shape, make_pool, position_bytes


@dataclass(frozen=True)
class Load:
    """`batch` sequences of `context` positions."""

    batch: int
    context: int
    heads: tuple[int, int, int] = (32, 8, 128)
    held: torch.dtype | None = None
    layout: Layout = "runs"
    softcap: float = 0.0
    bar: Bar | None = None

    def __str__(self) -> str:
        heads, kv_heads, head_dim = self.heads
        held = "" if self.held is None else f" {str(self.held).removeprefix('torch.')}"
        capped = " cap" if self.softcap else ""
        return f"{self.batch} x {self.context}, {heads}/{kv_heads} x {head_dim}{held}{capped}, {self.layout}"


LARGE = (
    Load(32, 4096, bar=Bar(COPY, 0.8)),
    Load(32, 4096, layout="anywhere"),
    Load(32, 4096, held=torch.int8),
    Load(32, 4096, held=torch.float8_e4m3fn),
    Load(1, 4096),
    Load(1, 32768),
    Load(128, 1024),
    Load(32, 4096, heads=(16, 8, 256), softcap=50.0),
    Load(32, 4096, heads=(32, 32, 64)),
)
SMALL = (Load(2, 90, heads=(4, 2, 64)), Load(2, 90, heads=(4, 2, 64), held=torch.int8, layout="anywhere"))


def cases(options: Options) -> Iterator[Case]:
    for load in SMALL if options.small else LARGE:
        heads, _, head_dim = load.heads
        held = options.dtype if load.held is None else load.held
        kv_bytes = load.context * position_bytes(attention_shape(*load.heads), held)
        row_bytes = 2 * heads * head_dim * options.dtype.itemsize
        operations = 4 * heads * head_dim * load.context
        each = kv_bytes + row_bytes
        yield Case(
            "paged_decode",
            str(load),
            load.batch * each,
            load.batch * operations,
            {"triton": ours(options, load)},
            load.bar,
        )


def ours(options: Options, load: Load) -> Callable[[], frame.Run]:
    def make() -> frame.Run:
        shape = attention_shape(*load.heads, softcap=load.softcap)
        pool = make_pool(options, shape, [(load.context - 1, 1)] * load.batch, load.held, load.layout)
        plan = attention_plan.make_plan(shape, pool.spans, None, pool.cache.dtype, options.device)
        queries = torch.randn(load.batch, shape.heads, shape.head_dim, device=options.device).to(options.dtype)
        return lambda: attention.attend(queries, pool.cache, plan)

    return make


def main(argv: Sequence[str] | None = None) -> None:
    frame.main(__doc__, cases, argv)


if __name__ == "__main__":
    main()
