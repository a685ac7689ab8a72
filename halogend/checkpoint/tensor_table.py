"""The tensor table of a GGUF file: where each tensor lies, and whether it can lie there."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from halogend.checkpoint.cursor import Cursor
from halogend.checkpoint.errors import INDEX_INVALID, TRUNCATED, TYPE_UNSUPPORTED, CheckpointError
from halogend.checkpoint.gguf_types import GGML_TYPES, GgmlType
from halogend.checkpoint.plain_types import PlainType

MIN_ENTRY_BYTES = 8 + 4 + 8 + 4 + 8
_MAX_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """`shape` is row-major (outermost first, so the last one is contiguous and holds the blocks);
    `offset` is from the start of the file, which is number `file` of the checkpoint's files."""

    name: str
    shape: tuple[int, ...]
    type: GgmlType | PlainType
    offset: int
    nbytes: int
    file: int = 0

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def read_entry(cursor: Cursor, file: int) -> TensorInfo:
    """An entry of file number `file` as it has it: `offset` still counts from the data's start."""
    name = cursor.text("a tensor's name")
    what = f"tensor {name!r}"
    dimensions = cursor.u32(f"the dimension count of {what}")
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise _bad_tensor(cursor.path, name, f"has {dimensions} dimensions; 1 to {_MAX_DIMENSIONS} are possible")
    reversed_shape = [cursor.u64(f"the shape of {what}") for _ in range(dimensions)]
    kind = GGML_TYPES.get(number := cursor.u32(f"the type of {what}"))
    if kind is None:
        raise _bad_tensor(cursor.path, name, f"has the unknown type {number}", TYPE_UNSUPPORTED)
    if min(reversed_shape) == 0:
        raise _bad_tensor(cursor.path, name, "has a dimension of 0")
    if reversed_shape[0] % kind.block_elements:
        raise _bad_tensor(
            cursor.path, name, f"has rows of {reversed_shape[0]}, no multiple of {kind.name}'s {kind.block_elements}"
        )
    shape = tuple(reversed(reversed_shape))
    nbytes = math.prod(shape) // kind.block_elements * kind.block_bytes
    return TensorInfo(name, shape, kind, cursor.u64(f"the offset of {what}"), nbytes, file)


def place_tensors(
    path: Path, entries: list[TensorInfo], data_offset: int, alignment: int, file_size: int
) -> dict[str, TensorInfo]:
    """The entries with offsets from the file's start, by name. Raises CheckpointError for what is
    misplaced, past the end, overlapping or there twice."""
    tensors: dict[str, TensorInfo] = {}
    for entry in entries:
        if entry.name in tensors:
            raise _bad_tensor(path, entry.name, "is there twice")
        if entry.offset % alignment:
            raise _bad_tensor(path, entry.name, f"begins at {entry.offset}, no multiple of the alignment {alignment}")
        placed = replace(entry, offset=data_offset + entry.offset)
        if placed.offset + placed.nbytes > file_size:
            end = placed.offset + placed.nbytes
            raise _bad_tensor(path, entry.name, f"ends at byte {end}, the file at {file_size}", TRUNCATED)
        tensors[entry.name] = placed
    last: TensorInfo | None = None
    for tensor in sorted(tensors.values(), key=lambda info: info.offset):
        if last is not None and tensor.offset < last.offset + last.nbytes:
            raise _bad_tensor(path, tensor.name, f"overlaps tensor {last.name!r}")
        last = tensor
    return tensors


def _bad_tensor(path: Path, name: str, what: str, code: str = INDEX_INVALID) -> CheckpointError:
    return CheckpointError(code, f"{path}: tensor {name!r} {what}")
