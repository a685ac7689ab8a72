"""What this process takes of the machine's memory, as the kernel counts it, and of a device's, as torch does."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch

_SELF = Path("/proc/self")
_FORGET_PEAK = "5"  # proc(5), clear_refs: the peak resident set size begins anew


class Rise(Protocol):
    """How far memory rose above what it is afterwards."""

    def over_now_bytes(self) -> int | None: ...


class Peak:
    """How far resident memory rose above what it is afterwards. Begins when it is made."""

    def __init__(self, proc: Path = _SELF) -> None:
        self._proc = proc
        try:
            (proc / "clear_refs").write_text(_FORGET_PEAK)
            self._is_known = True
        except OSError:  # a kernel or a sandbox that does not let us
            self._is_known = False

    def over_now_bytes(self) -> int | None:
        """The peak since the start less what is resident now; None where the system does not say."""
        if not self._is_known:
            return None
        sizes = _sizes(self._proc)
        return max(0, sizes.get("VmHWM", 0) - sizes.get("VmRSS", 0))


class DevicePeak:
    """How far a device's memory rose above what weights and pool take there. Begins when it is made. What torch has
    once had it keeps, so it stays taken."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._held_bytes = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)

    def over_now_bytes(self) -> int | None:
        return max(0, torch.cuda.max_memory_reserved(self._device) - self._held_bytes)


def _sizes(proc: Path) -> dict[str, int]:
    fields = (line.split() for line in (proc / "status").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) << 10 for words in fields if words[2:] == ["kB"]}
