"""The first thing that a daemon's process does, before anything that takes time to import."""

from __future__ import annotations

import os
import signal
from typing import Any


def end_when_told() -> None:
    """Until the daemon takes its signals itself, SIGTERM and SIGINT end the process with 0: nothing was started
    that would have to end in order. SIGHUP asks for what is still to come, the first look at the document."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _end(number: int, frame: Any) -> None:
    """At once: an exception could be lost in the import that it interrupts."""
    os._exit(0)
