"""What a listener serves: the application of its kind, behind a guard where anybody could come.

Owns who is asked for a key. Which listener there is, and which keys count, is the business of `listeners`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.types import ASGIApp

from halogend.api.addresses import Address, TcpAddress
from halogend.api.auth import Guard
from halogend.control.keys import Keyring
from halogend.obs.metrics import Metrics


@dataclass(slots=True)
class Ring:
    """What one listener's guard asks. A listener that was left keeps the last one it was given."""

    keyring: Keyring = field(default_factory=Keyring)

    def read(self) -> Keyring:
        return self.keyring


@dataclass(frozen=True, slots=True)
class Applications:
    """Make an ASGI application for a new listener."""

    inference: Callable[[], ASGIApp]
    admin: Callable[[], ASGIApp]

    def guarded(self, name: str, address: Address, ring: Ring, metrics: Metrics) -> ASGIApp:
        """A unix socket's guard is its file mode."""
        if name == "inference":
            names = (socket.gethostname().lower(),)
            return Guard(self.inference(), ring.read, "infer", metrics, names=names)
        if isinstance(address, TcpAddress):
            return Guard(self.admin(), ring.read, "admin", metrics)
        return self.admin()
