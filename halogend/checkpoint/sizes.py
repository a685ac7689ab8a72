"""What an engine holds of a checkpoint, in bytes: for planning, before anything is loaded.

The arithmetic is that of the kernels' packed forms; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator

from halogend.checkpoint.adoption import Adoption, output_precision
from halogend.checkpoint.checkpoint import Checkpoint
from halogend.checkpoint.stored import Plain, RowFp8, RowInt8, TiledInt4, Weight

VALUE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
KV_VALUE_BYTES = VALUE_BYTES | {"fp8": 1, "int8": 1}
_KV_SCALE_BYTES = 4  # for each head of a position, of keys and of values, where these have eight bits
_INT4_GROUP = 32  # columns that share a scale and a minimum
_INT4_GROUP_BYTES = 4
_INT8_ROW_BYTES = 4  # a scale
_ROUTER = ".ffn_gate_inp"  # which experts a row goes to is computed in float32
_NOTHING = Adoption()


def weight_bytes(
    checkpoint: Checkpoint,
    precision: str,
    compute: str,
    adoption: Adoption = _NOTHING,
    *,
    decodes_table: bool = False,
) -> int:
    """Matrices in `precision` (fp32, bf16, fp16, int8, fp8, int4), and the embedding table as the file has it, beside
    the output matrix, tied or not; but for those that stay mapped. `compute` is the number format of products
    (fp32, bf16, fp16). `decodes_table`: an embedding table in blocks is held in numbers."""
    weights = checkpoint.weights
    held = {name: packed_bytes(weight, precision) for name, weight in _layers(checkpoint)}
    held |= {name: packed_bytes(weight, "fp32") for name, weight in weights.items() if name.endswith(_ROUTER)}
    table = weights["token_embd"]
    held["token_embd"] = _table(table, compute, decoded=decodes_table)
    held["output"] = packed_bytes(weights.get("output", table), output_precision(precision))
    held |= {name: stored_bytes(weights[name]) for name in adoption.copied}
    return sum(count for name, count in held.items() if name not in adoption.mapped)


def mapped_bytes(checkpoint: Checkpoint, adoption: Adoption) -> dict[int, int]:
    """Bytes of each of the checkpoint's files that serve as weights where they lie, by the file's number."""
    found: dict[int, int] = {}
    for name in adoption.mapped:
        weight = checkpoint.weights[name]
        file = weight.pieces[0].encoded.tensors[0].file
        found[file] = found.get(file, 0) + stored_bytes(weight)
    return found


def stored_bytes(weight: Weight) -> int:
    """What a weight that is used as it lies takes: without what fills up between its planes."""
    stored = weight.pieces[0].encoded
    if isinstance(stored, RowInt8 | RowFp8 | TiledInt4):
        return sum(plane.nbytes for plane in stored.planes)
    return stored.tensors[0].nbytes


def read_bytes(checkpoint: Checkpoint) -> int:
    """What loading reads of the files: a tied table is read twice, as it is and as the output matrix."""
    weights = checkpoint.weights
    twice = weights["token_embd"].nbytes if "output" not in weights else 0
    return sum(weight.nbytes for weight in weights.values()) + twice


def packed_names(checkpoint: Checkpoint, adoption: Adoption) -> list[str]:
    """Matrices that are decoded and packed at load, in load order; a tied table is one as the output matrix."""
    names = [name for name, _ in _layers(checkpoint) if not adoption.has(name)]
    output = "output" if "output" in checkpoint.weights else "token_embd"
    return names if adoption.has("output") else [*names, output]


def unpackable(checkpoint: Checkpoint, precision: str) -> str | None:
    """The first weight that cannot be held in `precision`, if any."""
    if precision != "int4":
        return None
    return next((name for name, weight in _layers(checkpoint) if weight.columns % _INT4_GROUP), None)


def packed_bytes(weight: Weight, precision: str) -> int:
    elements = weight.rows * weight.columns
    if precision in ("int8", "fp8"):
        return elements + weight.rows * _INT8_ROW_BYTES
    if precision == "int4":
        return elements // 2 + elements // _INT4_GROUP * _INT4_GROUP_BYTES
    return elements * VALUE_BYTES[precision]


def kv_position_bytes(kv_heads: int, head_dim: int, dtype: str) -> int:
    """Of one position of one layer, keys and values, in the number format `dtype`."""
    scales = 0 if dtype in VALUE_BYTES else _KV_SCALE_BYTES
    return 2 * kv_heads * (head_dim * KV_VALUE_BYTES[dtype] + scales)


def _layers(checkpoint: Checkpoint) -> Iterator[tuple[str, Weight]]:
    """The matrices of the layers that are packed; a router is not."""
    apart = ("token_embd", "output")
    for name, weight in checkpoint.weights.items():
        if weight.columns > 1 and name not in apart and not name.endswith(_ROUTER):
            yield name, weight


def _table(table: Weight, compute: str, *, decoded: bool) -> int:
    encoded = table.pieces[0].encoded
    if (
        len(table.pieces) == 1
        and isinstance(encoded, Plain)
        and not (decoded and encoded.tensor.type.block_elements > 1)
    ):
        return encoded.tensor.nbytes
    return table.rows * table.columns * VALUE_BYTES[compute]
