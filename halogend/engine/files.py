"""The bytes of a checkpoint's files while it is loaded.

GGUF files are read: a mapped file that somebody truncates kills the process. The tensors of v2 files and
Hugging Face directories are taken where they lie, from mapped files, whose pages are given back as
soon as the next are taken: nothing of this stays mapped after the load, and what was read does not add to
what is held.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from halogend.checkpoint.checkpoint import Checkpoint, open_checkpoint
from halogend.checkpoint.errors import FILE_UNREADABLE, TRUNCATED, CheckpointError
from halogend.checkpoint.tensor_table import TensorInfo
from halogend.engine.codecs import ByteSource

Bump = Callable[[], None]
_MAP_NORESERVE = 0x4000  # Linux; the mmap module has no name for it before Python 3.13
_PIECE_BYTES = 8 << 20  # read at a time


@contextmanager
def open_files(checkpoint: Checkpoint, bump: Bump) -> Iterator[FileBytes]:
    """`bump` is called for each few MiB taken. Raises CheckpointError if the files are not those that `checkpoint`
    describes, and at the end if one is not what it was at the beginning."""
    with ExitStack() as stack:
        descriptors = [_open(path, stack) for path in checkpoint.files]
        again = open_checkpoint(checkpoint.path, surplus=checkpoint.surplus)
        if again.digest != checkpoint.digest:  # replaced before it was opened
            raise _changed(checkpoint.path)
        source: ReadBytes | MappedBytes
        if checkpoint.format == "gguf":
            source = ReadBytes(checkpoint.files, descriptors, bump)
        else:
            source = MappedBytes(checkpoint.files, descriptors, bump)
            stack.callback(source.close)
        yield source
        source.check()


def _changed(path: Path) -> CheckpointError:
    return CheckpointError(FILE_UNREADABLE, f"{path}: changed while it was loaded; load it again")


def _open(path: Path, stack: ExitStack) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CheckpointError(FILE_UNREADABLE, f"{path}: cannot be read: {error.strerror}") from error
    stack.callback(os.close, descriptor)
    return descriptor


def _fingerprint(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


@dataclass
class _Buffers(threading.local):
    """Each loading thread's own; it grows to the largest piece."""

    buffer: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))


class FileBytes(ByteSource, Protocol):
    """A `ByteSource` that is told when what it gave is no longer looked at. `descriptors` are of the files."""

    @property
    def descriptors(self) -> Sequence[int]: ...

    def release(self) -> None:
        """Whatever this thread took may go."""

    def copy(self, tensor: TensorInfo, advance: Callable[[int], None]) -> Tensor:
        """All of the tensor's bytes, uint8, in memory of their own; `advance` is told them as they come. Raises
        CheckpointError as `take` does."""
        ...

    def check(self) -> None:
        """Raises CheckpointError if a file is not what it was at the beginning."""
        ...


class _OpenFiles:
    """How bytes of open files come into memory that is there. `bump` is called for each piece. The beginning, for
    `check`, is when this is made."""

    def __init__(self, files: Sequence[Path], descriptors: Sequence[int], bump: Bump) -> None:
        self._files = files
        self.descriptors = descriptors
        self._bump = bump
        self._prints = [_fingerprint(descriptor) for descriptor in descriptors]

    def check(self) -> None:
        for path, descriptor, print_ in zip(self._files, self.descriptors, self._prints, strict=True):
            if _fingerprint(descriptor) != print_:
                raise _changed(path)

    def copy(self, tensor: TensorInfo, advance: Callable[[int], None]) -> Tensor:
        raw = torch.empty(tensor.nbytes, dtype=torch.uint8)
        for start in range(0, tensor.nbytes, _PIECE_BYTES):
            piece = raw[start : start + _PIECE_BYTES]
            self._fill(tensor, start, piece)
            advance(len(piece))
        return raw

    def _fill(self, tensor: TensorInfo, start: int, into: Tensor) -> None:
        """From byte `start` of the tensor on. Raises CheckpointError."""
        view = memoryview(into.numpy().data)
        path, offset = self._files[tensor.file], tensor.offset + start
        while view:
            try:
                count = os.preadv(self.descriptors[tensor.file], [view[:_PIECE_BYTES]], offset)
            except OSError as error:
                raise CheckpointError(FILE_UNREADABLE, f"{path}: cannot be read: {error.strerror}") from error
            if count == 0:
                message = f"{path}: the file ends inside tensor {tensor.name!r}; was it cut short?"
                raise CheckpointError(TRUNCATED, message)
            view, offset = view[count:], offset + count
            self._bump()


class ReadBytes(_OpenFiles):
    """A `FileBytes` that reads into one buffer a thread: for encodings that look at one tensor at a time."""

    def __init__(self, files: Sequence[Path], descriptors: Sequence[int], bump: Bump) -> None:
        super().__init__(files, descriptors, bump)
        self._own = _Buffers()

    def take(self, tensor: TensorInfo, start: int, nbytes: int) -> Tensor:
        if self._own.buffer.numel() < nbytes:
            self._own.buffer = torch.empty(nbytes, dtype=torch.uint8)
        taken = self._own.buffer[:nbytes]
        self._fill(tensor, start, taken)
        return taken

    def release(self) -> None:
        """The buffer is used again."""


@dataclass
class _Taken(threading.local):
    """What each loading thread looks at, by tensor: file, first byte, byte after the last."""

    places: dict[str, tuple[int, int, int]] = field(default_factory=dict)


def _map(path: Path, descriptor: int) -> mmap.mmap:
    """Copies on write, and nobody writes: torch takes no memory that cannot be written. Nothing is put aside
    for such copies."""
    flags, access = mmap.MAP_PRIVATE | _MAP_NORESERVE, mmap.PROT_READ | mmap.PROT_WRITE
    try:
        return mmap.mmap(descriptor, 0, flags=flags, prot=access)
    except OSError as error:
        raise CheckpointError(FILE_UNREADABLE, f"{path}: cannot be mapped: {error.strerror}") from error


class MappedBytes(_OpenFiles):
    """A `FileBytes` over mapped files. Pages are given back when a thread takes something else of the
    same tensor, or releases all."""

    def __init__(self, files: Sequence[Path], descriptors: Sequence[int], bump: Bump) -> None:
        super().__init__(files, descriptors, bump)
        self._taken = _Taken()
        self._maps = [_map(path, descriptor) for path, descriptor in zip(files, descriptors, strict=True)]
        self._views = [torch.frombuffer(mapped, dtype=torch.uint8) for mapped in self._maps]

    def take(self, tensor: TensorInfo, start: int, nbytes: int) -> Tensor:
        first = tensor.offset + start
        place = (tensor.file, first, first + nbytes)
        last = self._taken.places.get(tensor.name)
        if place != last:
            if last is not None:
                self._give_back(last)
            self._taken.places[tensor.name] = place
            self._check(tensor, place)
            self._bump()
        return self._views[tensor.file][first : first + nbytes]

    def release(self) -> None:
        for place in self._taken.places.values():
            self._give_back(place)
        self._taken.places.clear()

    def close(self) -> None:
        """All pages go; the address range goes with the last tensor that shows it."""
        for mapped in self._maps:
            mapped.madvise(mmap.MADV_DONTNEED)
        self._views.clear()
        self._maps.clear()

    def _check(self, tensor: TensorInfo, place: tuple[int, int, int]) -> None:
        """Touching what lies behind the end of a file that was cut short would kill the process."""
        if os.fstat(self.descriptors[place[0]]).st_size < place[2]:
            message = f"{self._files[place[0]]}: the file ends inside tensor {tensor.name!r}; was it cut short?"
            raise CheckpointError(TRUNCATED, message)

    def _give_back(self, place: tuple[int, int, int]) -> None:
        file, first, end = place
        begin = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
        length = end // mmap.PAGESIZE * mmap.PAGESIZE - begin
        if length > 0:
            self._maps[file].madvise(mmap.MADV_DONTNEED, begin, length)
