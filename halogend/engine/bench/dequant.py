"""`halogend bench dequant`: how fast blocks of each GGUF type become numbers, beside the `gguf` package.

Both sides decode the same random blocks to float32 with one thread, in turn; the best of the runs is
shown, in millions of elements a second of processor time (so that others on the machine count less),
and ours in GB of blocks a second too. Figures are printed, never judged.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from halogend.checkpoint.gguf_types import DECODABLE, GgmlType
from halogend.engine.dequant import dequantise

DEFAULT_ELEMENTS = 1 << 22
DEFAULT_RUNS = 5
Figures = dict[str, float | None]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="halogend bench dequant", description=__doc__)
    parser.add_argument("--elements", type=int, default=DEFAULT_ELEMENTS, help="decoded in one run")
    parser.add_argument("--runs", type=int, default=DEFAULT_RUNS, help="of each side, in turn")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    results: dict[str, Figures] = {}
    if not args.json:
        sys.stdout.write(f"{'type':8}{'ours M/s':>10}{'GB/s':>8}{'bf16 M/s':>10}{'gguf M/s':>10}{'ratio':>8}\n")
    for kind in sorted(DECODABLE, key=lambda kind: kind.number):
        results[kind.name] = figures = measure(kind, args.elements, args.runs)
        if not args.json:
            sys.stdout.write(_row(kind.name, figures) + "\n")
            sys.stdout.flush()
    if args.json:
        sys.stdout.write(json.dumps(results) + "\n")
    return 0


def measure(kind: GgmlType, elements: int, runs: int) -> Figures:
    """Elements (`ours`, `bf16`: into bfloat16, `gguf`: None where the package has no decoder) and bytes
    of blocks (`ours_bytes`), all a second."""
    blocks = random_blocks(kind, max(1, elements // kind.block_elements))
    count = len(blocks) * kind.block_elements
    raw, out, rounded = blocks.view(-1), torch.empty(count), torch.empty(count, dtype=torch.bfloat16)
    sides: dict[str, Callable[[], object]] = {
        "ours": lambda: dequantise(kind, raw, out),
        "bf16": lambda: dequantise(kind, raw, rounded),
        "gguf": _package(kind, raw),
    }
    best: dict[str, float] = {}
    for _ in range(runs):
        for name, side in sides.items():
            try:
                best[name] = min(best.get(name, float("inf")), _seconds(side))
            except NotImplementedError:
                continue
    figures: Figures = {name: count / best[name] if name in best else None for name in sides}
    return figures | {"ours_bytes": blocks.numel() / best["ours"]}


def random_blocks(kind: GgmlType, count: int) -> Tensor:
    """uint8 [count, bytes of a block], every byte from 0 to 63: no float in it is infinite or NaN, which
    could slow one side down."""
    random = torch.Generator().manual_seed(kind.number)
    return torch.randint(0, 64, (count, kind.block_bytes), dtype=torch.uint8, generator=random)


def _package(kind: GgmlType, raw: Tensor) -> Callable[[], object]:
    """The package's decoder; it raises NotImplementedError for a type that it has none for."""
    import gguf  # noqa: PLC0415 (the peer of this benchmark only)

    quantisation = gguf.GGMLQuantizationType(kind.number)

    def decode() -> object:
        if kind is GgmlType.F32:
            raise NotImplementedError("the package hands back the memory it was given")
        return gguf.quants.dequantize(raw.numpy(), quantisation)

    return decode


def _seconds(step: Callable[[], object]) -> float:
    start = time.thread_time()
    step()
    return time.thread_time() - start


def _row(name: str, figures: Figures) -> str:
    ours, theirs = figures["ours"], figures["gguf"]
    ratio = f"{ours / theirs:8.1f}" if ours and theirs else f"{'-':>8}"
    gigabytes = f"{(figures['ours_bytes'] or 0) / 1e9:8.2f}"
    return f"{name:8}{_millions(ours)}{gigabytes}{_millions(figures['bf16'])}{_millions(theirs)}{ratio}"


def _millions(value: float | None) -> str:
    return f"{value / 1e6:10.0f}" if value else f"{'-':>10}"


if __name__ == "__main__":
    sys.exit(main())
