"""`halogend bench codecs`: how fast stored matrices of each encoding become numbers.

One thread decodes a matrix from memory in slices of rows, as loading does; the best of the runs is
shown, in millions of elements a second. Figures are printed, never judged.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.stored import Awq, Encoded, Fp8, Gptq, Plain
from halogend.checkpoint.tensor_table import TensorInfo
from halogend.engine.codecs import decode_rows

DEFAULT_RUNS = 5
_GROUP = 128


class _Memory:
    """A ByteSource over random tensors."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def put(self, kind: PlainType, *shape: int, values: Tensor | None = None) -> TensorInfo:
        name = str(len(self._held))
        info = TensorInfo(name, shape, kind, 0, 0)
        raw = torch.randint(0, 120, (info.elements * kind.block_bytes,), dtype=torch.uint8)
        self._held[name] = raw if values is None else values.contiguous().view(torch.uint8).view(-1)
        return TensorInfo(name, shape, kind, 0, len(self._held[name]))

    def take(self, tensor: TensorInfo, start: int, nbytes: int) -> Tensor:
        return self._held[tensor.name][start : start + nbytes]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="halogend bench codecs", description=__doc__)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--slice-rows", type=int, default=512, help="decoded in one call")
    parser.add_argument("--runs", type=int, default=DEFAULT_RUNS)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if not args.json:
        sys.stdout.write(f"{'encoding':24}{'float32 M/s':>12}{'bfloat16 M/s':>14}\n")
    source = _Memory()
    figures: dict[str, dict[str, float]] = {}
    for name, encoded in matrices(source, args.rows, args.columns).items():
        figures[name] = {
            key: measure(encoded, source, args.slice_rows, args.runs, dtype)
            for key, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))
        }
        if not args.json:
            sys.stdout.write(f"{name:24}{figures[name]['fp32'] / 1e6:12.0f}{figures[name]['bf16'] / 1e6:14.0f}\n")
            sys.stdout.flush()
    if args.json:
        sys.stdout.write(json.dumps(figures) + "\n")
    return 0


def matrices(source: _Memory, rows: int, columns: int) -> dict[str, Encoded]:
    groups = columns // _GROUP
    codes = source.put(PlainType.I32, columns // 8, rows)
    zeros = source.put(PlainType.I32, groups, rows // 8)
    scales = source.put(PlainType.F16, groups, rows)
    order = source.put(PlainType.I32, columns, values=(torch.randperm(columns) // _GROUP).int())
    awq_codes = source.put(PlainType.I32, columns, rows // 8)
    blocks = source.put(PlainType.F32, -(-rows // 128), -(-columns // 128))
    one = source.put(PlainType.F32)
    return {
        "f32": Plain(source.put(PlainType.F32, rows, columns)),
        "f16": Plain(source.put(PlainType.F16, rows, columns)),
        "bf16": Plain(source.put(PlainType.BF16, rows, columns)),
        "gptq g128": Gptq(codes, zeros, scales, None, _GROUP, 1),
        "gptq g128 act-order": Gptq(codes, zeros, scales, order, _GROUP, 1),
        "awq g128": Awq(awq_codes, zeros, scales, _GROUP),
        "fp8 e4m3 128x128": Fp8(source.put(PlainType.F8_E4M3, rows, columns), blocks, (128, 128)),
        "fp8 e5m2 per tensor": Fp8(source.put(PlainType.F8_E5M2, rows, columns), one, None),
    }


def measure(encoded: Encoded, source: _Memory, slice_rows: int, runs: int, dtype: torch.dtype) -> float:
    """Elements a second."""
    out = torch.empty(slice_rows, encoded.columns, dtype=dtype)
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        for first in range(0, encoded.rows, slice_rows):
            count = min(slice_rows, encoded.rows - first)
            decode_rows(encoded, first, count, out[:count], source)
        best = min(best, time.perf_counter() - start)
    return encoded.rows * encoded.columns / best


if __name__ == "__main__":
    sys.exit(main())
