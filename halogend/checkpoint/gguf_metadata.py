"""The metadata of a GGUF file: keys with scalars, strings or arrays.

Short arrays are values at once; long ones are walked over and their place is kept, so that a header
with a vocabulary of 262k strings is read in milliseconds.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from halogend.checkpoint.cursor import Cursor
from halogend.checkpoint.errors import shown
from halogend.checkpoint.gguf_types import VALUE_TYPES, ValueType

MIN_KEY_BYTES = 8 + 4 + 1
_EAGER_COUNT = 256  # arrays up to this length are metadata values at once

Scalar = int | float | bool | str
Number = int | float


@dataclass(frozen=True, slots=True)
class ArrayRef:
    """A long array that was not read: `count` elements in `nbytes` bytes at `offset` in the file."""

    element: ValueType
    count: int
    offset: int
    nbytes: int


Value = Scalar | tuple[Scalar, ...] | ArrayRef


def read_metadata(cursor: Cursor, count: int) -> dict[str, Value]:
    """`count` keys and their values. Raises CheckpointError naming the key."""
    metadata: dict[str, Value] = {}
    for index in range(count):
        key = cursor.text(f"the name of metadata key {index}")
        if key in metadata:
            raise cursor.broken(f"metadata key {shown(key)} is there twice")
        kind = _value_type(cursor, key)
        metadata[key] = _read_array(cursor, key) if kind is ValueType.ARRAY else _read_scalar(cursor, kind, key)
    return metadata


def describe(value: Value) -> str:
    """What a value is, in an error message."""
    if isinstance(value, ArrayRef):
        return f"an array of {_plural(value.element)}"
    if isinstance(value, tuple):
        return f"an array of {_CLASSES[type(value[0])]}" if value else "an empty array"
    return shown(value)


_CLASSES: dict[type, str] = {str: "strings", bool: "booleans", int: "whole numbers", float: "fractional numbers"}


def _plural(element: ValueType) -> str:
    if element is ValueType.STRING:
        return _CLASSES[str]
    if element is ValueType.BOOL:
        return _CLASSES[bool]
    return _CLASSES[float if element.format_char in "fd" else int]


def _value_type(cursor: Cursor, key: str) -> ValueType:
    number = cursor.u32(f"the type of metadata key {shown(key)}")
    kind = VALUE_TYPES.get(number)
    if kind is None:
        raise cursor.broken(f"metadata key {shown(key)} has the unknown type {number}")
    return kind


def _read_scalar(cursor: Cursor, kind: ValueType, key: str) -> Scalar:
    what = f"metadata key {shown(key)}"
    if kind is ValueType.STRING:
        return cursor.text(what)
    return cursor.unpack(struct.Struct("<" + kind.format_char), what)[0]


def _read_array(cursor: Cursor, key: str) -> tuple[Scalar, ...] | ArrayRef:
    what = f"metadata key {shown(key)}"
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
