"""Files of random tensors, safetensors and GGUF, written as fast as the disk takes them.

Each kind of content is made once, some MiB of it, and written again and again from another place on.
Values are such as models have: nothing is infinite, and a product of many layers stays finite.
"""

from __future__ import annotations

import enum
import json
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from halogend.checkpoint.gguf_types import GgmlType
from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.safetensors import INDEX_FILE

Report = Callable[[int, int], None]
Bytes = NDArray[np.uint8]

_BLOCK_BYTES = 16 << 20  # of each content, about
_SPREAD = 0.02
_GGUF_ALIGNMENT = 32
_GGUF_U32, _GGUF_F32, _GGUF_STRING = 4, 6, 8  # value types of metadata


class Fill(enum.Enum):
    """What a tensor holds: the stored type."""

    BF16 = PlainType.BF16
    F16 = PlainType.F16
    E4M3 = PlainType.F8_E4M3
    CODES = (PlainType.I32, "any bits")
    GROUPS = (PlainType.I32, "the group of 128 that a column is in")
    SCALES_F16 = (PlainType.F16, "small and above zero")
    MINIMA_F16 = (PlainType.F16, "small and below zero")
    SCALES_F32 = (PlainType.F32, "small and above zero")
    F32 = GgmlType.F32
    Q4_K = GgmlType.Q4_K
    Q8_0 = GgmlType.Q8_0

    @property
    def type(self) -> PlainType | GgmlType:
        kind: PlainType | GgmlType = self.value[0] if isinstance(self.value, tuple) else self.value
        return kind


_UNIFORM: dict[Fill, tuple[float, float, type[np.floating[Any]]]] = {
    Fill.SCALES_F16: (1e-3, 4e-3, np.float16),
    Fill.MINIMA_F16: (-3e-2, -1e-2, np.float16),
    Fill.SCALES_F32: (1e-4, 2e-4, np.float32),
}


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    shape: tuple[int, ...]
    fill: Fill

    @property
    def nbytes(self) -> int:
        kind = self.fill.type
        return math.prod(self.shape) // kind.block_elements * kind.block_bytes


def write_safetensors(folder: Path, entries: Sequence[Entry], shards: int, report: Report) -> None:
    """About `shards` files of one size with an index. In a file tensors are in the order of their names,
    as safetensors' own writer puts them."""
    groups = list(_shares(entries, shards))
    total = sum(entry.nbytes for entry in entries)
    pen = _Pen(total, report)
    weight_map: dict[str, str] = {}
    for number, group in enumerate(groups, 1):
        name = f"model-{number:05}-of-{len(groups):05}.safetensors"
        group.sort(key=lambda entry: entry.name)
        with _synced(folder / name) as file:
            file.write(_safetensors_header(group))
            for entry in group:
                pen.write(file, entry)
        weight_map |= dict.fromkeys((entry.name for entry in group), name)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX_FILE).write_text(json.dumps(index, indent=1))


def write_gguf(path: Path, metadata: Mapping[str, str | float], entries: Sequence[Entry], report: Report) -> None:
    """One file, version 3. Every tensor's bytes are a multiple of the alignment."""
    pen = _Pen(sum(entry.nbytes for entry in entries), report)
    with _synced(path) as file:
        header = _gguf_header(metadata, entries)
        file.write(header + bytes(-len(header) % _GGUF_ALIGNMENT))
        for entry in entries:
            pen.write(file, entry)


class Contents:
    """What tensors hold, made once for each kind."""

    def __init__(self) -> None:
        self._made: dict[Fill, Bytes] = {}
        self._random = np.random.default_rng(0)

    def pieces(self, fill: Fill, nbytes: int) -> Iterator[Bytes]:
        """`nbytes` in all."""
        content = self._content(fill)
        at = 0 if fill is Fill.GROUPS else self._start(len(content), fill.type.block_bytes)
        while nbytes:
            piece = content[at : at + nbytes]
            yield piece
            nbytes -= len(piece)
            at = 0

    def _start(self, length: int, block_bytes: int) -> int:
        return int(self._random.integers(length // block_bytes)) * block_bytes

    def _content(self, fill: Fill) -> Bytes:
        if fill not in self._made:
            self._made[fill] = _make(fill, self._random).reshape(-1).view(np.uint8)
        return self._made[fill]


class _Pen:
    """Writes tensors and tells how far it has come."""

    def __init__(self, total: int, report: Report) -> None:
        self._contents = Contents()
        self._total = total
        self._done = 0
        self._report = report

    def write(self, file: BinaryIO, entry: Entry) -> None:
        for piece in self._contents.pieces(entry.fill, entry.nbytes):
            file.write(piece.data)
            self._done += len(piece)
            self._report(self._done, self._total)


def _make(fill: Fill, random: np.random.Generator) -> NDArray[Any]:
    count = _BLOCK_BYTES // fill.type.block_bytes
    match fill:
        case Fill.BF16:
            return (_normal(random, count).view(np.uint32) >> 16).astype(np.uint16)
        case Fill.F16:
            return _normal(random, count).astype(np.float16)
        case Fill.F32:
            return 1 + _normal(random, count)
        case Fill.E4M3:  # no NaN; the top bit is the sign
            return random.choice(np.array([*range(120), *range(128, 248)], np.uint8), count)
        case Fill.CODES:
            return random.integers(0, 256, _BLOCK_BYTES, np.uint8)
        case Fill.GROUPS:
            return (np.arange(count) // 128).astype(np.int32)
        case Fill.SCALES_F16 | Fill.MINIMA_F16 | Fill.SCALES_F32:
            low, high, dtype = _UNIFORM[fill]
            return random.uniform(low, high, count).astype(dtype)
        case Fill.Q4_K | Fill.Q8_0:
            return _ggml_blocks(random, count, fill)


def _normal(random: np.random.Generator, count: int) -> NDArray[np.float32]:
    values: NDArray[np.float32] = random.standard_normal(count, np.float32) * np.float32(_SPREAD)
    return values


def _ggml_blocks(random: np.random.Generator, count: int, fill: Fill) -> Bytes:
    """Blocks begin with their float16 scale; Q4_K's second one is of the minima."""
    blocks = random.integers(0, 256, (count, fill.type.block_bytes), np.uint8)
    scales = random.uniform(1e-4, 2e-4, (count, 2 if fill is Fill.Q4_K else 1)).astype(np.float16)
    blocks[:, : scales.shape[1] * 2] = scales.view(np.uint8)
    return blocks


def _shares(entries: Sequence[Entry], shares: int) -> Iterator[list[Entry]]:
    most = sum(entry.nbytes for entry in entries) / shares
    share: list[Entry] = []
    for entry in entries:
        if share and sum(other.nbytes for other in share) + entry.nbytes > most:
            yield share
            share = []
        share.append(entry)
    yield share


@contextmanager
def _synced(path: Path) -> Iterator[BinaryIO]:
    """On the disk when it is left, so that its pages can be dropped."""
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _safetensors_header(entries: Sequence[Entry]) -> bytes:
    table, end = {}, 0
    for entry in entries:
        begin, end = end, end + entry.nbytes
        kind = entry.fill.type
        if not isinstance(kind, PlainType):
            raise TypeError(f"{kind.name} is no type of safetensors files")
        table[entry.name] = {"dtype": kind.label, "shape": entry.shape, "data_offsets": [begin, end]}
    raw = json.dumps(table).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw


def _gguf_header(metadata: Mapping[str, str | float], entries: Sequence[Entry]) -> bytes:
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(entries), len(metadata))]
    for key, value in metadata.items():
        parts += [_gguf_string(key), _gguf_value(value)]
    offset = 0
    for entry in entries:
        kind = entry.fill.type
        if not isinstance(kind, GgmlType):
            raise TypeError(f"{kind.name} is no type of GGUF files")
        sizes = struct.pack(f"<I{len(entry.shape)}Q", len(entry.shape), *reversed(entry.shape))
        parts += [_gguf_string(entry.name), sizes, struct.pack("<IQ", kind.number, offset)]
        offset += entry.nbytes
    return b"".join(parts)


def _gguf_string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _gguf_value(value: str | float) -> bytes:
    match value:
        case str():
            return struct.pack("<I", _GGUF_STRING) + _gguf_string(value)
        case int():
            return struct.pack("<II", _GGUF_U32, value)
        case float():
            return struct.pack("<If", _GGUF_F32, value)
