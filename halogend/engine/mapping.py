"""A checkpoint's files in memory for as long as the model lives: weights that are used where they lie.

The pages are the system's: two processes that map one file share them, and what is not looked at may go and
come again. They cannot be written: a write would end the process, not change a weight.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from halogend.checkpoint.errors import FILE_UNREADABLE, TRUNCATED, CheckpointError
from halogend.checkpoint.tensor_table import TensorInfo

_MAP_NORESERVE = 0x4000  # Linux; the mmap module has no name for it before Python 3.13
_POPULATE_READ = 22  # madvise(2): MADV_POPULATE_READ, since Linux 5.14; nor for this
_GONE = frozenset({errno.EFAULT, errno.EIO})  # where touching the page would end the process


class WeightMap:
    """Those of the `files` with these `numbers`, mapped whole. A view keeps its file mapped, and nothing else does.
    Safe from several threads. Raises CheckpointError for a file that cannot be mapped."""

    def __init__(self, files: Sequence[Path], descriptors: Sequence[int], numbers: Iterable[int]) -> None:
        self._files = files
        self._libc = ctypes.CDLL(None, use_errno=True)  # whose calls let other threads run meanwhile
        for call in (self._libc.mprotect, self._libc.madvise):
            call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._views = {number: self._mapped(files[number], descriptors[number]) for number in numbers}

    def view(self, tensor: TensorInfo) -> Tensor:
        """The tensor's bytes, uint8. Raises CheckpointError where the file ends before them."""
        whole, end = self._views[tensor.file], tensor.offset + tensor.nbytes
        if end > len(whole):
            raise self._cut_short(tensor)
        return whole[tensor.offset : end]

    def populate(self, tensor: TensorInfo, start: int, nbytes: int) -> None:
        """Reads these bytes of the tensor where they were not read yet, and makes them usable without another look
        at the system. Raises CheckpointError where they cannot be read any more."""
        view = self.view(tensor)[start : start + nbytes]
        begin = view.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
        if self._libc.madvise(begin, view.data_ptr() + nbytes - begin, _POPULATE_READ) == 0:
            return
        if ctypes.get_errno() in _GONE:
            raise self._cut_short(tensor)
        view[:: mmap.PAGESIZE].sum()  # an older kernel

    def _cut_short(self, tensor: TensorInfo) -> CheckpointError:
        message = f"{self._files[tensor.file]}: the file ends inside tensor {tensor.name!r}; was it cut short?"
        return CheckpointError(TRUNCATED, message)

    def _mapped(self, path: Path, descriptor: int) -> Tensor:
        """As if to be written, without which torch takes no memory, and then protected from it."""
        flags, access = mmap.MAP_PRIVATE | _MAP_NORESERVE, mmap.PROT_READ | mmap.PROT_WRITE
        try:
            view = torch.frombuffer(mmap.mmap(descriptor, 0, flags=flags, prot=access), dtype=torch.uint8)
            self._protect(view)
        except OSError as error:
            raise CheckpointError(FILE_UNREADABLE, f"{path}: cannot be mapped: {error.strerror}") from error
        return view

    def _protect(self, view: Tensor) -> None:
        """Raises OSError."""
        if self._libc.mprotect(view.data_ptr(), view.nbytes, mmap.PROT_READ) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
