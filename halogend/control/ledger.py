"""Bytes per device and use: what decides whether a load fits.

Every generation's bytes are entered before it starts and leave when its processes have exited.
Free-memory readings decide nothing: two loads that start at once would each take the other's
share for free.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

RESERVE_SHARE = 0.10
LEAST_RESERVE_BYTES = 512 << 20
WORKING_BYTES = 768 << 20  # torch, tokenizer and activations of one generation's two processes


@dataclass(frozen=True, slots=True)
class Holding:
    """What one generation is expected to take. `kv_bytes` is its pool's limit."""

    device: str
    weights_bytes: int
    working_bytes: int
    kv_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.working_bytes + self.kv_bytes


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """`budget_bytes` is what generations may take: memory less reserve and foreign use."""

    id: str
    memory_bytes: int
    reserve_bytes: int
    foreign_bytes: int

    @property
    def budget_bytes(self) -> int:
        return max(0, self.memory_bytes - self.reserve_bytes - self.foreign_bytes)


class Ledger:
    """Single writer: convergence. Keys are generation names such as `chat#3`."""

    def __init__(self) -> None:
        self._held: dict[str, Holding] = {}

    def enter(self, generation: str, holding: Holding) -> None:
        self._held[generation] = holding

    def leave(self, generation: str) -> Holding | None:
        return self._held.pop(generation, None)

    def taken_bytes(self, device: str, besides: Iterable[str] = ()) -> int:
        left_out = set(besides)
        return sum(h.total_bytes for name, h in self._held.items() if h.device == device and name not in left_out)

    def view(self) -> dict[str, dict[str, int | str]]:
        return {
            name: {"device": h.device, "weights": h.weights_bytes, "working": h.working_bytes, "kv": h.kv_bytes}
            for name, h in self._held.items()
        }

    def by_use(self, device: str) -> dict[str, int]:
        held = [h for h in self._held.values() if h.device == device]
        return {
            "weights": sum(h.weights_bytes for h in held),
            "working": sum(h.working_bytes for h in held),
            "kv": sum(h.kv_bytes for h in held),
        }


def host_memory(memory_bytes: int | None, reserve_bytes: int | None, root: Path = Path("/")) -> DeviceMemory:
    """The CPU's memory: the smaller of MemTotal and the control group's limit, unless the document
    says less. Foreign use is what others hold now."""
    total, available = _meminfo(root)
    limit = min([total, *_cgroup_limits(root)])
    memory = min(limit, memory_bytes or limit)
    default_reserve = max(LEAST_RESERVE_BYTES, int(memory * RESERVE_SHARE))
    reserve = default_reserve if reserve_bytes is None else reserve_bytes
    return DeviceMemory("cpu:0", memory, reserve, max(0, total - available) if memory_bytes is None else 0)


def _meminfo(root: Path) -> tuple[int, int]:
    fields = dict(line.split(":", 1) for line in (root / "proc/meminfo").read_text().splitlines())
    return tuple(int(fields[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable"))  # type: ignore[return-value]  # two names, two values


def _cgroup_limits(root: Path) -> list[int]:
    """Every limit up this process's control group path, version 1 and 2."""
    limits = []
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        folder = base / path.lstrip("/")
        for each in [folder, *folder.parents]:
            limits += [int(text) for text in _lines(each / name) if text.isdigit()]
            if each == base:
                break
    return limits


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
