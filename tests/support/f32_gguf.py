"""A GGUF file's weights written as F32, so that llama.cpp computes with exactly what we compute with."""

from __future__ import annotations

import struct
from pathlib import Path

import torch

from halogend.checkpoint.cursor import Cursor
from halogend.checkpoint.files import open_regular
from halogend.checkpoint.gguf import GgufHeader, read_header
from halogend.checkpoint.gguf_metadata import read_metadata
from halogend.checkpoint.tensor_table import TensorInfo
from halogend.engine.dequant import dequantise


def as_f32(source: Path, folder: Path) -> Path:
    """The F32 twin of `source` in `folder`; one that is there already is used again."""
    target = folder / f"{source.stem}-{read_header(source).digest[:12]}-f32.gguf"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(".part")
        _write(read_header(source), source, part)
        part.rename(target)
    return target


def _write(header: GgufHeader, source: Path, target: Path) -> None:
    start, end, keys = _metadata_span(source)
    with source.open("rb") as reading, target.open("wb") as writing:
        reading.seek(start)
        writing.write(struct.pack("<4sIQQ", b"GGUF", 3, len(header.tensors), keys))
        writing.write(reading.read(end - start))
        offset = 0
        for info in header.tensors.values():
            name = info.name.encode()
            dims = info.shape[::-1]
            writing.write(struct.pack("<Q", len(name)) + name)
            writing.write(struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, offset))
            offset += _padded(4 * info.elements, header.alignment)
        writing.write(bytes(-writing.tell() % header.alignment))
        for info in header.tensors.values():
            data = _decoded(info, source)
            writing.write(data)
            writing.write(bytes(-len(data) % header.alignment))


def _metadata_span(source: Path) -> tuple[int, int, int]:
    """Where the metadata's keys begin and end in the file, and how many they are."""
    with open_regular(source) as file:
        cursor = Cursor(file, source)
        cursor.skip(8, "the version")
        cursor.u64("the tensor count")
        count = cursor.u64("the metadata count")
        start = cursor.position
        read_metadata(cursor, count)
        return start, cursor.position, count


def _decoded(info: TensorInfo, source: Path) -> bytes:
    with source.open("rb") as file:
        file.seek(info.offset)
        raw = torch.frombuffer(bytearray(file.read(info.nbytes)), dtype=torch.uint8)
    out = torch.empty(info.elements)
    dequantise(info.type, raw, out)
    return out.numpy().tobytes()


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
