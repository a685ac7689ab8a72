"""Files of malformed models, byte by byte: GGUF files and safetensors files that say whatever is wanted.

Written here and not by the packages for these formats, which refuse to write most of it and whose
bytes change between versions.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from support.safetensors_files import entry
from support.safetensors_files import file_bytes as with_length

Folder = dict[str, "bytes | Link"]
F32, F16, Q4_0, I32 = 0, 1, 2, 26  # ggml's numbers of types
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22e\nsize 1024\n"
_BLOCKS = {F32: (1, b"\x00\x00\x80\x3f"), F16: (1, b"\x00\x20"), Q4_0: (32, b"\x00\x20" + bytes(range(16)))}
_VALUES = {"u32": (4, "I"), "f32": (6, "f"), "bool": (7, "?"), "text": (8, ""), "array": (9, "")}
_DTYPES = {
    "F32": b"\x00\x00\x80\x3f",
    "F16": b"\x00\x20",
    "F16 zeros": b"\x00\x00",
    "F8_E4M3": b"\x20",
    "I32": b"\x01\x02\x03\x04",
    "I64": b"\x01\x02\x03\x04\x05\x06\x07\x08",
}


@dataclass(frozen=True)
class Link:
    """A symlink in place of a file."""

    target: str


@dataclass(frozen=True)
class Entry:
    """A line of a GGUF file's tensor table, with the data that belongs to it. `shape` is outermost first;
    `offset` is where the table says that the data lies, None: where it does."""

    name: str
    shape: tuple[int, ...]
    kind: int = F16
    offset: int | None = None

    def data(self) -> bytes:
        elements, block = _BLOCKS.get(self.kind, (1, b"\x00\x00\x00\x00"))
        count = 1
        for size in self.shape:
            count *= size
        return block * (count // elements)


def gguf(
    keys: Iterable[tuple[str, Any]],
    tensors: Iterable[Entry],
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    order: str = "<",
    counts: tuple[int, int] | None = None,
) -> bytes:
    """A GGUF file. `counts` are the numbers of tensors and of keys that the header claims. A value of
    bytes stands for itself, its type's number included."""
    keys, tensors = list(keys), list(tensors)
    table, data = b"", b""
    for each in tensors:
        shape = struct.pack(f"{order}I{len(each.shape)}Q", len(each.shape), *reversed(each.shape))
        offset = len(data) if each.offset is None else each.offset
        table += _text(each.name, order) + shape + struct.pack(f"{order}IQ", each.kind, offset)
        data += _padded(each.data())
    metadata = b"".join(_text(key, order) + _value(value, order) for key, value in keys)
    head = magic + struct.pack(f"{order}IQQ", version, *(counts or (len(tensors), len(keys))))
    return _padded(head + metadata + table) + data


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 32)


def _text(text: str, order: str) -> bytes:
    raw = text.encode()
    return struct.pack(f"{order}Q", len(raw)) + raw


def _value(value: Any, order: str) -> bytes:
    if isinstance(value, bytes):
        return value
    number, letter = _VALUES[_kind(value)]
    return struct.pack(f"{order}I", number) + _content(value, letter, order)


def _content(value: Any, letter: str, order: str) -> bytes:
    if isinstance(value, str):
        return _text(value, order)
    if isinstance(value, list):
        number, inner = _VALUES[_kind(value[0])]
        items = b"".join(_content(item, inner, order) for item in value)
        return struct.pack(f"{order}IQ", number, len(value)) + items
    return struct.pack(order + letter, value)


def _kind(value: Any) -> str:
    kinds = {bool: "bool", int: "u32", float: "f32", str: "text", list: "array"}
    return kinds[type(value)]


Tensors = Mapping[str, tuple[str, tuple[int, ...]]]  # name to dtype and shape


def header_and_data(tensors: Tensors) -> tuple[dict[str, Any], bytes]:
    """A safetensors header as it should be, and the data. What stands behind a dtype's name is of the data."""
    header: dict[str, Any] = {}
    data = b""
    for name, (dtype, shape) in tensors.items():
        values = _DTYPES[dtype]
        for size in shape:
            values = values * size
        header[name] = entry(dtype.split(" ")[0], list(shape), len(data), len(data) + len(values))
        data += values
    return header, data


def file_bytes(header: Any, data: bytes = b"") -> bytes:
    """A safetensors file with `header` (as JSON without spaces, or as the bytes it is) and `data`."""
    raw = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return with_length(raw, data)


def safetensors(tensors: Tensors) -> bytes:
    return file_bytes(*header_and_data(tensors))


def as_json(content: Any) -> bytes:
    """A key a line at the top, so that those of config.json can be read."""
    if not isinstance(content, dict):
        return _compact(content)
    lines = ",\n".join(f" {json.dumps(key)}: {_compact(value).decode()}" for key, value in content.items())
    return f"{{\n{lines}\n}}\n".encode()


def _compact(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
