"""How much one API key may ask for: requests a minute, and requests at once.

Counts by the key's name; what a key may is asked of it anew at each request, so that limits change live. A request
counts from its start until its answer has been sent, a stream until its end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from halogend.control.keys import Key
from halogend.control.requests import RequestError

_MINUTE_S = 60.0


@dataclass(slots=True)
class _Bucket:
    """`left` requests may come at once; it fills evenly, up to a minute's worth."""

    left: float
    at: float


class Quotas:
    """Of one listener. Single-threaded: everything runs in the daemon's event loop."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()
        self._buckets: dict[str, _Bucket] = {}

    @contextmanager
    def entered(self, key: Key, now: float) -> Iterator[None]:
        """While one request of the key runs. Raises RequestError when it may not now; then it does not count."""
        if key.max_concurrent is not None and self._running[key.name] >= key.max_concurrent:
            text = f"The API key `{key.name}` has {key.max_concurrent} requests running, which is its limit."
            raise RequestError("too_many_at_once", text, retry_after_s=1)
        self._take(key, now)
        self._running[key.name] += 1
        try:
            yield
        finally:
            self._running[key.name] -= 1
            if not self._running[key.name]:
                del self._running[key.name]

    def _take(self, key: Key, now: float) -> None:
        if key.rpm is None:
            self._buckets.pop(key.name, None)
            return
        rate = key.rpm / _MINUTE_S
        bucket = self._buckets.setdefault(key.name, _Bucket(float(key.rpm), now))
        bucket.left = min(float(key.rpm), bucket.left + rate * (now - bucket.at))
        bucket.at = now
        if bucket.left < 1.0:
            text = f"The API key `{key.name}` may send {key.rpm} requests a minute."
            raise RequestError("rate_limited", text, retry_after_s=max(1, math.ceil((1.0 - bucket.left) / rate)))
        bucket.left -= 1.0
