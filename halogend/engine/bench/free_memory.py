"""Free memory that was used before, so that nobody's first touch of it is measured.

The host of a virtual machine gives it a page when that is touched first, which takes about ten times as long as all
that the guest does for it. Whoever takes such memory pays, and whoever comes next finds it.
"""

from __future__ import annotations

import mmap
from pathlib import Path

_PIECE_BYTES = 8 << 20
_MAP_NORESERVE = 0x4000  # Linux; the mmap module has no name for it before Python 3.13
_MEMINFO = Path("/proc/meminfo")


def use_free_memory(wanted_bytes: int, meminfo: Path = _MEMINFO) -> int:
    """So many bytes, or half of what is free where that is less, are written to and free again: what is taken next is
    most likely of these. Returns how many."""
    fields = (line.split() for line in meminfo.read_text().splitlines())
    free_bytes = next(int(words[1]) << 10 for words in fields if words[0] == "MemFree:")
    nbytes = min(wanted_bytes, free_bytes // 2) // _PIECE_BYTES * _PIECE_BYTES
    if nbytes == 0:
        return 0
    zeros = bytes(_PIECE_BYTES)
    with mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE) as memory:
        for start in range(0, nbytes, _PIECE_BYTES):
            memory[start : start + _PIECE_BYTES] = zeros
    return nbytes
