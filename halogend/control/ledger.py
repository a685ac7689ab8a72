"""Bytes per device and use: what decides whether a load fits.

Every generation's bytes are entered before it starts and leave when its processes have exited. What a
live change gives back is free when a worker has confirmed it, and not before.
Free-memory readings decide nothing: two loads that start at once would each take the other's
share for free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce

from halogend.config.facts import MappedFile, mapped_bytes
from halogend.config.placement import FIRST_DEVICE


@dataclass(frozen=True, slots=True)
class Holding:
    """What one replica is expected to take of its device. `kv_bytes` is its pool's limit, `mapped` are weights that
    lie in
    mapped files; `weights_bytes` are the others. `host_bytes` its processes take of the host besides, where the device
    has memory of its own: they are in no total of the device, and are counted on `host`, once where that is divided."""

    device: str
    weights_bytes: int
    working_bytes: int
    kv_bytes: int
    mapped: tuple[MappedFile, ...] = ()
    host_bytes: int = 0
    host: str = FIRST_DEVICE

    @property
    def own_bytes(self) -> int:
        """What nobody else could share."""
        return self.weights_bytes + self.working_bytes + self.kv_bytes

    @property
    def mapped_bytes(self) -> int:
        """Of mapped files: whoever maps them too takes none of it again."""
        return mapped_bytes(self.mapped)

    @property
    def total_bytes(self) -> int:
        """What it takes where it is alone."""
        return together((self,))

    def covering(self, other: Holding) -> Holding:
        """The more of the two in every use: while it is on its way from one to the other."""
        return Holding(
            self.device,
            max(self.weights_bytes, other.weights_bytes),
            max(self.working_bytes, other.working_bytes),
            max(self.kv_bytes, other.kv_bytes),
            tuple(dict.fromkeys((*self.mapped, *other.mapped))),
            max(self.host_bytes, other.host_bytes),
            self.host,
        )

    def beside(self, other: Holding) -> Holding:
        """Both together, for people."""
        return Holding(
            f"{self.device}, {other.device}",
            self.weights_bytes + other.weights_bytes,
            self.working_bytes + other.working_bytes,
            self.kv_bytes + other.kv_bytes,
            tuple(dict.fromkeys((*self.mapped, *other.mapped))),
            self.host_bytes + other.host_bytes,
            self.host,
        )


def together(holdings: Iterable[Holding], shared: Iterable[MappedFile] = ()) -> int:
    """Bytes that these take of one memory: a file that several have mapped is there once, and not counted where it
    is `shared` with what is counted elsewhere."""
    held = list(holdings)
    files = mapped_bytes((each for holding in held for each in holding.mapped), shared)
    return sum(each.own_bytes for each in held) + files


def host_side(holdings: Iterable[Holding], device: str) -> int:
    """Bytes that the processes of these take of `device` beside what is held there: of the host's first, that of
    engines on accelerators."""
    return sum(each.host_bytes for each in holdings if each.host == device)


@dataclass(slots=True)
class _Entry:
    """`claims` are live changes that were not confirmed yet, by whatever tells one from another."""

    settled: Holding
    claims: dict[object, Holding] = field(default_factory=dict)

    @property
    def holding(self) -> Holding:
        """The most in every use that it may come to hold before all is confirmed."""
        return reduce(Holding.covering, self.claims.values(), self.settled)


class Ledger:
    """Single writer: convergence. Keys are generation names such as `chat#3`. `changed` is set,
    and a new event put in its place, whenever bytes were entered or left."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._entries: dict[str, _Entry] = {}
        self._standing_by: dict[str, Holding] = {}

    def enter(self, generation: str, holding: Holding) -> None:
        self._entries[generation] = _Entry(holding)
        self._tell()

    def stand_by(self, name: str, holding: Holding) -> None:
        """Whoever holds this ends as soon as somebody else wants the bytes: they are shown, and decide nothing."""
        self._standing_by[name] = holding
        self._tell()

    def claim(self, generation: str, key: object, holding: Holding) -> None:
        """It may hold this too from now on, until the claim is settled or dropped."""
        self._entries[generation].claims[key] = holding
        self._tell()

    def drop(self, generation: str, key: object) -> None:
        """The inverse of `claim`. What is not there any more has nothing to drop."""
        if generation in self._entries:
            self._entries[generation].claims.pop(key, None)
            self._tell()

    def settle(self, generation: str, key: object) -> int:
        """What was claimed is confirmed: it holds that and nothing else. How many bytes came free by it."""
        entry = self._entries.get(generation)
        if entry is None or key not in entry.claims:
            return 0
        before = entry.holding.total_bytes
        entry.settled = entry.claims.pop(key)
        self._tell()
        return before - entry.holding.total_bytes

    def learn(self, generation: str, working_bytes: int, host_bytes: int) -> bool:
        """It was measured: it holds so much beside weights and pool, and what is claimed stays claimed. Was it another
        figure before?"""
        entry = self._entries.get(generation)
        if entry is None or (entry.settled.working_bytes, entry.settled.host_bytes) == (working_bytes, host_bytes):
            return False
        entry.settled = replace(entry.settled, working_bytes=working_bytes, host_bytes=host_bytes)
        self._tell()
        return True

    def leave(self, generation: str) -> Holding | None:
        entry, standing_by = self._entries.pop(generation, None), self._standing_by.pop(generation, None)
        self._tell()
        return standing_by if entry is None else entry.holding

    def holding(self, generation: str) -> Holding | None:
        entry = self._entries.get(generation)
        return None if entry is None else entry.holding

    def held(self) -> dict[str, Holding]:
        """Everything that is held now, oldest entry first, but for what stands by."""
        return {name: entry.holding for name, entry in self._entries.items()}

    def standing_by(self) -> list[Holding]:
        """What gives way to anybody."""
        return list(self._standing_by.values())

    def shown(self) -> dict[str, Holding]:
        """With what stands by."""
        return {**self.held(), **self._standing_by}

    def taken_bytes(self, device: str, besides: Iterable[str] = ()) -> int:
        left_out = set(besides)
        held = [holding for name, holding in self.held().items() if name not in left_out]
        return together(each for each in held if each.device == device) + host_side(held, device)

    def view(self) -> dict[str, dict[str, int | str]]:
        return {
            name: {
                "device": h.device,
                "weights": h.weights_bytes,
                "mapped": h.mapped_bytes,
                "working": h.working_bytes,
                "kv": h.kv_bytes,
                "host": h.host_bytes,
            }
            for name, h in self.shown().items()
        }

    def by_use(self, device: str) -> dict[str, int]:
        held = [h for h in self.held().values() if h.device == device]
        return {
            "weights": sum(h.weights_bytes for h in held),
            "mapped": mapped_bytes(each for h in held for each in h.mapped),
            "working": sum(h.working_bytes for h in held) + host_side(self.held().values(), device),
            "kv": sum(h.kv_bytes for h in held),
            "spare": sum(h.own_bytes for h in self._standing_by.values() if h.device == device),
        }

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()
