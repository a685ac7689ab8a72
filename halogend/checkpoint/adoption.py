"""Which weights of a v2 checkpoint are used as they lie, instead of being packed anew.

    as it lies    the kernels of a precision take its layout; an embedding table of numbers is always read so
      mapped      up to a share of all weights: left where the file lies
      copied      the rest, of the last that are loaded, into memory that nobody else shares
    packed        all others: decoded and packed once

Pure: planning and the engine both ask here, so that what is planned is what is done. Must never know a kernel:
a test compares the table here with what they say themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from halogend.checkpoint.checkpoint import Checkpoint
from halogend.checkpoint.stored import Plain, RowFp8, RowInt8, TiledInt4, Weight
from halogend.checkpoint.v2.layout import ROW_FP8, ROW_INT8, TILED_INT4

V2 = "v2"
TAKEN: Mapping[str, str] = {"int8": ROW_INT8, "fp8": ROW_FP8, "int4": TILED_INT4}
"""By precision: the layout that its kernels take."""
LAYOUTS: Mapping[type, str] = {RowInt8: ROW_INT8, RowFp8: ROW_FP8, TiledInt4: TILED_INT4}
"""By the form of a stored matrix: its layout, where there are kernels that take it."""
_TOGETHER = re.compile(r"(blk\.\d+\.attn_)[qkv]")  # one matrix to the kernels
_EMBEDDING, _OUTPUT = "token_embd", "output"


@dataclass(frozen=True, slots=True)
class Adoption:
    """Names of weights that are used as they lie."""

    mapped: frozenset[str] = frozenset()
    copied: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        return name in self.mapped or name in self.copied


def adopt(checkpoint: Checkpoint, precision: str, mmap_threshold: float) -> Adoption:
    """For weights of `precision` (fp32, bf16, int8, int4). Up to `mmap_threshold` of all their bytes are mapped;
    matrices that the kernels take together go together."""
    if checkpoint.format != V2:
        return Adoption()
    units: dict[str, list[str]] = {}
    for name in checkpoint.weights:
        units.setdefault(_TOGETHER.sub(r"\1qkv", name), []).append(name)
    sizes = {
        tuple(names): sum(checkpoint.weights[name].nbytes for name in names)
        for names in units.values()
        if all(_lies_right(name, checkpoint.weights[name], precision) for name in names)
    }
    most = mmap_threshold * sum(weight.nbytes for weight in checkpoint.weights.values())
    copied = _over(sizes, sum(sizes.values()) - most)
    taken = frozenset(name for names in sizes for name in names)
    return Adoption(taken - copied, copied)


def looked_up(checkpoint: Checkpoint, adoption: Adoption) -> frozenset[str]:
    """Of what is mapped: the embedding table, of which a step looks at some rows, unless it is the output matrix
    too."""
    return frozenset() if _OUTPUT not in checkpoint.weights else adoption.mapped & {_EMBEDDING}


def _over(sizes: Mapping[tuple[str, ...], int], excess: float) -> frozenset[str]:
    """Weights of at least `excess` bytes and little more, the last that are loaded first: none of them could be left
    out."""
    found: list[tuple[str, ...]] = []
    for names, nbytes in reversed(list(sizes.items())):
        if nbytes <= excess:
            found.append(names)
            excess -= nbytes
    if excess > 0:  # and all others are larger
        found.append(min(sizes.keys() - set(found), key=sizes.__getitem__))
        excess -= sizes[found[-1]]
    for names in sorted(found, key=sizes.__getitem__, reverse=True):
        if sizes[names] <= -excess:
            found.remove(names)
            excess += sizes[names]
    return frozenset(name for names in found for name in names)


def output_precision(precision: str) -> str:
    """Four bits, and the three of an eight-bit float's fraction, lose more in the output matrix than in any other: it
    keeps the eight of an integer, as files of these precisions have it."""
    return "int8" if precision in ("int4", "fp8") else precision


def _lies_right(name: str, weight: Weight, precision: str) -> bool:
    stored = weight.pieces[0].encoded
    if name == _EMBEDDING:
        return isinstance(stored, Plain)
    wanted = TAKEN.get(output_precision(precision) if name == _OUTPUT else precision)
    return wanted is not None and LAYOUTS.get(type(stored)) == wanted
