"""Bytes of devices by their use, and the most that was ever held of each.

Pure. Owns no ledger: it looks at one when it is told to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from halogend.config.facts import mapped_bytes
from halogend.control.ledger import Holding, host_side


@dataclass(frozen=True, slots=True)
class Use:
    """Bytes of one device that generations hold. `mapped_bytes` are of files, each once."""

    weights_bytes: int = 0
    working_bytes: int = 0
    kv_bytes: int = 0
    mapped_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.working_bytes + self.kv_bytes + self.mapped_bytes


@dataclass(frozen=True, slots=True)
class DeviceForecast:
    """`during` is the model whose load brings the peak; None where now or after is the most."""

    device: str
    now: Use
    peak: Use
    after: Use
    during: str | None


class Peaks:
    """The most of each device so far, and during what it was. Single writer: the course that is played."""

    def __init__(self) -> None:
        self._most: dict[str, tuple[Use, str | None]] = {}

    def look(self, held: Mapping[str, Holding], during: str | None) -> None:
        """`during` is the model whose load is under way."""
        for device in {device for each in held.values() for device in touched(each)}:
            use = _use(held, device)
            if device not in self._most or use.total_bytes > self._most[device][0].total_bytes:
                self._most[device] = (use, during)

    def of(self, device: str, before: Mapping[str, Holding], after: Mapping[str, Holding]) -> DeviceForecast:
        """With the ledger as it was and as it is left."""
        now, then = _use(before, device), _use(after, device)
        peak, during = self._most.get(device, (Use(), None))
        for each in (now, then):
            if each.total_bytes >= peak.total_bytes:
                peak, during = each, None
        return DeviceForecast(device, now, peak, then, during)


def _use(held: Mapping[str, Holding], device: str) -> Use:
    there = [each for each in held.values() if each.device == device]
    return Use(
        sum(each.weights_bytes for each in there),
        sum(each.working_bytes for each in there) + host_side(held.values(), device),
        sum(each.kv_bytes for each in there),
        mapped_bytes(file for each in there for file in each.mapped),
    )


def touched(holding: Holding) -> tuple[str, ...]:
    """The devices that it takes bytes of."""
    return (holding.device, holding.host) if holding.host_bytes else (holding.device,)
