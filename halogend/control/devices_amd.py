"""AMD's devices, as the kernel shows them in sysfs: the compute topology, the graphics device, its sensors.

Sources: the amdgpu and amdkfd documentation of the Linux kernel. Reads files and nothing else; the root of the
file system is a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from halogend.control.devices import HOST, Link, Seen

NODES = Path("sys/class/kfd/kfd/topology/nodes")

_XGMI = "11"  # the type of an io_link
# Graphics parts of processors: what little memory they have is cut off the host's, the rest they borrow.
_IN_PROCESSORS = ("gfx902", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036", "gfx1103", "gfx1150", "gfx1151")
# By transfers: bytes a second and lane, after the encoding.
_PCIE_LANE_BYTES_PER_S = {
    "2.5": 0.25e9,
    "5.0": 0.5e9,
    "8.0": 0.985e9,
    "16.0": 1.969e9,
    "32.0": 3.938e9,
    "64.0": 7.563e9,
}
Properties = Mapping[str, str]


def look(root: Path) -> tuple[Seen, ...]:
    """Every device that computes, in the topology's order, which is that of the runtime."""
    nodes = {int(path.name): _properties(path / "properties") for path in _numbered(root / NODES)}
    devices = {node: each for node, each in nodes.items() if int(each.get("simd_count", 0)) > 0 and _arch(each)}
    buses = {node: _bus(each) for node, each in devices.items()}
    return tuple(
        _seen(root, number, devices[node], tuple(_peers(root, node, buses))) for number, node in enumerate(devices)
    )


def _seen(root: Path, number: int, node: Properties, peers: tuple[Link, ...]) -> Seen:
    home = root / f"sys/class/drm/renderD{node.get('drm_render_minor', '')}/device"
    arch = _arch(node)
    own, own_used = (_whole(home / f"mem_info_vram_{what}") for what in ("total", "used"))
    host, host_used = (_whole(home / f"mem_info_gtt_{what}") for what in ("total", "used"))
    # The kernel takes what a process wants from the larger of the two (amdgpu, since Linux 6.12).
    borrows = arch in _IN_PROCESSORS and (host or 0) > (own or 0)
    sensors = _sensors(home)
    temperature, critical = sensors.get("junction") or sensors.get("edge") or (None, None)
    power = _first(home, "power1_average", "power1_input")
    unique = _text(home / "unique_id")
    return Seen(
        kind="rocm",
        number=number,
        name=_text(home / "product_name") or f"an AMD device ({arch})",
        arch=arch,
        address=f"GPU-{unique}" if unique.strip("0") else str(number),
        bus=_bus(node),
        memory_bytes=(host if borrows else own) or 0,
        used_bytes=(host_used if borrows else own_used) or 0,
        host_bytes=(host or 0) if borrows else 0,
        pci_id=int(node.get("device_id", 0)),
        temperature_c=temperature,
        slowdown_c=critical,
        clock_mhz=_clock_mhz(home / "pp_dpm_sclk"),
        memory_clock_mhz=_clock_mhz(home / "pp_dpm_mclk"),
        power_w=None if power is None else power / 1e6,
        links=(*_pcie(home), *peers),
        trouble="" if own or host else "its driver tells no memory",
    )


def _arch(node: Properties) -> str:
    """`gfx_target_version` 110501 is gfx1151: the last two digits count in sixteens."""
    version = int(node.get("gfx_target_version", 0))
    major, minor, stepping = version // 10_000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{stepping:x}" if version else ""


def _bus(node: Properties) -> str:
    place, domain = int(node.get("location_id", 0)), int(node.get("domain", 0))
    return f"{domain:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"


def _pcie(home: Path) -> Iterator[Link]:
    speed, _, unit = _text(home / "max_link_speed").partition(" ")
    width = _whole(home / "max_link_width")
    lane = _PCIE_LANE_BYTES_PER_S.get(speed)
    if lane and width and unit.startswith("GT/s"):
        generation = list(_PCIE_LANE_BYTES_PER_S).index(speed) + 1
        yield Link(kind="pcie", to=HOST, detail=f"gen {generation} x{width}", bytes_per_s=lane * width)


def _peers(root: Path, node: int, buses: Mapping[int, str]) -> Iterator[Link]:
    """To other devices; a link without a bandwidth goes over another one."""
    for folder in ("io_links", "p2p_links"):
        for path in _numbered(root / NODES / str(node) / folder):
            link = _properties(path / "properties")
            to, megabytes = buses.get(int(link.get("node_to", -1))), int(link.get("max_bandwidth", 0))
            if link.get("type") == _XGMI and to is not None and megabytes:
                yield Link(kind="xgmi", to=to, detail=f"{megabytes / 1000:g} GB/s", bytes_per_s=megabytes * 1e6)


def _sensors(home: Path) -> dict[str, tuple[float, float | None]]:
    """By label: degrees now, and those at which the device slows down, where that is told."""
    found = {}
    for path in sorted(home.glob("hwmon/hwmon*/temp*_input")):
        stem = path.name.removesuffix("_input")
        now, critical = _whole(path), _whole(path.with_name(f"{stem}_crit"))
        if now is not None:
            label = _text(path.with_name(f"{stem}_label")) or "edge"
            found[label] = now / 1000, None if not critical else critical / 1000
    return found


def _first(home: Path, *names: str) -> int | None:
    """Of one of these sensors, the first that is there."""
    paths = (path for name in names for path in home.glob(f"hwmon/hwmon*/{name}"))
    return next((value for path in paths if (value := _whole(path)) is not None), None)


def _clock_mhz(path: Path) -> int | None:
    """`1: 2900Mhz *` is the state that it is in."""
    for line in _text(path).splitlines():
        if line.endswith("*"):
            digits = "".join(each for each in line.partition(":")[2] if each.isdigit())
            return int(digits) if digits else None
    return None


def _properties(path: Path) -> dict[str, str]:
    """All of them are numbers."""
    pairs = (line.split() for line in _text(path).splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _numbered(folder: Path) -> list[Path]:
    try:
        return sorted((each for each in folder.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
    except OSError:
        return []


def _whole(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isascii() and text.lstrip("-").isdigit() else None


def _text(path: Path) -> str:
    """Empty where there is none, or the device is in no state to say."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
