"""What every endpoint is given: the ports, the metrics, and the bounds of patience."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from halogend.api.ports import Router
from halogend.obs.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the applications wait, in seconds."""

    keep_alive_s: float = 10.0  # of silence in a stream, until a comment is sent
    body_s: float = 60.0  # for each further piece of a request's body


@dataclass(frozen=True, slots=True)
class Services:
    """`clock` is monotonic seconds, `wall` epoch seconds."""

    router: Router
    metrics: Metrics
    patience: Patience = field(default_factory=Patience)
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    new_id: Callable[[], str] = lambda: secrets.token_hex(12)
