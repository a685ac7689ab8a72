"""Bytes of files, brought into the page cache: they pass through this process and go nowhere.

Nothing is copied where the system lets them pass, and nothing is mapped: what a process has mapped is counted with its
memory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from halogend.checkpoint.tensor_table import TensorInfo
from halogend.engine.files import ReadBytes

_NOWHERE = "/dev/null"
_PIECE_BYTES = 1 << 20  # that are copied at a time, where bytes do not pass


class Passing:
    """Of open `files`, with their `descriptors`. One thread at a time."""

    def __init__(self, files: Sequence[Path], descriptors: Sequence[int]) -> None:
        self.descriptors = descriptors
        self._copies = ReadBytes(files, descriptors, lambda: None)

    def read(self, tensor: TensorInfo, start: int, nbytes: int) -> None:
        """These bytes of the tensor are in the page cache. Raises CheckpointError where they cannot be read."""
        passed = _pass(self.descriptors[tensor.file], tensor.offset + start, nbytes)
        for first in range(start + passed, start + nbytes, _PIECE_BYTES):
            self._copies.take(tensor, first, min(_PIECE_BYTES, start + nbytes - first))


def _pass(descriptor: int, offset: int, nbytes: int) -> int:
    """How many of the bytes did: all, unless the file ends before them, they cannot be read, or its system does not
    know how (sendfile(2))."""
    passed = 0
    try:
        nowhere = os.open(_NOWHERE, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        while passed < nbytes and (count := os.sendfile(nowhere, descriptor, offset + passed, nbytes - passed)):
            passed += count
    except OSError:
        pass  # whoever reads them otherwise learns why
    finally:
        os.close(nowhere)
    return passed
