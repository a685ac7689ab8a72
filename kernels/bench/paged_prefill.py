"""Attention of prompt chunks over a paged cache, beside torch's flash attention of the same shape over contiguous keys
and values, and beside a large product's operations.

    python kernels/bench/paged_prefill.py [--device cuda] [--dtype bfloat16] [--small] [--json FILE]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import frame
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from frame import Bar, Case, Options
from halogen_kernels.triton import attention, attention_plan
from pools import Layout, attention_shape, make_pool, position_bytes
from torch.nn.attention import SDPBackend, sdpa_kernel

SDPA = "sdpa"


@dataclass(frozen=True)
class Load:
    """`batch` chunks of `count` positions after `start` others; beside torch's where there are none."""

    batch: int
    start: int
    count: int
    heads: tuple[int, int, int] = (32, 8, 128)
    layout: Layout = "runs"
    bar: Bar | None = None

    def __str__(self) -> str:
        heads, kv_heads, head_dim = self.heads
        after = f" after {self.start}" if self.start else ""
        return f"{self.batch} x {self.count}{after}, {heads}/{kv_heads} x {head_dim}, {self.layout}"

    @property
    def seen(self) -> int:
        """Pairs of a row and a position that it sees."""
        return self.batch * (self.count * self.start + self.count * (self.count + 1) // 2)


LARGE = (
    Load(1, 0, 8192, bar=Bar(SDPA, 1.0)),
    Load(4, 0, 2048, bar=Bar(SDPA, 1.0)),
    Load(4, 0, 2048, layout="anywhere"),
    Load(1, 6144, 2048),
    Load(4, 0, 2048, heads=(32, 32, 64)),
    Load(4, 0, 2048, heads=(16, 8, 256)),
)
SMALL = (Load(1, 0, 70, heads=(4, 2, 64)), Load(1, 33, 20, heads=(4, 2, 64), layout="anywhere"))


def cases(options: Options) -> Iterator[Case]:
    for load in SMALL if options.small else LARGE:
        heads, _, head_dim = load.heads
        shape = attention_shape(*load.heads)
        row_bytes = 2 * heads * head_dim * options.dtype.itemsize
        context_bytes = (load.start + load.count) * position_bytes(shape, options.dtype)
        ways = {"triton": ours(options, load)}
        if not load.start:
            ways[SDPA] = theirs(options, load)
        yield Case(
            "paged_prefill",
            str(load),
            load.batch * (load.count * row_bytes + context_bytes),
            4 * heads * head_dim * load.seen,
            ways,
            load.bar,
        )


def ours(options: Options, load: Load) -> Callable[[], frame.Run]:
    def make() -> frame.Run:
        shape = attention_shape(*load.heads)
        pool = make_pool(options, shape, [(load.start, load.count)] * load.batch, None, load.layout)
        plan = attention_plan.make_plan(shape, pool.spans, None, options.dtype, options.device)
        rows = load.batch * load.count
        queries = torch.randn(rows, shape.heads, shape.head_dim, device=options.device).to(options.dtype)
        return lambda: attention.attend(queries, pool.cache, plan)

    return make


def theirs(options: Options, load: Load) -> Callable[[], frame.Run]:
    def make() -> frame.Run:
        heads, kv_heads, head_dim = load.heads
        queries, keys, values = (
            torch.randn(load.batch, each, load.count, head_dim, device=options.device).to(options.dtype)
            for each in (heads, kv_heads, kv_heads)
        )

        def run() -> torch.Tensor:
            with sdpa_kernel([SDPBackend.FLASH_ATTENTION] if options.device.type == "cuda" else [SDPBackend.MATH]):
                return F.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)

        return run

    return make


def main(argv: Sequence[str] | None = None) -> None:
    frame.main(__doc__, cases, argv)


if __name__ == "__main__":
    main()
