"""The header of a GGUF file (versions 2 and 3, little-endian): metadata and the tensor table.

A header is read in milliseconds: arrays are walked over, and their strings and numbers are built
only when asked for. Everything the file claims is checked against the file's size first.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from halogend.checkpoint.cursor import Cursor, open_regular
from halogend.checkpoint.errors import (
    FORMAT_UNKNOWN,
    KEY_INVALID,
    SPLIT_UNSUPPORTED,
    VERSION_UNSUPPORTED,
    CheckpointError,
)
from halogend.checkpoint.gguf_types import VALUE_TYPES, ValueType
from halogend.checkpoint.tensor_table import MIN_ENTRY_BYTES, TensorInfo, place_tensors, read_entry

__all__ = ["ArrayRef", "GgufHeader", "TensorInfo", "Value", "read_header"]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
_MAX_ALIGNMENT = 1 << 20
_EAGER_COUNT = 256  # arrays up to this length are metadata values at once
_MIN_KEY_BYTES = 8 + 4 + 1

Scalar = int | float | bool | str
Number = int | float | bool


@dataclass(frozen=True, slots=True)
class ArrayRef:
    """A long array that was not read: `count` elements in `nbytes` bytes at `offset` in the file."""

    element: ValueType
    count: int
    offset: int
    nbytes: int


Value = Scalar | tuple[Scalar, ...] | ArrayRef


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """`digest` is the sha256 of the header itself (without the padding before the data), in hex: two
    files with one digest hold the same metadata and tensor table. `tensors` are in the file's
    order."""

    path: Path
    version: int
    architecture: str
    metadata: Mapping[str, Value]
    tensors: Mapping[str, TensorInfo]
    data_offset: int
    file_size: int
    alignment: int
    digest: str

    def has(self, key: str) -> bool:
        return key in self.metadata

    def strings(self, key: str) -> list[str]:
        """The array of strings under `key`, read from the file. Raises CheckpointError."""
        value = self._array(key)
        if isinstance(value, tuple):
            texts = [item for item in value if isinstance(item, str)]
            if len(texts) != len(value):
                raise self._wrong(key, "strings")
            return texts
        if value.element is not ValueType.STRING:
            raise self._wrong(key, "strings")
        with open_regular(self.path) as file:
            return Cursor(file, self.path, value.offset).strings(value.count, f"the array {key!r}")

    def numbers(self, key: str) -> tuple[Number, ...]:
        """The array of numbers under `key`, read from the file. Raises CheckpointError."""
        value = self._array(key)
        if isinstance(value, tuple):
            found = tuple(item for item in value if not isinstance(item, str))
            if len(found) != len(value):
                raise self._wrong(key, "numbers")
            return found
        if not value.element.format_char:
            raise self._wrong(key, "numbers")
        with open_regular(self.path) as file:
            cursor = Cursor(file, self.path, value.offset)
            layout = struct.Struct(f"<{value.count}{value.element.format_char}")
            return cursor.unpack(layout, f"the array {key!r}")

    def _array(self, key: str) -> tuple[Scalar, ...] | ArrayRef:
        value = self.metadata.get(key)
        if value is None:
            raise CheckpointError(KEY_INVALID, f"{self.path}: metadata key {key!r} is missing")
        if not isinstance(value, tuple | ArrayRef):
            raise self._wrong(key, "an array")
        return value

    def _wrong(self, key: str, wanted: str) -> CheckpointError:
        return CheckpointError(KEY_INVALID, f"{self.path}: metadata key {key!r} does not hold {wanted}")


def read_header(path: str | Path) -> GgufHeader:
    """Reads and checks the header of the GGUF file at `path`.

    Raises CheckpointError naming the file and the key or tensor for a file that is missing,
    truncated, of another format or version, or contradicts itself.
    """
    path = Path(path)
    with open_regular(path) as file:
        cursor = Cursor(file, path)
        version = _read_version(cursor)
        tensor_count = cursor.u64("the tensor count")
        key_count = cursor.u64("the metadata count")
        _check_count(cursor, tensor_count, MIN_ENTRY_BYTES, "tensors")
        _check_count(cursor, key_count, _MIN_KEY_BYTES, "metadata keys")
        metadata = _read_metadata(cursor, key_count)
        alignment = _alignment(path, metadata)
        _refuse_parts(path, metadata)
        entries = [read_entry(cursor) for _ in range(tensor_count)]
        header_end = cursor.position
        data_offset = -(-header_end // alignment) * alignment
        tensors = place_tensors(path, entries, data_offset, alignment, cursor.file_size)
        return GgufHeader(
            path=path,
            version=version,
            architecture=_architecture(path, metadata),
            metadata=MappingProxyType(metadata),
            tensors=MappingProxyType(tensors),
            data_offset=data_offset,
            file_size=cursor.file_size,
            alignment=alignment,
            digest=hashlib.sha256(memoryview(cursor.data)[:header_end]).hexdigest(),
        )


def _read_version(cursor: Cursor) -> int:
    path = cursor.path
    if cursor.file_size == 0:
        raise CheckpointError(FORMAT_UNKNOWN, f"{path}: is empty")
    cursor.require(min(4, cursor.file_size), "the magic bytes")
    magic = bytes(cursor.data[:4])
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
        raise cursor.truncated(f"the header claims {count} {what}, more than the file has room for")


def _read_metadata(cursor: Cursor, count: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for index in range(count):
        key = cursor.text(f"the name of metadata key {index}")
        if key in metadata:
            raise cursor.broken(f"metadata key {key!r} is there twice")
        kind = _value_type(cursor, key)
        metadata[key] = _read_array(cursor, key) if kind is ValueType.ARRAY else _read_scalar(cursor, kind, key)
    return metadata


def _value_type(cursor: Cursor, key: str) -> ValueType:
    number = cursor.u32(f"the type of metadata key {key!r}")
    kind = VALUE_TYPES.get(number)
    if kind is None:
        raise cursor.broken(f"metadata key {key!r} has the unknown type {number}")
    return kind


def _read_scalar(cursor: Cursor, kind: ValueType, key: str) -> Scalar:
    what = f"metadata key {key!r}"
    if kind is ValueType.STRING:
        return cursor.text(what)
    return cursor.unpack(struct.Struct("<" + kind.format_char), what)[0]


def _read_array(cursor: Cursor, key: str) -> tuple[Scalar, ...] | ArrayRef:
    what = f"metadata key {key!r}"
    kind = _value_type(cursor, key)
    count = cursor.u64(f"the length of {what}")
    if kind is ValueType.ARRAY:
        raise cursor.broken(f"{what} is an array of arrays, which is not supported")
    element_bytes = struct.calcsize("<" + kind.format_char) or 8
    if count * element_bytes > cursor.remaining:
        raise cursor.truncated(f"{what} claims {count} elements, more than the file has room for")
    if count <= _EAGER_COUNT:
        return tuple(_read_scalar(cursor, kind, key) for _ in range(count))
    start = cursor.position
    if kind is ValueType.STRING:
        cursor.skip_strings(count, what)
    else:
        cursor.skip(count * element_bytes, what)
    return ArrayRef(kind, count, start, cursor.position - start)


def _alignment(path: Path, metadata: Mapping[str, Value]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MAX_ALIGNMENT or value & (value - 1):
        raise CheckpointError(KEY_INVALID, f"{path}: metadata key 'general.alignment' is no power of two up to 1 MiB")
    return value


def _refuse_parts(path: Path, metadata: Mapping[str, Value]) -> None:
    parts = metadata.get("split.count", 0)
    if not isinstance(parts, int) or parts > 1:
        raise CheckpointError(SPLIT_UNSUPPORTED, f"{path}: is one of {parts} parts ('split.count'); merge them first")


def _architecture(path: Path, metadata: Mapping[str, Value]) -> str:
    value = metadata.get("general.architecture")
    if value is None:
        raise CheckpointError(KEY_INVALID, f"{path}: metadata key 'general.architecture' is missing")
    if not isinstance(value, str):
        raise CheckpointError(KEY_INVALID, f"{path}: metadata key 'general.architecture' is no string")
    return value
