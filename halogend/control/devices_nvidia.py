"""NVIDIA's devices, as the driver's management library shows them.

Speaks to libnvidia-ml.so.1 through its C interface (NVML API reference; the structures are those of nvml.h).
Belongs in a process of its own: the library is the driver's, may take seconds and keeps the devices open.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeVar

from halogend.control.devices import HOST, SWITCH, Link, Seen

LIBRARY = "libnvidia-ml.so.1"
_S = TypeVar("_S", bound=ctypes.Structure)

_SENSOR_GPU, _CLOCK_SM, _CLOCK_MEMORY, _THRESHOLD_SLOWDOWN = 0, 1, 2, 1
_FIELD_SLOWDOWN_LIMIT = 194  # NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT: degrees of the margin
_MARGIN_VERSION = 8 | 1 << 24
_NVLINKS = 18
_REMOTE_SWITCH = 2
_ERROR_TEXTS = {
    4: "this user may not ask",
    9: "the driver is not loaded",
    12: "it is not there",
    15: "the device has fallen off its bus",
    18: "driver and library are of two versions",
}

# Bytes a second and lane, after the encoding; of a link by its version as NVML counts them.
_PCIE_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
_NVLINK_BYTES_PER_S = {1: 20e9, 2: 25e9, 3: 25e9, 4: 25e9, 5: 25e9, 6: 25e9, 7: 50e9}


class NvmlError(Exception):
    """The library cannot be used; says why."""


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Pci(ctypes.Structure):
    _fields_ = (
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("device_id", ctypes.c_uint),
        ("subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    )


class _Margin(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint), ("degrees", ctypes.c_int))


class _Field(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency_us", ctypes.c_longlong),
        ("value_type", ctypes.c_uint),
        ("result", ctypes.c_uint),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_int),
    )


class Nvml:
    """The library, initialised. What a device does not tell is None."""

    def __init__(self, path: str = LIBRARY) -> None:
        """Raises NvmlError."""
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise NvmlError(f"{path} cannot be loaded: {error}") from error
        self._check("nvmlInit_v2")

    def look(self) -> tuple[Seen, ...]:
        """Every device, in the order of their buses. Raises NvmlError."""
        count = ctypes.c_uint()
        self._check("nvmlDeviceGetCount_v2", ctypes.byref(count))
        return tuple(self._seen_or_not(number) for number in range(count.value))

    def _seen_or_not(self, number: int) -> Seen:
        """One that does not answer is there all the same, with its number and why."""
        try:
            return self._seen(number)
        except NvmlError as error:
            return Seen(
                kind="cuda",
                number=number,
                name="an NVIDIA device",
                arch="",
                address=str(number),
                bus="",
                memory_bytes=0,
                used_bytes=0,
                trouble=str(error),
            )

    def _seen(self, number: int) -> Seen:
        device = ctypes.c_void_p()
        self._check("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(device))
        memory = self._struct("nvmlDeviceGetMemoryInfo", device, _Memory())
        pci = self._struct("nvmlDeviceGetPciInfo_v3", device, _Pci())
        power_mw = self._number("nvmlDeviceGetPowerUsage", device)
        temperature_c = self._number("nvmlDeviceGetTemperature", device, _SENSOR_GPU)
        return Seen(
            kind="cuda",
            number=number,
            name=self._text("nvmlDeviceGetName", device) or "an NVIDIA device",
            arch=self._arch(device),
            address=self._text("nvmlDeviceGetUUID", device) or str(number),
            bus=_bus(pci),
            memory_bytes=0 if memory is None else memory.total,
            used_bytes=0 if memory is None else memory.total - memory.free,
            pci_id=0 if pci is None else pci.device_id >> 16,
            temperature_c=temperature_c,
            slowdown_c=self._slowdown_c(device, temperature_c),
            clock_mhz=self._number("nvmlDeviceGetClockInfo", device, _CLOCK_SM),
            memory_clock_mhz=self._number("nvmlDeviceGetClockInfo", device, _CLOCK_MEMORY),
            power_w=None if power_mw is None else power_mw / 1000,
            links=tuple(self._links(device)),
            trouble=self._trouble(device, memory),
        )

    def _trouble(self, device: ctypes.c_void_p, memory: _Memory | None) -> str:
        if memory is None:
            return "its driver tells no memory of its own"
        mode, pending = ctypes.c_uint(), ctypes.c_uint()
        asked = self._call("nvmlDeviceGetMigMode", device, ctypes.byref(mode), ctypes.byref(pending))
        return "it is divided into instances (MIG)" if asked == 0 and mode.value else ""

    def _arch(self, device: ctypes.c_void_p) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check("nvmlDeviceGetCudaComputeCapability", device, ctypes.byref(major), ctypes.byref(minor))
        return f"sm_{major.value}{minor.value}"

    def _slowdown_c(self, device: ctypes.c_void_p, temperature_c: int | None) -> float | None:
        """Newer devices tell it as what is left: the margin now, and the margin at which they slow down."""
        stated = self._number("nvmlDeviceGetTemperatureThreshold", device, _THRESHOLD_SLOWDOWN)
        if stated:
            return float(stated)
        margin = _Margin(version=_MARGIN_VERSION)
        field = _Field(id=_FIELD_SLOWDOWN_LIMIT)
        told = self._call("nvmlDeviceGetMarginTemperature", device, ctypes.byref(margin)) == 0
        told = told and self._call("nvmlDeviceGetFieldValues", device, ctypes.c_int(1), ctypes.byref(field)) == 0
        if not told or field.result != 0 or temperature_c is None:
            return None
        return float(temperature_c + margin.degrees - field.value)

    def _links(self, device: ctypes.c_void_p) -> Iterator[Link]:
        generation = self._number("nvmlDeviceGetMaxPcieLinkGeneration", device)
        width = self._number("nvmlDeviceGetMaxPcieLinkWidth", device)
        if generation and width:
            lane = _PCIE_LANE_BYTES_PER_S.get(generation, _PCIE_LANE_BYTES_PER_S[6])
            yield Link(kind="pcie", to=HOST, detail=f"gen {generation} x{width}", bytes_per_s=lane * width)
        peers: Counter[str] = Counter()
        speed = 0.0
        for link in range(_NVLINKS):
            if self._number("nvmlDeviceGetNvLinkState", device, link) != 1:
                continue
            version = self._number("nvmlDeviceGetNvLinkVersion", device, link)
            speed = _NVLINK_BYTES_PER_S.get(version or 0, 0.0)
            peers[self._peer(device, link)] += 1
        for to, count in peers.items():
            yield Link(kind="nvlink", to=to, detail=f"{count} links", bytes_per_s=count * speed)

    def _peer(self, device: ctypes.c_void_p, link: int) -> str:
        if self._number("nvmlDeviceGetNvLinkRemoteDeviceType", device, link) == _REMOTE_SWITCH:
            return SWITCH
        pci = _Pci()
        asked = self._call("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, ctypes.c_uint(link), ctypes.byref(pci))
        return _bus(pci) if asked == 0 else SWITCH

    # --- calls ----------------------------------------------------------------------------------

    def _number(self, function: str, device: ctypes.c_void_p, *which: int) -> int | None:
        value = ctypes.c_uint()
        result = self._call(function, device, *map(ctypes.c_uint, which), ctypes.byref(value))
        return value.value if result == 0 else None

    def _text(self, function: str, device: ctypes.c_void_p) -> str:
        buffer = ctypes.create_string_buffer(96)
        result = self._call(function, device, buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode(errors="replace") if result == 0 else ""

    def _struct(self, function: str, device: ctypes.c_void_p, value: _S) -> _S | None:
        return value if self._call(function, device, ctypes.byref(value)) == 0 else None

    def _call(self, function: str, *arguments: Any) -> int:
        """Its result; that of a function that this library has not is -1."""
        found = getattr(self._library, function, None)
        return -1 if found is None else int(found(*arguments))

    def _check(self, function: str, *arguments: Any) -> None:
        result = self._call(function, *arguments)
        if result:
            why = _ERROR_TEXTS.get(result, f"result {result}")
            raise NvmlError(f"NVIDIA's management library says no: {why} ({function})")


def _bus(pci: _Pci | None) -> str:
    """As sysfs spells it: 0000:c1:00.0."""
    if pci is None:
        return ""
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"
