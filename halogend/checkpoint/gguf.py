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
    INDEX_INVALID,
    KEY_INVALID,
    SPLIT_UNSUPPORTED,
    TRUNCATED,
    TYPE_UNSUPPORTED,
    VERSION_UNSUPPORTED,
    CheckpointError,
)
from halogend.checkpoint.gguf_types import GGML_TYPES, VALUE_TYPES, GgmlType, ValueType

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
_MAX_ALIGNMENT = 1 << 20
_MAX_DIMENSIONS = 4
_EAGER_COUNT = 256  # arrays up to this length are metadata values at once
_MIN_KEY_BYTES = 8 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8

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
class TensorInfo:
    """`shape` is row-major (outermost first, so the last one is contiguous and holds the blocks);
    `offset` is from the file's start."""

    name: str
    shape: tuple[int, ...]
    type: GgmlType
    offset: int
    nbytes: int

    @property
    def elements(self) -> int:
        return _product(self.shape)


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
        _check_count(cursor, tensor_count, _MIN_TENSOR_BYTES, "tensors")
        _check_count(cursor, key_count, _MIN_KEY_BYTES, "metadata keys")
        metadata = _read_metadata(cursor, key_count)
        alignment = _alignment(path, metadata)
        _refuse_parts(path, metadata)
        entries = [_read_tensor(cursor) for _ in range(tensor_count)]
        header_end = cursor.position
        data_offset = -(-header_end // alignment) * alignment
        tensors = _place_tensors(path, entries, data_offset, alignment, cursor.file_size)
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


def _read_tensor(cursor: Cursor) -> TensorInfo:
    """An entry as the file has it: `offset` still counts from the data's start."""
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
    nbytes = _product(shape) // kind.block_elements * kind.block_bytes
    return TensorInfo(name, shape, kind, cursor.u64(f"the offset of {what}"), nbytes)


def _place_tensors(
    path: Path, entries: list[TensorInfo], data_offset: int, alignment: int, file_size: int
) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for entry in entries:
        if entry.name in tensors:
            raise _bad_tensor(path, entry.name, "is there twice")
        if entry.offset % alignment:
            raise _bad_tensor(path, entry.name, f"begins at {entry.offset}, no multiple of the alignment {alignment}")
        placed = TensorInfo(entry.name, entry.shape, entry.type, data_offset + entry.offset, entry.nbytes)
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


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
