"""Which bytes of a weight each of several ranks reads.

Heads, the width of a feed-forward and the rows of the vocabulary are shared out in whole units; what a
layout cannot part makes a unit larger. A table of the vocabulary that does not divide is whole in
every rank. So one file serves every size that the heads divide by.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from halogend.checkpoint.errors import SHARD_INVALID, CheckpointError
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.v2.entries import WHOLE, Entry, Shard
from halogend.checkpoint.v2.layout import BYTES, LAYOUTS, Plane

_VOCABULARY = frozenset({"token_embd", "output"})
_BY_HEADS = frozenset(f"attn_{part}{end}" for part in "qkv" for end in ("", ".bias"))
_BY_WIDTH = frozenset({"ffn_gate", "ffn_up"})
_COLUMNS = {"attn_output", "ffn_down"}
Range = tuple[int, int]  # offset in the file, bytes


def shard_of(model: Geometry, name: str, layout: str, block: int) -> Shard:
    """How the weight `name` of the inventory is shared out."""
    if layout == BYTES:
        return WHOLE
    part = name if name in _VOCABULARY else _part(name)
    rows_unit = block if LAYOUTS[layout].is_tiled else 1
    columns_unit = LAYOUTS[layout].column_unit
    if part in _VOCABULARY or part in _BY_WIDTH:
        return Shard(0, rows_unit)
    if part in _BY_HEADS:
        return Shard(0, math.lcm(model.head_dim, rows_unit))
    if part in _COLUMNS:
        return Shard(1, math.lcm(model.head_dim if part == "attn_output" else 1, columns_unit))
    return WHOLE


def _part(name: str) -> str:
    """What the weight is in its layer: `ffn_gate` of `blk.3.ffn_gate.7`; "" outside of layers."""
    if not name.startswith("blk."):
        return ""
    part = name.split(".", 2)[2]
    head, _, expert = part.partition(".")
    return head if expert.isdigit() else part


def sizes(entries: Iterable[Entry]) -> tuple[int, ...]:
    """The tensor-parallel sizes that every weight divides by, 1 first."""
    common = 0
    for entry in entries:
        if entry.shard.axis is not None and entry.name not in _VOCABULARY:
            length, unit = entry.shape[entry.shard.axis], entry.shard.unit
            common = math.gcd(common, length // unit if length % unit == 0 else 1)
    return tuple(size for size in range(1, common + 1) if common % size == 0) or (1,)


def check_size(entries: Sequence[Entry], of: int, path: Path) -> None:
    """Raises CheckpointError naming the sizes that divide, where `of` ranks do not."""
    if of not in (known := sizes(entries)):
        what = f"its weights do not divide by {of}; tensor-parallel sizes that divide are {', '.join(map(str, known))}"
        raise CheckpointError(SHARD_INVALID, f"{path}: {what}")


def is_shared(entry: Entry, of: int) -> bool:
    """Whether each of `of` ranks has a share of its own, and not all. Raises CheckpointError for a size
    that does not divide."""
    axis, unit = entry.shard.axis, entry.shard.unit
    if of == 1 or axis is None:
        return False
    if entry.shape[axis] % (unit * of) == 0:
        return True
    if entry.name in _VOCABULARY:
        return False
    message = f"tensor {entry.name!r} of shape {list(entry.shape)} does not divide by {of} in units of {unit}"
    raise CheckpointError(SHARD_INVALID, message)


def ranges(entry: Entry, rank: int, of: int) -> list[Range]:
    """The (offset, bytes) in its file that rank `rank` (from 0) of `of` needs, in order, none touching
    another. Raises CheckpointError for a size that does not divide."""
    if not is_shared(entry, of):
        return [(entry.offset, entry.nbytes)]
    found: list[Range] = []
    for plane in entry.planes:
        for offset, nbytes in _slices(plane, _plane_axis(entry, plane), rank, of):
            begin = entry.offset + offset
            if found and sum(found[-1]) == begin:
                found[-1] = (found[-1][0], found[-1][1] + nbytes)
            else:
                found.append((begin, nbytes))
    return found


def _plane_axis(entry: Entry, plane: Plane) -> int | None:
    """The axis of the plane along which it is cut. Tiles lie along rows and groups along columns, so it
    is that of the entry but where scales of rows stand beside columns."""
    axis = entry.shard.axis
    return axis if axis == 0 or len(plane.shape) > 1 else None


def _slices(plane: Plane, axis: int | None, rank: int, of: int) -> Iterator[Range]:
    """Offsets from the tensor's start."""
    if axis is None:
        yield plane.offset, plane.nbytes
        return
    stride = math.prod(plane.shape[axis:]) * plane.dtype.block_bytes  # from one cut to the next
    share = stride // of
    for outer in range(math.prod(plane.shape[:axis])):
        yield plane.offset + outer * stride + rank * share, share
