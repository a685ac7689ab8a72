"""The header of a model in GGUF, in one file or split over several: metadata and the tensor table.

A header is read in milliseconds: arrays are walked over, and their strings and numbers are built
only when asked for.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from halogend.checkpoint.cursor import Cursor
from halogend.checkpoint.errors import KEY_INVALID, CheckpointError
from halogend.checkpoint.files import open_regular
from halogend.checkpoint.gguf_metadata import ArrayRef, Number, Scalar, Value, describe
from halogend.checkpoint.gguf_part import Part, read_part
from halogend.checkpoint.gguf_split import merge_tensors, read_parts
from halogend.checkpoint.gguf_types import ValueType
from halogend.checkpoint.tensor_table import TensorInfo

__all__ = ["ArrayRef", "GgufHeader", "TensorInfo", "Value", "read_header", "read_header_within"]


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """`path` is the file that was named; `files` are it and the other parts of a split model, in
    order. A tensor lies in `files[tensor.file]`; `tensors` are in the files' order. `metadata`,
    `version` and `alignment` are the first file's.

    `digest` covers the headers of all files (without the padding before the data), in hex: with the
    same digest metadata and tensor tables are the same. `window`: it lies inside that file, from the first byte
    up to the second."""

    path: Path
    files: tuple[Path, ...]
    version: int
    architecture: str
    metadata: Mapping[str, Value]
    tensors: Mapping[str, TensorInfo]
    alignment: int
    digest: str
    window: tuple[int, int] | None = None

    def has(self, key: str) -> bool:
        return key in self.metadata

    def strings(self, key: str) -> list[str]:
        """The array of strings under `key`, read from the file. Raises CheckpointError."""
        value = self._array(key, "strings")
        if isinstance(value, tuple):
            texts = [item for item in value if isinstance(item, str)]
            if len(texts) != len(value):
                raise self._wrong(key, value, "strings")
            return texts
        if value.element is not ValueType.STRING:
            raise self._wrong(key, value, "strings")
        with open_regular(self.path) as file:
            return self._cursor(file, value).strings(value.count, f"the array {key!r}")

    def numbers(self, key: str) -> tuple[Number, ...]:
        """The array of numbers (no booleans) under `key`, read from the file. Raises
        CheckpointError."""
        value = self._array(key, "numbers")
        if isinstance(value, tuple):
            found = tuple(item for item in value if not isinstance(item, str | bool))
            if len(found) != len(value):
                raise self._wrong(key, value, "numbers")
            return found
        if value.element in (ValueType.STRING, ValueType.BOOL):
            raise self._wrong(key, value, "numbers")
        with open_regular(self.path) as file:
            cursor = self._cursor(file, value)
            layout = struct.Struct(f"<{value.count}{value.element.format_char}")
            return cursor.unpack(layout, f"the array {key!r}")

    def _cursor(self, file: BinaryIO, value: ArrayRef) -> Cursor:
        start, end = self.window or (0, None)
        return Cursor(file, self.path, start + value.offset, end)

    def _array(self, key: str, wanted: str) -> tuple[Scalar, ...] | ArrayRef:
        value = self.metadata.get(key)
        if value is None:
            raise CheckpointError(KEY_INVALID, f"{self.path}: metadata key {key!r} is missing")
        if not isinstance(value, tuple | ArrayRef):
            raise self._wrong(key, value, wanted)
        return value

    def _wrong(self, key: str, value: Value, wanted: str) -> CheckpointError:
        found = describe(value)
        return CheckpointError(
            KEY_INVALID, f"{self.path}: metadata key {key!r} is {found}; an array of {wanted} is wanted"
        )


def read_header(path: str | Path) -> GgufHeader:
    """Reads and checks the header of the GGUF file at `path`; for the first part of a split model,
    those of the other parts too, which lie beside it.

    Raises CheckpointError naming the file and the key or tensor for a file that is missing,
    truncated, of another format or version, or contradicts itself or the other parts.
    """
    return _header(read_parts(Path(path)))


def read_header_within(path: str | Path, window: tuple[int, int]) -> GgufHeader:
    """The same for a GGUF file in one part that lies inside the file at `path`. Raises CheckpointError."""
    return replace(_header((read_part(Path(path), window=window),)), window=window)


def _header(parts: Sequence[Part]) -> GgufHeader:
    first = parts[0]
    return GgufHeader(
        path=first.path,
        files=tuple(part.path for part in parts),
        version=first.version,
        architecture=_architecture(first.path, first.metadata),
        metadata=MappingProxyType(dict(first.metadata)),
        tensors=MappingProxyType(merge_tensors(parts)),
        alignment=first.alignment,
        digest=_digest(parts),
    )


def _digest(parts: Sequence[Part]) -> str:
    if len(parts) == 1:
        return parts[0].digest
    return hashlib.sha256("".join(part.digest for part in parts).encode()).hexdigest()


def _architecture(path: Path, metadata: Mapping[str, Value]) -> str:
    value = metadata.get("general.architecture")
    if value is None:
        raise CheckpointError(KEY_INVALID, f"{path}: metadata key 'general.architecture' is missing")
    if not isinstance(value, str):
        raise CheckpointError(KEY_INVALID, f"{path}: metadata key 'general.architecture' is no string")
    return value
