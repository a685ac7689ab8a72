"""What this machine has, looked at once when the daemon starts.

Memory is the smaller of MemTotal and the limits of the control groups above us; foreign use is what
others held before we started anything. Accelerators are looked at through their drivers, in a process of its
own. The root of the file system is a parameter, so that every kind of machine can be described by a folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from halogend.config.facts import DeviceFacts, reserve_bytes
from halogend.config.placement import divided, is_processor
from halogend.config.schema import Document
from halogend.control.builds import torch_kinds
from halogend.control.devices import Look, facts_of
from halogend.control.devices_look import take_look
from halogend.obs.processor import has_bf16

_VISIBLE = MappingProxyType({"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "ROCR_VISIBLE_DEVICES"})


@dataclass(frozen=True, slots=True)
class Machine:
    """`cores` are those this process may use; `has_bf16`: the processor multiplies bf16 natively. `devices` are in
    order of choice; `look` is what the drivers showed of accelerators. `kernel_cache` is the folder of compiled
    kernels where a document names none; empty: there is no place for one."""

    cores: int
    has_bf16: bool
    devices: tuple[DeviceFacts, ...]
    look: Look = field(default_factory=Look)
    kernel_cache: str = ""

    def as_divided(self, document: Document) -> Machine:
        """With the devices that a document makes of it."""
        return replace(self, devices=divided(document, self.devices))

    @property
    def host(self) -> DeviceFacts | None:
        """The processor and its memory: the first device that is one."""
        return next((each for each in self.devices if is_processor(each.id)), None)

    def device(self, device_id: str) -> DeviceFacts | None:
        """By its id or another of its names."""
        return next((each for each in self.devices if device_id in (each.id, *each.aliases)), None)

    def pins(self, device_id: str) -> tuple[int, ...]:
        """Cores that a device's engines are held to; none where that would be all of them."""
        cores = next((each.cores for each in self.devices if each.id == device_id), ())
        return () if len(cores) == self.cores else cores

    def cores_of(self, device_id: str) -> int:
        """How many a device has: all, where it states none."""
        return next((len(each.cores) for each in self.devices if each.id == device_id), 0) or self.cores

    def compute_of(self, device_id: str) -> str:
        """In what products are computed where nothing is said: bf16 or fp32."""
        device = self.device(device_id)
        return "bf16" if self.has_bf16 or (device is not None and device.is_accelerator) else "fp32"

    def runs_on(self, device_id: str) -> str:
        """What an engine's process calls its device: the only accelerator that it sees, or cpu:0."""
        device = self.device(device_id)
        return f"{device.kind}:0" if device is not None and device.is_accelerator else "cpu:0"

    def environ_of(self, device_id: str) -> dict[str, str]:
        """What makes that so."""
        device = self.device(device_id)
        seen = device.kind if device is not None else ""
        return {name: device.address if device and kind == seen else "" for kind, name in _VISIBLE.items()}


def probe(
    root: Path = Path("/"),
    look: Callable[[Path], Look] = take_look,
    builds: Callable[[], frozenset[str]] = torch_kinds,
) -> Machine:
    """`look` asks the drivers, `builds` the installed torch. Raises OSError where /proc cannot be read."""
    meminfo = _meminfo(root)
    memory = min([meminfo["MemTotal"], *_cgroup_limits(root)])
    cores = tuple(sorted(os.sched_getaffinity(0)))
    cpu = DeviceFacts(
        id="cpu:0",
        memory_bytes=memory,
        reserve_bytes=reserve_bytes("cpu", memory),
        foreign_bytes=max(0, meminfo["MemTotal"] - meminfo["MemAvailable"]),
        aliases=("cpu",),
        cores=cores,
    )
    seen = look(root)
    found = facts_of(seen, cpu, builds()) if seen.devices else ()
    usable, others = [each for each in found if not each.unusable], [each for each in found if each.unusable]
    return Machine(len(cores), has_bf16(root), (*usable, cpu, *others), seen)


def _meminfo(root: Path) -> dict[str, int]:
    fields = (line.split() for line in (root / "proc/meminfo").read_text().splitlines())
    return {name.rstrip(":"): int(value) << 10 for name, value, *_ in fields}


def _cgroup_limits(root: Path) -> list[int]:
    """Every memory limit up this process's control group path: version 1, 2, or both at once. Above
    `memory.high` the kernel holds a group up: nothing may count on more. A path of a namespace that is
    not ours does not lead anywhere; its mount's root does."""
    mounted = root / "sys/fs/cgroup"
    limits: list[int] = []
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            bases, names = [mounted, mounted / "unified"], ["memory.max", "memory.high"]
        elif "memory" in controllers.split(","):
            bases, names = [mounted / "memory"], ["memory.limit_in_bytes"]
        else:
            continue
        parts = [part for part in Path(path.lstrip("/")).parts if part != ".."]
        folders = [base.joinpath(*parts[:depth]) for base in bases for depth in range(len(parts) + 1)]
        texts = [text for folder in folders for name in names for text in _lines(folder / name)]
        limits += [int(text) for text in texts if text.isdigit()]
    return limits


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
