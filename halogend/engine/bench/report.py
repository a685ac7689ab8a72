"""How measurements speak: lines, columns, sizes that are given, and how far a long work is."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterable

_UNITS = {"MIB": 1 << 20, "GIB": 1 << 30}


def say(text: str, *, to_stderr: bool = False) -> None:
    (sys.stderr if to_stderr else sys.stdout).write(text + "\n")


def columns(cells: Iterable[str]) -> str:
    return "".join(f"{cell:>13}" for cell in cells)


def size(text: str) -> int:
    """Bytes of an argument such as 4GiB."""
    match = re.fullmatch(r"(\d+)(MiB|GiB)", text, re.IGNORECASE)
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 4GiB or 300MiB")
    return int(match[1]) * _UNITS[match[2].upper()]


class Progress:
    """Says how far a long work is: one line that changes on a terminal, plain lines elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shows = sys.stderr.isatty()
        self._every_s = 0.2 if self._shows else 10.0
        self._began = self._told = time.monotonic()

    def report(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._told < self._every_s:
            return
        self._told = now
        rate = done / (now - self._began)
        text = f"{self._what}: {done >> 20} of {total >> 20} MiB, {rate / (1 << 20):.0f} MiB/s"
        text += f", {(total - done) / rate:.0f} s left"
        sys.stderr.write(f"\r{text}  " if self._shows else f"{text}\n")
        sys.stderr.flush()

    def end(self) -> None:
        if self._shows and self._told > self._began:
            sys.stderr.write("\n")
