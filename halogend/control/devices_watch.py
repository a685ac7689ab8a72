"""How accelerators are: looked at once a second, told to metrics, status and events, and kept under their limits.

    drivers -> devices_look (a process) -> DeviceWatch -> SetRest to each engine there

Nothing is ever slowed down silently: the rest is a metric, a line of the status and an event.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import structlog

from halogend.config.facts import DeviceFacts
from halogend.config.schema import Document
from halogend.control.devices import Look, Seen, named
from halogend.control.devices_look import LIMIT_S, command, read
from halogend.control.devices_nvidia import LIBRARY
from halogend.control.house import House
from halogend.control.machine import Machine
from halogend.control.replica import Replica
from halogend.control.thermal import Governor, Stated, limit_c

_log = structlog.get_logger()
EVERY_S = 1.0
_AGAIN_S = 10.0
_LONGEST_S = 5.0  # that one look counts for, however late it is
_MAX_LINE_BYTES = 1 << 20
_GONE_S = 1.0


class DeviceWatch:
    """Single writer of what engines rest. `document` is the accepted one, None before the first."""

    def __init__(
        self,
        machine: Machine,
        house: House,
        document: Callable[[], Document | None],
        nvml: str = LIBRARY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._accelerators = {each.id: each for each in machine.devices if each.is_accelerator}
        self._house = house
        self._document = document
        self._nvml = nvml
        self._clock = clock
        self._seen = named(machine.look)
        self._troubles = machine.look.troubles
        self._governors = {device: Governor() for device in self._accelerators}
        self._at = clock()

    async def run(self) -> None:
        """Until it is cancelled; at once where there is nothing to watch."""
        for trouble in self._troubles:
            _log.warning("devices_not_seen", reason=trouble)
        while self._accelerators:
            with contextlib.suppress(TimeoutError, OSError):
                await self._follow()
            _log.warning("devices_not_told", again_s=_AGAIN_S)
            self._heed(Look(troubles=(f"the drivers say nothing; they are asked again every {_AGAIN_S:g} s",)))
            await asyncio.sleep(_AGAIN_S)

    async def _follow(self) -> None:
        """What one process says until it ends. Raises TimeoutError when it stays silent."""
        words = command(self._house.host.root, self._nvml, EVERY_S)
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_MAX_LINE_BYTES
        )
        try:
            while process.stdout is not None:
                async with asyncio.timeout(LIMIT_S):
                    line = await process.stdout.readline()
                if not line:
                    return
                look = read(line)
                if look is not None:
                    self._heed(look)
        finally:
            if process.returncode is None:
                process.kill()
            await asyncio.wait([asyncio.ensure_future(process.wait())], timeout=_GONE_S)

    def _heed(self, look: Look) -> None:
        try:
            self.take(look)
        except Exception:  # noqa: BLE001  whatever is wrong with one look, the next may find a hot device
            _log.exception("look_failed")

    def take(self, look: Look) -> None:
        """Devices as they are now: engines are told what to rest from here on."""
        now = self._clock()
        seconds, self._at = min(_LONGEST_S, now - self._at), now
        self._seen, self._troubles = named(look), look.troubles
        for device in self._accelerators.values():
            seen, governor = self._seen.get(device.id), self._governors[device.id]
            before = governor.rest
            limit = self._limit_c(device)
            rest = governor.feel(None if seen is None else seen.temperature_c, limit, seconds)
            for replica in self._replicas(device.id):
                replica.set_rest(rest)
            self._house.metrics.device(device.id, _measures(seen, limit, rest))
            if (before > 0) != (rest > 0):
                self._tell(device, seen, limit, rest)

    def view(self) -> dict[str, dict[str, Any]]:
        """By device, JSON-ready."""
        return {device.id: self._view(device) for device in self._accelerators.values()}

    def troubles(self) -> list[str]:
        """What keeps devices from being seen."""
        return list(self._troubles)

    def _view(self, device: DeviceFacts) -> dict[str, Any]:
        seen = self._seen.get(device.id)
        told = {} if seen is None else msgspec.to_builtins(seen)
        return {
            "names": [device.id, *device.aliases],
            "name": device.name,
            "product": device.product or None,
            "arch": device.arch,
            "unusable": device.unusable or told.get("trouble") or None,
            "is_told": seen is not None,
            "used_bytes": told.get("used_bytes"),
            "temperature_c": told.get("temperature_c"),
            "limit_c": self._limit_c(device),
            "rest": round(self._governors[device.id].rest, 3),
            "clock_mhz": told.get("clock_mhz"),
            "memory_clock_mhz": told.get("memory_clock_mhz"),
            "power_w": told.get("power_w"),
            "links": told.get("links", []),
        }

    def _limit_c(self, device: DeviceFacts) -> float | None:
        document = self._document()
        entries = () if document is None else document.devices
        names = (device.id, *device.aliases)
        stated: Stated = next((each.thermal for each in entries if each.id in names), "auto")
        return limit_c(stated, device)

    def _replicas(self, device: str) -> Iterator[Replica]:
        for unit in self._house.units.values():
            for generation in (*unit.generations, unit.loading):
                if generation is not None:
                    yield from (each for each in generation.everybody if each.spec.device == device)

    def _tell(self, device: DeviceFacts, seen: Seen | None, limit: float | None, rest: float) -> None:
        facts = {"device": device.id, "temperature_c": seen and seen.temperature_c, "limit_c": limit}
        if rest:
            _log.warning("device_is_hot", **facts)
        else:
            _log.info("device_is_cool", **facts)
        self._house.events.publish("device", state="hot" if rest else "cool", rest=round(rest, 3), **facts)


def _measures(seen: Seen | None, limit: float | None, rest: float) -> dict[str, float | None]:
    """By metric; None: not told."""
    clock_mhz = None if seen is None else seen.clock_mhz
    return {
        "device_temperature_celsius": None if seen is None else seen.temperature_c,
        "device_temperature_limit_celsius": limit,
        "device_rest_ratio": rest,
        "device_clock_hertz": None if clock_mhz is None else clock_mhz * 1e6,
        "device_power_watts": None if seen is None else seen.power_w,
        "device_memory_used_bytes": None if seen is None else seen.used_bytes,
    }
