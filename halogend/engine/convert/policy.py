"""Which numbers and which layout each weight gets in a v2 file.

vectors, routers    float32, whatever the policy
embedding           fp32, bf16: exactly as the source has it, in its own numbers or, where those are blocks, in
                    float32; fp16: 16 bits; the others: 16 bits
output              as the layers, but in eight bits beside layers of four. In fewer than 16 bits it has an
                    entry of its own even where it is the embedding, so that it can be used where it lies
other matrices      what the policy says
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, get_args

from halogend.checkpoint.checkpoint import Checkpoint
from halogend.checkpoint.errors import TYPE_UNSUPPORTED, CheckpointError
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.inventory import wanted_weights
from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.sizes import unpackable
from halogend.checkpoint.stored import Fp8, Plain, Weight
from halogend.checkpoint.v2.index import Quantisation
from halogend.checkpoint.v2.layout import ROW, ROW_FP8, ROW_INT8, TILED_INT4
from halogend.checkpoint.v2.writer import Wanted

POLICIES: tuple[Quantisation, ...] = get_args(Quantisation)
NUMBERS: Final = frozenset({"fp32", "bf16", "fp16"})
_MATRICES: Mapping[str, tuple[PlainType, str]] = {
    "fp32": (PlainType.F32, ROW),
    "bf16": (PlainType.BF16, ROW),
    "fp16": (PlainType.F16, ROW),
    "fp8": (PlainType.F8_E4M3, ROW_FP8),
    "int8": (PlainType.I8, ROW_INT8),
    "int4": (PlainType.U8, TILED_INT4),
}
_OUTPUTS: Mapping[str, Quantisation] = {"int4": "int8", "fp8": "int8"}
_HALVES = frozenset({"F16", "BF16"})
_EMBEDDING, _OUTPUT, _ROUTER = "token_embd", "output", ".ffn_gate_inp"
# Stored bits a value, scales and all, up to which a source counts as one of four or of eight bits.
_FOUR_BITS, _EIGHT_BITS = 5.5, 9.0


class Unstated(str):
    """A policy that nobody stated: for a source of plain numbers it is the word that it shows, and one that is
    quantised already keeps about as many bits as it has."""

    __slots__ = ()


UNSTATED: Final = Unstated("fp16")


@dataclass(frozen=True, slots=True)
class Target:
    """An entry to be written; `source` is the weight of the source that it is made of."""

    wanted: Wanted
    source: str


def choose_policy(checkpoint: Checkpoint, stated: str) -> Quantisation:
    """Raises ValueError for a policy that is none, CheckpointError where the weights cannot have it."""
    if isinstance(stated, Unstated):
        return _found_policy(checkpoint)
    for policy in POLICIES:
        if policy == stated:
            if (name := unpackable(checkpoint, policy)) is not None:
                columns = checkpoint.weights[name].columns
                what = f"weight {name!r} has {columns} columns, and int4 takes multiples of 32; int8 takes any"
                raise CheckpointError(TYPE_UNSUPPORTED, f"{checkpoint.path}: {what}")
            return policy
    raise ValueError(f"quant_policy is {stated!r}; there are {', '.join(POLICIES)}")


def targets(checkpoint: Checkpoint, policy: Quantisation) -> tuple[Geometry, tuple[Target, ...]]:
    """The model as the v2 file states it, and its weights in load order."""
    geometry = checkpoint.geometry
    if policy not in NUMBERS:
        geometry = replace(geometry, tied_embeddings=False)
    return geometry, tuple(_targets(geometry, checkpoint.weights, policy))


def _targets(geometry: Geometry, weights: Mapping[str, Weight], policy: Quantisation) -> Iterator[Target]:
    for each in wanted_weights(geometry):
        source = each.name if each.name in weights else _EMBEDDING
        shape = (each.rows,) if each.columns == 1 else (each.rows, each.columns)
        if each.columns == 1 or each.name.endswith(_ROUTER):
            kind, layout = PlainType.F32, ROW
        elif each.name == _EMBEDDING:
            kind, layout = _table_type(weights[source], policy), ROW
        else:
            kind, layout = _MATRICES[_OUTPUTS.get(policy, policy) if each.name == _OUTPUT else policy]
        yield Target(Wanted(each.name, kind, shape, layout), source)


def _table_type(table: Weight, policy: Quantisation) -> PlainType:
    """Rows of the table are looked up as they are: where the layers lose nothing of note it must not either."""
    stored = table.pieces[0].encoded
    if isinstance(stored, Plain) and stored.tensor.type.name in _HALVES:
        return PlainType[stored.tensor.type.name]
    if policy in ("fp32", "bf16"):
        return PlainType.F32
    return PlainType.F16 if policy == "fp16" else PlainType.BF16


def _found_policy(checkpoint: Checkpoint) -> Quantisation:
    matrices = {
        name: weight
        for name, weight in checkpoint.weights.items()
        if weight.columns > 1 and name.startswith("blk.") and not name.endswith(_ROUTER)
    }
    if any(isinstance(piece.encoded, Fp8) for weight in matrices.values() for piece in weight.pieces):
        return "fp8"
    values = sum(weight.rows * weight.columns for weight in matrices.values())
    bits = 8 * sum(weight.nbytes for weight in matrices.values()) / values
    if bits > _EIGHT_BITS:
        return "fp16"
    return "int4" if bits <= _FOUR_BITS and unpackable(checkpoint, "int4") is None else "int8"
