"""Memory that was used before, so that nobody's first touch of it is measured.

The host of a virtual machine gives it a page when that is touched first, which takes about ten times as long as all
that the guest does for it; a guest that reports its free pages has them taken away within seconds. Whoever takes such
memory pays. So it is held until the moment from which time is taken.
"""

from __future__ import annotations

import contextlib
import mmap
from pathlib import Path

_PIECE_BYTES = 8 << 20
_MAP_NORESERVE = 0x4000  # Linux; the mmap module has no name for it before Python 3.13
_MEMINFO = Path("/proc/meminfo")


class UsedMemory:
    """So many bytes, or half of what is free where that is less, written to: what is taken after `release` is most
    likely of these."""

    def __init__(self, wanted_bytes: int, meminfo: Path = _MEMINFO) -> None:
        fields = (line.split() for line in meminfo.read_text().splitlines())
        free_bytes = next(int(words[1]) << 10 for words in fields if words[0] == "MemFree:")
        self.nbytes = min(wanted_bytes, free_bytes // 2) // _PIECE_BYTES * _PIECE_BYTES
        self._memory = _written(self.nbytes) if self.nbytes else None

    def release(self) -> None:
        """They are free. Once is enough."""
        if self._memory is not None:
            self._memory.close()


def _written(nbytes: int) -> mmap.mmap:
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    with contextlib.suppress(OSError):  # a kernel without large pages; with them it is given back in a moment
        memory.madvise(mmap.MADV_HUGEPAGE)
    zeros = bytes(_PIECE_BYTES)
    for start in range(0, nbytes, _PIECE_BYTES):
        memory[start : start + _PIECE_BYTES] = zeros
    return memory
