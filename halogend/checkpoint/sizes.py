"""What an engine holds of a checkpoint, in bytes: for planning, before anything is loaded.

The arithmetic is that of the kernels' packed forms; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator

from halogend.checkpoint.checkpoint import Checkpoint
from halogend.checkpoint.stored import Plain, Weight

VALUE_BYTES = {"fp32": 4, "bf16": 2}
_INT4_GROUP = 32  # columns that share a scale and a minimum
_INT4_GROUP_BYTES = 4
_INT8_ROW_BYTES = 4  # a scale
_ROUTER = ".ffn_gate_inp"  # which experts a row goes to is computed in float32


def weight_bytes(checkpoint: Checkpoint, precision: str, compute: str) -> int:
    """Matrices in `precision` (fp32, bf16, int8, int4), and the embedding table as the file has it, beside
    the output matrix, tied or not. `compute` is the number format of products (fp32, bf16)."""
    weights = checkpoint.weights
    layers = sum(packed_bytes(weight, precision) for _, weight in _layers(checkpoint))
    layers += sum(packed_bytes(weight, "fp32") for name, weight in weights.items() if name.endswith(_ROUTER))
    table = weights["token_embd"]
    return layers + packed_bytes(weights.get("output", table), output_precision(precision)) + _table(table, compute)


def read_bytes(checkpoint: Checkpoint) -> int:
    """What loading reads of the files: a tied table is read twice, as it is and as the output matrix."""
    weights = checkpoint.weights
    twice = weights["token_embd"].nbytes if "output" not in weights else 0
    return sum(weight.nbytes for weight in weights.values()) + twice


def unpackable(checkpoint: Checkpoint, precision: str) -> str | None:
    """The first weight that cannot be held in `precision`, if any."""
    if precision != "int4":
        return None
    return next((name for name, weight in _layers(checkpoint) if weight.columns % _INT4_GROUP), None)


def output_precision(precision: str) -> str:
    """Four bits lose more in the output matrix than in any other: it keeps eight."""
    return "int8" if precision == "int4" else precision


def packed_bytes(weight: Weight, precision: str) -> int:
    elements = weight.rows * weight.columns
    if precision == "int8":
        return elements + weight.rows * _INT8_ROW_BYTES
    if precision == "int4":
        return elements // 2 + elements // _INT4_GROUP * _INT4_GROUP_BYTES
    return elements * VALUE_BYTES[precision]


def _layers(checkpoint: Checkpoint) -> Iterator[tuple[str, Weight]]:
    """The matrices of the layers that are packed; a router is not."""
    apart = ("token_embd", "output")
    for name, weight in checkpoint.weights.items():
        if weight.columns > 1 and name not in apart and not name.endswith(_ROUTER):
            yield name, weight


def _table(table: Weight, compute: str) -> int:
    pieces = table.pieces
    if len(pieces) == 1 and isinstance(pieces[0].encoded, Plain):
        return pieces[0].encoded.tensor.nbytes
    return table.rows * table.columns * VALUE_BYTES[compute]
