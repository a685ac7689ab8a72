"""What the last self-test found of links, kept where the daemon keeps its state: its plans repeat what is slow.

One file, written whole by the command and read by the daemon; nobody else's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

import msgspec

FILE = "selftest.json"
LEAST_SHARE = 0.7
"""Of what a link's data sheet says: one that carries less is slow, or is not the link it is taken for."""

_MAX_BYTES = 1 << 20


class LinkResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured from one end to the other. An end is a device's id, or host; `nominal_bytes_per_s` is None
    where no driver tells it."""

    source: str
    target: str
    kind: str
    bytes_per_s: float
    nominal_bytes_per_s: float | None

    @property
    def share(self) -> float | None:
        return None if not self.nominal_bytes_per_s else self.bytes_per_s / self.nominal_bytes_per_s

    @property
    def is_slow(self) -> bool:
        return self.share is not None and self.share < LEAST_SHARE

    @property
    def words(self) -> str:
        """For people."""
        nominal = self.nominal_bytes_per_s or 0.0
        carried = f"{self.bytes_per_s / 1e9:.1f} of {nominal / 1e9:.1f} GB/s"
        return f"the link {self.source} -> {self.target} ({self.kind}) carries {carried}"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """`at` is in epoch seconds."""

    at: float
    links: tuple[LinkResult, ...] = ()

    def warnings(self, devices: Collection[str]) -> list[str]:
        """Of links that end at one of these devices."""
        slow = [each for each in self.links if each.is_slow and {each.source, each.target} & set(devices)]
        return [f"{each.words}, under {LEAST_SHARE:.0%} (halogend selftest)" for each in slow]


def read_record(folder: Path | None) -> Record | None:
    """None where there is none, or none that can be read: it is a hint, and no document's fault."""
    if folder is None:
        return None
    try:
        with (folder / FILE).open("rb") as file:
            return msgspec.json.decode(file.read(_MAX_BYTES), type=Record)
    except (OSError, msgspec.DecodeError):
        return None


def write_record(folder: Path, record: Record) -> None:
    """The old one or the new one is there at every moment. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = folder / f".{FILE}.{os.getpid()}"
    try:
        beside.write_bytes(msgspec.json.encode(record))
        beside.replace(folder / FILE)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
