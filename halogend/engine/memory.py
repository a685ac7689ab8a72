"""What this process takes of the machine's memory, as the kernel counts it, and of a device's, as torch does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch

_SELF = Path("/proc/self")
_FORGET_PEAK = "5"  # proc(5), clear_refs: the peak resident set size begins anew


class Rise(Protocol):
    """How far memory rose above what it is afterwards."""

    def over_now_bytes(self) -> int | None: ...


class Peak:
    """How far anonymous and shared memory rose, while it was `watched`, above what it is afterwards.

    The system tells the highest that resident memory was, with the files that are mapped. So nothing is to be mapped or
    unmapped while it is watched."""

    def __init__(self, proc: Path = _SELF) -> None:
        self._proc = proc
        self._highest_bytes: int | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        try:
            (self._proc / "clear_refs").write_text(_FORGET_PEAK)
            is_known = True
        except OSError:  # a kernel or a sandbox that does not let us
            is_known = False
        yield
        if is_known:
            sizes = _sizes(self._proc)
            highest_bytes = sizes.get("VmHWM", 0) - sizes.get("RssFile", 0)
            self._highest_bytes = max(self._highest_bytes or 0, highest_bytes)

    def over_now_bytes(self) -> int | None:
        """The peak less what is there now; None where the system does not say."""
        if self._highest_bytes is None:
            return None
        sizes = _sizes(self._proc)
        return max(0, self._highest_bytes - (sizes.get("VmRSS", 0) - sizes.get("RssFile", 0)))


class DevicePeak:
    """How far a device's memory rose above what weights and pool take there. Begins when it is made. What torch has
    once had it keeps, so it stays taken."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._held_bytes = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Or not: torch counts."""
        yield

    def over_now_bytes(self) -> int | None:
        return max(0, torch.cuda.max_memory_reserved(self._device) - self._held_bytes)


def _sizes(proc: Path) -> dict[str, int]:
    fields = (line.split() for line in (proc / "status").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) << 10 for words in fields if words[2:] == ["kB"]}
