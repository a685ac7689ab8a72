"""How hot a device may get, and which share of the time its engines rest so that it does not get hotter.

Pure. Who reads sensors and tells engines is `devices_watch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from halogend.config.facts import DeviceFacts

Stated = Literal["auto", "off"] | int

MOST_REST = 0.9
"""Something is always computed: a stream that stands still looks broken, and nine tenths cool any device."""

_OWN_LIMITS_C: Mapping[str, float] = MappingProxyType({"rtx_4090": 78.0})
_BELOW_SLOWDOWN_C = 5.0
_SLACK_C = 2.0  # so far below the limit rest is not given up yet
_RISE = 0.01  # of rest, a degree over the limit and second
_FALL = 0.005  # likewise, a degree under it and the slack
_LEAST_REST = 0.005  # less is none


def limit_c(stated: Stated, device: DeviceFacts) -> float | None:
    """None: it is left to itself. `auto` is 78 degrees on an RTX 4090, elsewhere 5 under the temperature at which
    the device slows down by itself, where that is told."""
    if stated == "off" or not device.is_accelerator:
        return None
    if stated != "auto":
        return float(stated)
    own = _OWN_LIMITS_C.get(device.product)
    if own is None and device.slowdown_c is not None:
        return device.slowdown_c - _BELOW_SLOWDOWN_C
    return own


class Governor:
    """Of one device; an integral controller. `rest` is the share of the time, from 0 to MOST_REST. Single writer: the
    watch."""

    def __init__(self) -> None:
        self.rest = 0.0

    def feel(self, temperature_c: float | None, limit: float | None, seconds: float) -> float:
        """The rest from now on. `seconds` since it was asked last; a temperature that is not told changes nothing."""
        if limit is None:
            self.rest = 0.0
        elif temperature_c is not None:
            over = temperature_c - limit
            step = _RISE * max(0.0, over) + _FALL * min(0.0, over + _SLACK_C)
            self.rest = min(MOST_REST, max(0.0, self.rest + step * seconds))
            if self.rest < _LEAST_REST:
                self.rest = 0.0
        return self.rest
