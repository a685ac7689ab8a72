"""Bytes per device and use: what decides whether a load fits.

Every generation's bytes are entered before it starts and leave when its processes have exited.
Free-memory readings decide nothing: two loads that start at once would each take the other's
share for free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass


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

    def covering(self, other: Holding) -> Holding:
        """The more of the two in every use: while it is on its way from one to the other."""
        return Holding(
            self.device,
            max(self.weights_bytes, other.weights_bytes),
            max(self.working_bytes, other.working_bytes),
            max(self.kv_bytes, other.kv_bytes),
        )


class Ledger:
    """Single writer: convergence. Keys are generation names such as `chat#3`. `changed` is set,
    and a new event put in its place, whenever bytes were entered or left."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._held: dict[str, Holding] = {}

    def enter(self, generation: str, holding: Holding) -> None:
        self._held[generation] = holding
        self._tell()

    def leave(self, generation: str) -> Holding | None:
        holding = self._held.pop(generation, None)
        self._tell()
        return holding

    def holding(self, generation: str) -> Holding | None:
        return self._held.get(generation)

    def held(self) -> dict[str, Holding]:
        """Everything that is held now, oldest entry first."""
        return dict(self._held)

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

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()
