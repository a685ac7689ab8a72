"""Prints how long a linear map of a backend of the host takes with each weight format, as weights a second too.

    python kernels/bench/weight_formats.py [--backend cpu] [--dtype bfloat16] [--rows 2048] [--columns 2048]

    packed     as a loader packs what it decodes
    stored     where it lies in a file: r8.v1, f8.v1, or g32-a4.v1 with --block rows a tile
    q, k, v    stored as three matrices of a half, a quarter and a quarter of the rows

Matrices are taken in turn from a set that no cache holds, as a model's layers are. The ways run side by
side, round after round, and the median round counts: ratios mean more than times on a shared machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence

import torch
from halogen_kernels import (
    FP8_ROWS,
    INT4_TILES,
    INT8_ROWS,
    WEIGHT_FORMATS,
    Kernels,
    LinearWeight,
    StoredPart,
    select,
)
from halogen_kernels.quantise import pack_fp8, pack_int8, pack_tiles
from torch import Tensor

BATCHES = (1, 4, 16, 256)
ROUNDS = 3
SET_VALUES = 24 << 20
MOST_MATRICES = 64
Set = tuple[Kernels, list[LinearWeight]]


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parse(argv)
    torch.set_num_threads(arguments.threads)
    dtype = getattr(torch, arguments.dtype)
    sets = dict(make_sets(arguments, dtype))
    print(f"[{arguments.rows}, {arguments.columns}] {arguments.dtype}, {arguments.threads} threads, ms a product")
    print("rows of x  " + "  ".join(f"{title:>28}" for title in sets))
    for batch in BATCHES:
        x = torch.randn(batch, arguments.columns).to(dtype)
        rounds = [{name: time_set(each, x) for name, each in sets.items()} for _ in range(1 + ROUNDS)]
        cells = [statistics.median(found[name] for found in rounds[1:]) for name in sets]
        values = arguments.rows * arguments.columns
        print(f"{batch:>9}  " + "  ".join(f"{s * 1e3:>15.2f} ({values / s / 1e9:6.2f} G/s)" for s in cells))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", choices=("cpu", "reference"), default="cpu")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--columns", type=int, default=2048)
    parser.add_argument("--block", type=int, default=32, help="rows of a stored int4 tile")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args(argv)


def make_sets(arguments: argparse.Namespace, dtype: torch.dtype) -> Iterator[tuple[str, Set]]:
    rows, columns = arguments.rows, arguments.columns
    count = max(1, min(MOST_MATRICES, SET_VALUES // (rows * columns)))
    for weights in WEIGHT_FORMATS:
        table = select(arguments.backend, dtype, flash_attention=True, weights=weights)
        packed = [table.pack_linear([torch.randn(rows, columns).to(dtype)]) for _ in range(count)]
        yield f"{weights} ({table.names['linear']})", (table, packed)
        for layout in table.takes:
            for title, cuts in (("stored", [rows]), ("q, k, v", [rows // 2, rows // 4, rows - rows // 2 - rows // 4])):
                held = [table.adopt_linear([stored(layout, cut, arguments) for cut in cuts]) for _ in range(count)]
                yield f"{layout} {title}", (table, held)


def stored(layout: str, rows: int, arguments: argparse.Namespace) -> StoredPart:
    matrix = torch.randn(rows, arguments.columns)
    planes: dict[str, Tensor] = {}
    if layout in (INT8_ROWS, FP8_ROWS):
        part = pack_int8(matrix) if layout == INT8_ROWS else pack_fp8(matrix)
        planes = {"codes": part.codes, "scales": part.scales}
    elif layout == INT4_TILES:
        tiles = pack_tiles(matrix, arguments.block)
        planes = {"codes": tiles.codes, "scales": tiles.scales, "minima": tiles.minima}
    return StoredPart(layout, rows, arguments.columns, planes)


def time_set(each: Set, x: Tensor) -> float:
    """Seconds a product."""
    table, weights = each
    started = time.perf_counter()
    for weight in weights:
        table.linear(x, weight)
    return (time.perf_counter() - started) / len(weights)


if __name__ == "__main__":
    main()
