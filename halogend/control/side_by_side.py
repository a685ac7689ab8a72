"""A forecast where models have several replicas: each is played as a model of its own, which it is to a device.

Pure. An old and a new replica on one device are one such model, and so follow each other.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from halogend.control.course import Start
from halogend.control.forecast import Forecast
from halogend.control.ledger import Holding
from halogend.control.peaks import DeviceForecast
from halogend.control.present import Present, Returnable, returning, returning_there
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
        for index, (old, new) in enumerate(_pairs(olds, news)):
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


def _pairs(olds: Sequence[Present], news: Sequence[Target]) -> list[Pair]:
    """Those on the same device, where replicas are taken back too; then the others one by one: a new one is loaded
    before the old one goes."""
    news = [news[0].seen_from(each.device) for each in news]
    backs = _taken_back({old.device: old for old in olds}, news)
    there = {old.device: _without(old, {each.name for each in backs.values()}) for old in olds}
    pairs = [(_with(there.pop(new.device, None), backs.get(new.device)), new) for new in news]
    left = list(there.values())
    for index, (old, new) in enumerate(pairs):
        if old is None:
            pairs[index] = (_elsewhere(left.pop(0)) if left else None, new.alone)
    return [*pairs, *((old, None) for old in left)]


def _taken_back(there: Mapping[str, Present], news: Sequence[Target]) -> dict[str, Returnable]:
    """By device: what drains there and serves again, but where it stands by what serves there already. Where the
    generation stays that serves, those are replicas that were to leave it, else those of an old one that is what is
    wanted, and those that were to leave that one."""
    free = [new for new in news if new.device not in there or there[new.device].serving is None]
    if any(_stays(there.get(new.device), new) for new in news):
        return _backs(tuple(back for old in there.values() for back in old.leaving), [new.alone for new in free])
    found = tuple(back for old in there.values() for back in old.returnable)
    generation = returning(found, news[0]) if news else None
    left = [new.alone for new in news if returning_there(found, new) is None]
    return _backs(found, free) | _backs(() if generation is None else generation.leaving, left)


def _backs(found: tuple[Returnable, ...], wanted: Iterable[Target]) -> dict[str, Returnable]:
    """By device."""
    backs = {new.device: returning_there(found, new) for new in wanted}
    return {device: back for device, back in backs.items() if back is not None}


def _with(old: Present | None, back: Returnable | None) -> Present | None:
    """What is taken back stands where it is."""
    if back is None:
        return old
    old = old or Present(device=back.target.device)
    return replace(old, draining=(*old.draining, back.name), returnable=(*old.returnable, back))


def _without(old: Present, names: Container[str]) -> Present:
    """It stands nowhere else."""
    return replace(
        old,
        draining=tuple(each for each in old.draining if each not in names),
        returnable=tuple(each for each in old.returnable if each.name not in names),
    )


def _elsewhere(old: Present) -> Present:
    """A replica that goes for one on another device: it does not stay, whatever its generation does."""
    return replace(old, active=None if old.active is None else old.active.alone)


def _stays(old: Present | None, new: Target) -> bool:
    if old is None or old.serving is None or old.active is None:
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
