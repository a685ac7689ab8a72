"""Folders that look like /proc and /sys of machines with accelerators, and a library that answers like NVML."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from halogend.config.facts import DeviceFacts
from halogend.control.devices import HOST, Link, Seen

GIB = 1 << 30
NODES = "sys/class/kfd/kfd/topology/nodes"

STRIX_HALO = {
    "properties": {"simd_count": 80, "gfx_target_version": 110501, "device_id": 0x1586, "location_id": 0xC100},
    "mem_info_vram_total": GIB // 2,
    "mem_info_vram_used": 0,
    "mem_info_gtt_total": 96 * GIB,
    "mem_info_gtt_used": GIB,
    "unique_id": "0000000000000000",
    "sensors": {"edge": (51_000, None)},
}
MI300X = {
    "properties": {"simd_count": 1216, "gfx_target_version": 90402, "device_id": 0x74A1, "location_id": 0x0500},
    "mem_info_vram_total": 192 * GIB,
    "mem_info_vram_used": 2 * GIB,
    "mem_info_gtt_total": 500 * GIB,
    "mem_info_gtt_used": 0,
    "unique_id": "8f3d1b2a5c4e7f60",
    "max_link_speed": "32.0 GT/s PCIe",
    "max_link_width": 16,
    "pp_dpm_sclk": "0: 133Mhz\n1: 2100Mhz *\n",
    "sensors": {"junction": (71_000, 100_000), "mem": (60_000, 105_000)},
    "power1_average": 310_000_000,
}


def write(root: Path, files: Mapping[str, object]) -> None:
    for name, value in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(value))


def host(root: Path, memory: int = 128 * GIB, available: int = 120 * GIB) -> None:
    text = f"MemTotal: {memory >> 10} kB\nMemAvailable: {available >> 10} kB\n"
    write(root, {"proc/meminfo": text, "proc/cpuinfo": "flags : fpu avx512_bf16\n"})
    write(root, {f"{NODES}/0/properties": "cpu_cores_count 16\nsimd_count 0\ngfx_target_version 0\n"})


def amd(root: Path, devices: Sequence[Mapping[str, object]], xgmi_mb: int = 0) -> None:
    """One node of the topology each, after that of the processor; with `xgmi_mb` all are linked to all."""
    for place, device in enumerate(devices):
        node, home = f"{NODES}/{place + 1}", f"sys/class/drm/renderD{128 + place}/device"
        given = dict(device)
        properties = {"drm_render_minor": 128 + place, **dict(given.pop("properties"))}  # type: ignore[call-overload]
        properties["location_id"] += place << 8
        sensors: Mapping[str, tuple[int, int | None]] = given.pop("sensors", {})  # type: ignore[assignment]
        power = {f"{home}/hwmon/hwmon{place}/{key}": given.pop(key) for key in ("power1_average",) if key in given}
        write(root, {f"{node}/properties": "".join(f"{key} {value}\n" for key, value in properties.items())})
        write(root, {f"{home}/{name}": value for name, value in given.items()} | power)
        for number, (label, (now, critical)) in enumerate(sensors.items(), 1):
            stem = f"{home}/hwmon/hwmon{place}/temp{number}"
            write(root, {f"{stem}_input": now, f"{stem}_label": label})
            write(root, {} if critical is None else {f"{stem}_crit": critical})
        for other in range(len(devices)):
            link = f"type 11\nnode_to {other + 1}\nmax_bandwidth {xgmi_mb}\n"
            write(root, {f"{node}/io_links/{other}/properties": link} if xgmi_mb and other != place else {})


_NVML = Path(__file__).with_name("nvml.c")


def nvml(folder: Path) -> Path:
    """The library: an RTX 4090 and two H100. What it says is in files of `folder` named temperature, mig, count,
    memory and init; where there is none, all is well."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libnvidia-ml.so.1"
    words = ["cc", "-shared", "-fPIC", "-w", f'-DFOLDER="{folder}"', "-o", str(library), str(_NVML)]
    subprocess.run(words, check=True)
    return library


def nvidia(root: Path) -> None:
    """The driver's sign."""
    write(root, {"proc/driver/nvidia/version": "NVRM version: 570.0\n"})


def accelerator(**facts: object) -> DeviceFacts:
    """An H100 as a machine has it."""
    known: dict[str, object] = {
        "id": "cuda:0",
        "memory_bytes": 8 * GIB,
        "kind": "cuda",
        "name": "NVIDIA H100 80GB HBM3",
        "product": "h100",
        "arch": "sm_90",
        "address": "GPU-0000-0",
        "aliases": ("h100:0",),
        "slowdown_c": 92.0,
    }
    return DeviceFacts(**(known | facts))  # type: ignore[arg-type]  # fields of several types


def seen(temperature_c: float | None, number: int = 0) -> Seen:
    """The same as its driver shows it."""
    return Seen(
        kind="cuda",
        number=number,
        name="NVIDIA H100 80GB HBM3",
        arch="sm_90",
        address=f"GPU-0000-{number}",
        bus=f"0000:0{number + 1}:00.0",
        memory_bytes=8 * GIB,
        used_bytes=GIB,
        temperature_c=temperature_c,
        slowdown_c=92.0,
        clock_mhz=1980,
        links=(Link(kind="pcie", to=HOST, detail="gen 5 x16", bytes_per_s=63e9),),
    )
