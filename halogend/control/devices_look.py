"""Looks at the accelerators of this machine, in a process of its own.

    python -m halogend.control.devices_look --root / [--every 2]     a line of JSON for each look

A driver's library may take seconds, crash, or never come back: that must be nobody else's end. The process
ends when its standard input does.
"""

from __future__ import annotations

import argparse
import select
import subprocess
import sys
from pathlib import Path

import msgspec

from halogend.control import devices_amd
from halogend.control.devices import Look
from halogend.control.devices_nvidia import LIBRARY, Nvml, NvmlError

LIMIT_S = 20.0
"""For one look: without persistence mode a driver wakes its devices up for it."""

_NVIDIA_SIGNS = ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg")


def has_drivers(root: Path) -> bool:
    """Is there anything to look at?"""
    return _has_nvidia(root) or (root / devices_amd.NODES).exists()


def command(root: Path, nvml: str = LIBRARY, every_s: float | None = None) -> list[str]:
    """What to start."""
    words = [sys.executable, "-P", "-m", "halogend.control.devices_look", "--root", str(root), "--nvml", nvml]
    return words if every_s is None else [*words, "--every", str(every_s)]


def take_look(root: Path = Path("/"), nvml: str = LIBRARY) -> Look:
    """One look, waited for. What keeps it from seeing anything is a trouble of the look."""
    if not has_drivers(root):
        return Look()
    try:
        done = subprocess.run(
            command(root, nvml), stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Look(troubles=(f"the drivers did not answer within {LIMIT_S:g} s",))
    except OSError as error:
        return Look(troubles=(f"the drivers could not be asked: {error}",))
    return read(done.stdout) or Look(troubles=(f"the look at the drivers ended with status {done.returncode}",))


def read(line: bytes) -> Look | None:
    """What a line says; None for one that is no look."""
    try:
        return msgspec.json.decode(line, type=Look)
    except msgspec.DecodeError:  # the parent class of what a wrong type is, too
        return None


class Drivers:
    """Those that are there, opened once."""

    def __init__(self, root: Path, nvml: str) -> None:
        self._root = root
        self._troubles: tuple[str, ...] = ()
        self._nvml: Nvml | None = None
        if _has_nvidia(root):
            try:
                self._nvml = Nvml(nvml)
            except NvmlError as error:
                self._troubles = (str(error),)

    def look(self) -> Look:
        troubles = list(self._troubles)
        found = devices_amd.look(self._root)
        try:
            nvidia = () if self._nvml is None else self._nvml.look()
        except NvmlError as error:
            nvidia = ()
            troubles.append(str(error))
        return Look(devices=(*nvidia, *found), troubles=tuple(troubles))


def _has_nvidia(root: Path) -> bool:
    return any((root / sign).exists() for sign in _NVIDIA_SIGNS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m halogend.control.devices_look", description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--nvml", default=LIBRARY)
    parser.add_argument("--every", type=float)
    arguments = parser.parse_args()
    drivers = Drivers(arguments.root, arguments.nvml)
    while True:
        sys.stdout.buffer.write(msgspec.json.encode(drivers.look()) + b"\n")
        sys.stdout.buffer.flush()
        if arguments.every is None:
            return 0
        ended, _, _ = select.select([sys.stdin], [], [], arguments.every)
        if ended:
            return 0


if __name__ == "__main__":
    sys.exit(main())
