"""The floor of `halogend bench load`: what no loader can do without.

Every byte is read, and every matrix is turned once into the form in which it is held.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from halogend.checkpoint.checkpoint import Checkpoint, open_checkpoint
from halogend.checkpoint.stored import Plain, Weight
from halogend.checkpoint.tensor_table import TensorInfo
from halogend.engine.bench.load_ours import load_spec
from halogend.engine.bench.page_cache import read_through
from halogend.engine.codecs import decode_rows, stored_rows
from halogend.engine.loading import Arithmetic, load_threads
from halogend.engine.tensors import Packing


@dataclass(frozen=True, slots=True)
class FloorFigures:
    """Seconds; `cpu_s` is the processor time of both together."""

    read_s: float
    convert_s: float
    cpu_s: float


def floor(path: str, precision: str, threads: int) -> FloorFigures:
    """Reads all files through, one after the other, into one buffer of 8 MiB; then converts every matrix once
    from memory to memory that is kept: stored numbers as they are are packed by the kernels, others are
    decoded by their decoder first and then packed, and the embedding table is copied. A matrix is brought
    into memory before its time is taken. No slices, no checks, no order of heads."""
    checkpoint = open_checkpoint(path)
    spec = load_spec(path, precision, threads)
    count = load_threads(spec)
    torch.set_num_threads(1)
    spent = _Spent()
    with spent:
        for file in checkpoint.files:
            read_through(file)
    read_s = spent.wall_s
    converter = _Converter(checkpoint, Arithmetic.of(spec), spent)
    with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        list(pool.map(converter.convert, converter.names()))
    return FloorFigures(read_s, (spent.wall_s - read_s) / count, spent.cpu_s)


class _Spent:
    """Time within `with`, of all threads that enter it: each its own stretch and its own processor time."""

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.cpu_s = 0.0
        self._lock = threading.Lock()
        self._began = threading.local()

    def __enter__(self) -> None:
        self._began.wall, self._began.cpu = time.perf_counter(), time.thread_time()

    def __exit__(self, *_: object) -> None:
        wall, cpu = time.perf_counter() - self._began.wall, time.thread_time() - self._began.cpu
        with self._lock:
            self.wall_s, self.cpu_s = self.wall_s + wall, self.cpu_s + cpu


@dataclass
class _Held:
    """A ByteSource over tensors that are in memory."""

    tensors: dict[str, Tensor]

    def take(self, tensor: TensorInfo, start: int, nbytes: int) -> Tensor:
        return self.tensors[tensor.name][start : start + nbytes]


@dataclass
class _Room(threading.local):
    """Memory that a thread uses again and again, by purpose; all of it was touched before. What is kept gets
    fresh pages, as in a loader, and not such as were paid for while nobody took the time. `holds` is the
    caller's note of what is in it."""

    held: dict[str, Tensor] = field(default_factory=dict)
    holds: dict[str, str] = field(default_factory=dict)

    def take(self, purpose: str, nbytes: int) -> Tensor:
        if purpose not in self.held or self.held[purpose].numel() < nbytes:
            self.held[purpose] = torch.zeros(nbytes, dtype=torch.uint8)
            self.holds.pop(purpose, None)
        return self.held[purpose][:nbytes]


class _Converter:
    """Converts matrices and keeps what they become. Safe from several threads."""

    def __init__(self, checkpoint: Checkpoint, arithmetic: Arithmetic, spent: _Spent) -> None:
        self._checkpoint = checkpoint
        self._arithmetic = arithmetic
        self._spent = spent
        self._room = _Room()
        self._kept: list[object] = []

    def names(self) -> Iterator[str]:
        """Of what is converted: "" is the embedding table, which is the output matrix too where it is tied. Weights
        that share a tensor follow each other."""
        weights = self._checkpoint.weights
        untied = "token_embd" if "output" in weights else None
        yield ""
        matrices = [name for name, weight in weights.items() if weight.columns > 1 and name != untied]
        yield from sorted(matrices, key=self._place)

    def convert(self, name: str) -> None:
        weight = self._checkpoint.weights[name or "token_embd"]
        held = self._read(weight)
        packing = self._arithmetic.output_packing if name in ("output", "token_embd") else self._arithmetic.packing
        shape = weight.rows, weight.columns
        room = self._room.take("decoded", math.prod(shape) * packing.dtype.itemsize).view(packing.dtype).view(shape)
        with self._spent:
            self._kept.append(self._table(weight, held) if not name else self._pack(weight, held, packing, room))

    def _pack(self, weight: Weight, held: _Held, packing: Packing, room: Tensor) -> object:
        piece = weight.pieces[0]
        stored = stored_rows(piece.encoded, piece.first, piece.rows, packing.dtype, held)
        return packing.pack([_decoded(weight, held, room) if stored is None or len(weight.pieces) > 1 else stored])

    def _table(self, weight: Weight, held: _Held) -> object:
        encoded = weight.pieces[0].encoded
        if isinstance(encoded, Plain) and len(weight.pieces) == 1:
            return held.take(encoded.tensor, 0, encoded.tensor.nbytes).clone()
        return _decoded(weight, held, torch.empty(weight.rows, weight.columns, dtype=self._arithmetic.dtype))

    def _place(self, name: str) -> tuple[int, int]:
        tensor = self._checkpoint.weights[name].pieces[0].encoded.tensors[0]
        return tensor.file, tensor.offset

    def _read(self, weight: Weight) -> _Held:
        """The weight's tensors in memory, read unless this thread had the same the last time."""
        tensors = {tensor.name: tensor for piece in weight.pieces for tensor in piece.encoded.tensors}
        held = {}
        for number, info in enumerate(tensors.values()):
            place = f"stored {number}"
            held[info.name] = self._room.take(place, info.nbytes)
            if self._room.holds.get(place) != info.name:
                _read(self._checkpoint.files[info.file], info, held[info.name])
                self._room.holds[place] = info.name
        return _Held(held)


def _decoded(weight: Weight, held: _Held, out: Tensor) -> Tensor:
    done = 0
    for piece in weight.pieces:
        decode_rows(piece.encoded, piece.first, piece.rows, out[done : done + piece.rows], held)
        done += piece.rows
    return out


def _read(file: Path, tensor: TensorInfo, into: Tensor) -> None:
    with file.open("rb", buffering=0) as opened:
        opened.seek(tensor.offset)
        view = memoryview(into.numpy().data)
        while view and (count := opened.readinto(view)):
            view = view[count:]
