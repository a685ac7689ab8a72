"""What a change will take of each device: bytes now, at the most on the way, and after.

Pure. Loads go one at a time, in an order that chance may change: several courses are played, and the
highest peak counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from halogend.control.course import Course, Order, Start
from halogend.control.ledger import Holding
from halogend.control.peaks import DeviceForecast, touched
from halogend.control.present import Present
from halogend.control.target import Target


@dataclass(frozen=True, slots=True)
class Forecast:
    """By model: `starts`, what its load takes as it begins; `after`, what it holds in the end; `shrinks`, its old
    pool before and after it gave memory for that; `misfits`, the bytes that others hold when its turn comes and
    there is no room for it, whatever the order."""

    devices: tuple[DeviceForecast, ...]
    starts: Mapping[str, Start]
    after: Mapping[str, Holding]
    shrinks: Mapping[str, tuple[int, int]]
    misfits: Mapping[str, tuple[Target, int]]


def forecast(
    held: Mapping[str, Holding],
    present: Mapping[str, Present],
    wanted: Mapping[str, Target],
    *,
    together: bool = False,
) -> Forecast:
    """`held` is the ledger as it stands; `present` and `wanted` are by model, in the order of a document.
    `together`: nothing switches and nothing is removed before all are ready."""
    plays = [_played(held, present, wanted, replace(order, together=together)) for order in _ORDERS]
    hasty = [_played(held, present, wanted, replace(o, together=together, overtakes=True)) for o in _ORDERS]
    likely, possible = plays[0], [*plays, *(play for play in hasty if not play.misfits)]
    everybody = (*held.values(), *(target.holding for target in wanted.values()))
    devices = sorted({device for each in everybody for device in touched(each)})
    return Forecast(
        devices=tuple(_highest([play.device(each) for play in possible]) for each in devices),
        starts=likely.starts,
        after=likely.after,
        shrinks=likely.shrinks,
        misfits=likely.misfits if all(play.misfits for play in plays) else {},
    )


_ORDERS = tuple(Order(replaced_last, new_last) for replaced_last in (True, False) for new_last in (True, False))


def _played(
    held: Mapping[str, Holding], present: Mapping[str, Present], wanted: Mapping[str, Target], order: Order
) -> Course:
    course = Course(held, present, wanted)
    course.run(order)
    return course


def _highest(forecasts: list[DeviceForecast]) -> DeviceForecast:
    """The first, with the highest peak of all."""
    highest = max(forecasts, key=lambda each: each.peak.total_bytes)
    return replace(forecasts[0], peak=highest.peak, during=highest.during)
