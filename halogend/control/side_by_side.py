"""A forecast where models have several replicas: each is played as a model of its own, which it is to a device.

Pure. An old and a new replica on one device are one such model, and so follow each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from halogend.control.course import Start
from halogend.control.forecast import Forecast
from halogend.control.ledger import Holding
from halogend.control.peaks import DeviceForecast
from halogend.control.present import Present, returning
from halogend.control.target import Target

_MARK = "\n"  # in no model's name
Pair = tuple[Present | None, Target | None]
T = TypeVar("T", Holding, Start)


@dataclass(frozen=True, slots=True)
class Apart:
    """What `forecast` takes, each replica by a name of its own; that of the first is its model's."""

    present: Mapping[str, Present]
    wanted: Mapping[str, Target]


def apart(present: Mapping[str, Present], wanted: Mapping[str, Target]) -> Apart:
    """In the order of `wanted`."""
    found, targets = {}, {}
    for name in (*wanted, *(name for name in present if name not in wanted)):
        olds = present[name].parts if name in present else ()
        news = wanted[name].parts if name in wanted else ()
        for index, (old, new) in enumerate(_with_leavers(_pairs(olds, news))):
            key = f"{name}{_MARK}{index}" if index else name
            if old is not None:
                found[key] = replace(old, others=())
            if new is not None:
                targets[key] = new
    return Apart(found, targets)


def together(bytes_: Forecast) -> Forecast:
    """By model again: what its replicas hold is added up. Misfits stay apart."""
    return replace(
        bytes_,
        devices=tuple(_named(each) for each in bytes_.devices),
        starts=_summed(bytes_.starts),
        after=_summed(bytes_.after),
    )


def _pairs(olds: Iterable[Present], news: Iterable[Target]) -> list[Pair]:
    """Those on the same device, then the others one by one."""
    left = list(olds)
    pairs: list[Pair] = []
    without = []
    for new in news:
        old = next((each for each in left if each.device == new.holding.device), None)
        if old is None:
            without.append(len(pairs))
        else:
            left.remove(old)
        pairs.append((old, new))
    for index in without[: len(left)]:
        pairs[index] = (left.pop(0), pairs[index][1])
    return [*pairs, *((old, None) for old in left)]


def _with_leavers(pairs: list[Pair]) -> list[Pair]:
    """Where the generation stays that serves, replicas that were to leave it stand at new parts that they do for."""
    there = next((old for old, _ in pairs if old is not None and old.leaving), None)
    if there is None or not any(_stays(old, new) for old, new in pairs):
        return pairs
    found: list[Pair] = []
    taken: set[str] = set()
    for old, new in pairs:
        back = returning(there.leaving, new) if old is None and new is not None else None
        if back is None:
            found.append((old, new))
            continue
        taken.add(back.name)
        found.append((Present(draining=(back.name,), returnable=(back,), device=back.target.device), new))
    rest = replace(there, draining=tuple(name for name in there.draining if name not in taken))
    return [(rest if old is there else old, new) for old, new in found]


def _stays(old: Present | None, new: Target | None) -> bool:
    if old is None or new is None or old.serving is None or old.active is None:
        return False
    return old.active.same_generation(new)


def model_of(key: str) -> str:
    """Whose replica this is."""
    return key.partition(_MARK)[0]


def _named(each: DeviceForecast) -> DeviceForecast:
    return each if each.during is None else replace(each, during=model_of(each.during))


def _summed(parts: Mapping[str, T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for key, part in parts.items():
        before = found.get(model_of(key))
        found[model_of(key)] = part if before is None else before.beside(part)
    return found
