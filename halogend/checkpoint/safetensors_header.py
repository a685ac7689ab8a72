"""The header of one safetensors file: a length, a JSON object of tensors, and the data behind it.

Source: the format's specification. What is checked, in this order:

    1  eight bytes of length, a header of that length inside the file and not beyond MAX_HEADER_BYTES
    2  UTF-8, one JSON object from the first byte on, no key twice anywhere
    3  `__metadata__`, if there, maps strings to strings
    4  each other key names a tensor: name printable, dtype known, shape of whole numbers, data_offsets [begin, end]
    5  end - begin is what shape and dtype need
    6  the tensors tile the data: no overlap, no hole, nothing behind the last one, nothing missing
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halogend.checkpoint.cursor import Cursor
from halogend.checkpoint.errors import (
    FORMAT_UNKNOWN,
    INDEX_INVALID,
    TRUNCATED,
    TYPE_UNSUPPORTED,
    CheckpointError,
    shown,
)
from halogend.checkpoint.files import is_lfs_pointer, lfs_pointer, open_regular
from halogend.checkpoint.json_object import parse_json_object
from halogend.checkpoint.plain_types import PLAIN_TYPES
from halogend.checkpoint.tensor_table import TensorInfo

MAX_HEADER_BYTES = 32 << 20
MAX_TENSORS = 200_000  # of one file
_MAX_NAME = 512
_MAX_DIMENSIONS = 8
_MAX_SIZE = 1 << 62
_METADATA = "__metadata__"


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    """`raw` is the header's JSON as it lies in the file; offsets of `tensors` count from the file's start."""

    raw: bytes
    tensors: dict[str, TensorInfo]


def read_safetensors_header(path: Path, file: int = 0) -> SafetensorsHeader:
    """The checked header of the file at `path`, number `file` of its checkpoint.

    Raises CheckpointError naming the file and the tensor or key.
    """
    with open_regular(path) as opened:
        cursor = Cursor(opened, path)
        length = _header_length(cursor)
        cursor.require(length, "the header")
        raw = bytes(cursor.data[8 : 8 + length])
        size = cursor.file_size
    if not raw.startswith(b"{"):
        raise CheckpointError(INDEX_INVALID, f"{path}: the header is no JSON object: it begins with {raw[:8]!r}")
    table = parse_json_object(raw, f"{path}: the header", INDEX_INVALID)
    _check_metadata(path, table.pop(_METADATA, {}))
    if len(table) > MAX_TENSORS:
        raise CheckpointError(INDEX_INVALID, f"{path}: has {len(table)} tensors, more than the {MAX_TENSORS} accepted")
    tensors = {name: _read_entry(path, name, entry, 8 + length, file) for name, entry in table.items()}
    _check_tiling(path, tensors, 8 + length, size)
    return SafetensorsHeader(raw, tensors)


def _header_length(cursor: Cursor) -> int:
    if cursor.file_size == 0:
        raise CheckpointError(FORMAT_UNKNOWN, f"{cursor.path}: is empty")
    length = cursor.u64("the header's length")
    if is_lfs_pointer(cursor.data):
        raise lfs_pointer(cursor.path)
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(
            FORMAT_UNKNOWN,
            f"{cursor.path}: is no safetensors file: its header would have {length} bytes, "
            f"more than the {MAX_HEADER_BYTES} accepted",
        )
    return length


def _check_metadata(path: Path, metadata: Any) -> None:
    if not isinstance(metadata, dict):
        raise CheckpointError(INDEX_INVALID, f"{path}: key {_METADATA!r} is no JSON object")
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise CheckpointError(INDEX_INVALID, f"{path}: key {_METADATA!r}: {shown(key)} is no string")


def _read_entry(path: Path, name: str, entry: Any, data_start: int, file: int) -> TensorInfo:
    if not 0 < len(name) <= _MAX_NAME:
        raise _bad_tensor(path, name, f"has a name of {len(name)} characters; 1 to {_MAX_NAME} are possible")
    if not name.isprintable():
        raise _bad_tensor(path, name, "has a name that cannot be printed")
    if not isinstance(entry, dict):
        raise _bad_tensor(path, name, "is no JSON object")
    for key in ("dtype", "shape", "data_offsets"):
        if key not in entry:
            raise _bad_tensor(path, name, f"has no {key!r}")
    kind = PLAIN_TYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if kind is None:
        raise _bad_tensor(path, name, f"has the unknown dtype {shown(entry['dtype'])}", TYPE_UNSUPPORTED)
    shape = _whole_numbers(path, name, "shape", entry["shape"])
    if len(shape) > _MAX_DIMENSIONS:
        raise _bad_tensor(path, name, f"has {len(shape)} dimensions; up to {_MAX_DIMENSIONS} are possible")
    offsets = _whole_numbers(path, name, "data_offsets", entry["data_offsets"])
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _bad_tensor(path, name, f"has the data_offsets {list(offsets)[:4]}, which are no [begin, end]")
    begin, end = offsets
    needed = math.prod(shape) * kind.block_bytes
    if end - begin != needed:
        raise _bad_tensor(
            path, name, f"has {end - begin} bytes where shape {list(shape)} of {kind.label} needs {needed}"
        )
    return TensorInfo(name, shape, kind, data_start + begin, needed, file)


def _whole_numbers(path: Path, name: str, key: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(item) is int and 0 <= item < _MAX_SIZE for item in value):
        raise _bad_tensor(path, name, f"has the {key} {shown(value)}, no list of whole numbers")
    return tuple(value)


def _check_tiling(path: Path, tensors: dict[str, TensorInfo], data_start: int, file_size: int) -> None:
    end, last = data_start, "the header"
    for tensor in sorted(tensors.values(), key=lambda info: (info.offset, info.nbytes)):
        if tensor.offset < end:
            raise _bad_tensor(path, tensor.name, f"overlaps {last}")
        if tensor.offset > end:
            raise _bad_tensor(path, tensor.name, f"leaves a hole of {tensor.offset - end} bytes behind {last}")
        end, last = tensor.offset + tensor.nbytes, f"tensor {tensor.name!r}"
        if end > file_size:
            raise _bad_tensor(path, tensor.name, f"ends at byte {end}, the file at {file_size}", TRUNCATED)
    if end < file_size:
        raise CheckpointError(INDEX_INVALID, f"{path}: {file_size - end} bytes behind {last} belong to no tensor")


def _bad_tensor(path: Path, name: str, what: str, code: str = INDEX_INVALID) -> CheckpointError:
    return CheckpointError(code, f"{path}: tensor {shown(name) if len(name) > _MAX_NAME else repr(name)} {what}")
