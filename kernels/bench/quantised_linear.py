"""Prints how long a linear map takes with each weight format, and its speed as weights a second.

    python kernels/bench/quantised_linear.py [--backend cpu] [--dtype bfloat16] [--rows 2048] [--columns 2048]

Matrices are taken in turn from a set that no cache holds, as a model's layers are. The formats run side by
side, round after round, and the median round counts: ratios mean more than times on a shared machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import torch
from halogen_kernels import BACKENDS, WEIGHT_FORMATS, Kernels, LinearWeight, select

BATCHES = (1, 4, 16, 256)
ROUNDS = 3
SET_VALUES = 24 << 20
MOST_MATRICES = 64


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parse(argv)
    torch.set_num_threads(arguments.threads)
    dtype = getattr(torch, arguments.dtype)
    tables = {
        weights: select(arguments.backend, dtype, flash_attention=True, weights=weights) for weights in WEIGHT_FORMATS
    }
    sets = {name: pack_set(table, arguments.rows, arguments.columns, dtype) for name, table in tables.items()}
    print(f"[{arguments.rows}, {arguments.columns}] {arguments.dtype}, {arguments.threads} threads, ms a product")
    titles = [f"{name} ({table.names['linear']})" for name, table in tables.items()]
    print("rows of x  " + "  ".join(f"{title:>28}" for title in titles))
    for batch in BATCHES:
        x = torch.randn(batch, arguments.columns).to(dtype)
        rounds = [{name: time_set(tables[name], x, sets[name]) for name in tables} for _ in range(1 + ROUNDS)]
        cells = [statistics.median(found[name] for found in rounds[1:]) for name in tables]
        values = arguments.rows * arguments.columns
        print(f"{batch:>9}  " + "  ".join(f"{s * 1e3:>15.2f} ({values / s / 1e9:6.2f} G/s)" for s in cells))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", choices=BACKENDS, default="cpu")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--columns", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args(argv)


def pack_set(table: Kernels, rows: int, columns: int, dtype: torch.dtype) -> list[LinearWeight]:
    count = max(1, min(MOST_MATRICES, SET_VALUES // (rows * columns)))
    return [table.pack_linear([torch.randn(rows, columns).to(dtype)]) for _ in range(count)]


def time_set(table: Kernels, x: torch.Tensor, weights: list[LinearWeight]) -> float:
    """Seconds a product."""
    started = time.perf_counter()
    for weight in weights:
        table.linear(x, weight)
    return (time.perf_counter() - started) / len(weights)


if __name__ == "__main__":
    main()
