"""One GGUF file by itself (versions 2 and 3, little-endian): its metadata and its tensor table.

Everything the file claims is checked against its size first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from halogend.checkpoint.cursor import Cursor
from halogend.checkpoint.errors import FORMAT_UNKNOWN, KEY_INVALID, VERSION_UNSUPPORTED, CheckpointError
from halogend.checkpoint.files import is_lfs_pointer, lfs_pointer, open_regular
from halogend.checkpoint.gguf_metadata import MIN_KEY_BYTES, Value, read_metadata
from halogend.checkpoint.tensor_table import MIN_ENTRY_BYTES, TensorInfo, place_tensors, read_entry

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
_MAX_ALIGNMENT = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """`digest` is the sha256 of the header (without the padding before the data), in hex; `tensors`
    are in the file's order, their `file` is the number this part was read as."""

    path: Path
    version: int
    metadata: Mapping[str, Value]
    tensors: Mapping[str, TensorInfo]
    alignment: int
    digest: str


def read_part(path: Path, number: int = 0, window: tuple[int, int] | None = None) -> Part:
    """The header of the file at `path`, which is file `number` of a checkpoint; where there is a `window`, of
    what lies from its first byte up to its second in that file. Offsets are from there. Raises
    CheckpointError."""
    with open_regular(path) as file:
        cursor = Cursor(file, path, *(window or ()))
        version = _read_version(cursor)
        tensor_count = cursor.u64("the tensor count")
        key_count = cursor.u64("the metadata count")
        _check_count(cursor, tensor_count, MIN_ENTRY_BYTES, "tensors")
        _check_count(cursor, key_count, MIN_KEY_BYTES, "metadata keys")
        metadata = read_metadata(cursor, key_count)
        alignment = _alignment(path, metadata)
        entries = [read_entry(cursor, number) for _ in range(tensor_count)]
        header_end = cursor.position
        data_offset = -(-header_end // alignment) * alignment
        return Part(
            path=path,
            version=version,
            metadata=metadata,
            tensors=place_tensors(path, entries, data_offset, alignment, cursor.position + cursor.remaining),
            alignment=alignment,
            digest=hashlib.sha256(memoryview(cursor.data)[:header_end]).hexdigest(),
        )


def _read_version(cursor: Cursor) -> int:
    path = cursor.path
    if cursor.file_size == 0:
        raise CheckpointError(FORMAT_UNKNOWN, f"{path}: is empty")
    cursor.require(min(4, cursor.file_size), "the magic bytes")
    magic = bytes(cursor.data[:4])
    if is_lfs_pointer(cursor.data):
        raise lfs_pointer(path)
    if magic != MAGIC:
        raise CheckpointError(FORMAT_UNKNOWN, f"{path}: is no GGUF file: it begins with {magic!r}, not {MAGIC!r}")
    cursor.position = 4
    version = cursor.u32("the version")
    if version in VERSIONS:
        return version
    if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
        raise CheckpointError(
            VERSION_UNSUPPORTED, f"{path}: is a big-endian GGUF file; only little-endian ones are read"
        )
    raise CheckpointError(VERSION_UNSUPPORTED, f"{path}: is GGUF version {version}; versions 2 and 3 are read")


def _check_count(cursor: Cursor, count: int, min_bytes: int, what: str) -> None:
    if count * min_bytes > cursor.remaining:
        raise cursor.truncated(
            f"the header claims {count} {what}, more than the file has room for: it is cut short or damaged"
        )


def _alignment(path: Path, metadata: Mapping[str, Value]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MAX_ALIGNMENT or value & (value - 1):
        raise CheckpointError(KEY_INVALID, f"{path}: metadata key 'general.alignment' is no power of two up to 1 MiB")
    return value
