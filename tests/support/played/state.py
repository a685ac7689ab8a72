"""Everything of a played world that a failed change may not leave different, without what only counts up.

Two worlds are in the same state where a generation with another number and other processes stands in the same
place: names of generations are those of their places, `a@serving`, `a@draining0`, `a@parked`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections import Counter
from pathlib import Path
from typing import Any

from support.played.world import World, until

from halogend.control.access import Access
from halogend.control.generation import Generation
from halogend.control.replica import Replica
from halogend.control.target import Target, Way
from halogend.control.unit import Unit

_METRICS = ("generation_state", "engine_up", "memory_bytes", "config_info", "model_", "waiting")
_LOOKS = 10


def state(world: World) -> dict[str, Any]:
    """One entry for each thing that somebody else looks at."""
    units, house = world.house.units, world.house
    places = _places(units)
    everybody = [replica for each in places for replica in each.everybody]
    names = {replica.name: _name(replica, places) for replica in everybody}
    accounts = {names.get(name, name): entry for name, entry in house.ledger.view().items()}
    return {
        "routes": [_route(world, name, places) for name in sorted(house.router._routes)],
        "names": sorted((each.name, each.aliases, each.state, each.max_model_len) for each in house.router.served()),
        "units": {name: _unit(unit, places) for name, unit in units.items()},
        "replicas": {names[each.name]: _replica(world, each) for each in everybody},
        "leases": {names[each.name]: len(each.leases) for each in everybody},
        "ledger": {name: accounts[name] for name in sorted(accounts)},
        "on its way": {names.get(name, name): len(e.claims) for name, e in house.ledger._entries.items() if e.claims},
        "cores": sorted(names.get(each.name, each.name) for each in house.cores._engines),
        "loads": house.loads.taken,
        "listeners": (world.sockets.serving, world.sockets.bound),
        "access": [_access(each) for each in (world.sockets.access, world.reconciler._in_force.access)],
        "active": None if world.reconciler.active is None else world.reconciler.active.revision,
        "open": sorted(each.id for each in world.reconciler.receipts.all() if each.outcome is None),
        "metrics": sorted(_series(world, places)),
        "strays": sorted(world.children() - {pid for each in everybody for pid in each.pids.values()}),
        "fds": len(list(Path("/proc/self/fd").iterdir())),
        "tasks": dict(Counter(getattr(task.get_coro(), "__qualname__", "?") for task in asyncio.all_tasks())),
    }


def differences(now: Any, wanted: Any, *besides: str, at: str = "") -> list[str]:
    """In words, each where it is; none where the two are equal."""
    if now == wanted:
        return []
    old, new = _parts(wanted), _parts(now)
    if old is None or new is None or old.keys() != new.keys():
        return [f"{at}: is {now}, was {wanted}"]
    inner = {key: f"{at}.{key}" if at else f"{key}" for key in old}
    return [
        line
        for key, name in inner.items()
        if name not in besides
        for line in differences(new[key], old[key], *besides, at=name)
    ]


def _parts(value: Any) -> dict[Any, Any] | None:
    if isinstance(value, dict):
        return value
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if dataclasses.is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return None


async def at_rest(world: World) -> dict[str, Any]:
    """The state, once nothing goes on."""
    seen: list[dict[str, Any]] = []

    def rests() -> bool:
        seen.append(state(world))
        return len(seen) > _LOOKS and not seen[-1]["strays"] and all(each == seen[-1] for each in seen[-_LOOKS:])

    await until(rests, "nothing goes on")
    return seen[-1]


async def becomes(world: World, wanted: dict[str, Any], *besides: str) -> None:
    """Waits until the state is this; says what differs if it never is."""
    try:
        await until(lambda: not differences(state(world), wanted, *besides), "the state")
    except TimeoutError as error:
        raise AssertionError("\n".join(differences(state(world), wanted, *besides))) from error


def _places(units: dict[str, Unit]) -> dict[Generation, str]:
    found: dict[Generation, str] = {}
    for name, unit in units.items():
        found.update({each: f"{name}@draining{index}" for index, each in enumerate(unit.draining)})
        for place in ("parked", "loading", "serving"):
            if (there := getattr(unit, place)) is not None:
                found[there] = f"{name}@{place}"
    return found


def _name(replica: Replica, places: dict[Generation, str]) -> str:
    """By its device, where its generation has several: a place that was left and taken again has another index."""
    generation, place = next((g, p) for g, p in places.items() if replica in g.everybody)
    return place if len(generation.everybody) == 1 else f"{place}/{replica.spec.device}"


def _route(world: World, name: str, places: dict[Generation, str]) -> tuple[Any, ...]:
    route = world.router._routes[name]
    takes = [places.get(each, f"unknown {each.number}") for each in (route.serving, route.beside) if each is not None]
    return name, route.settings, route.names(), takes, route.gone, route.waiting


def _unit(unit: Unit, places: dict[Generation, str]) -> dict[str, Any]:
    return {
        "active": _target(unit.active),
        "goal": _target(unit.goal),
        "generations": sorted(places[each] for each in unit.generations),
        "loading": unit.loading is not None,
        "arrived": unit.arrived is not None,
        "stages": [each.stage for each in unit.retired],
        "reclaims": len(unit.reclaims),
        "probation": unit.probation is not None,
        "trouble": unit.trouble,
        "degraded": unit.degraded,
        "wanted": unit.is_wanted,
    }


def _target(target: Target | None) -> Target | None:
    """What it is, not the way it came."""
    if target is None:
        return None
    others = tuple(dataclasses.replace(each, way=Way.OVERLAP) for each in target.others)
    return dataclasses.replace(target, way=Way.OVERLAP, others=others)


def _replica(world: World, replica: Replica) -> dict[str, Any]:
    """As the daemon has it, and as its engine was told last."""
    pid = replica.pids.get("engine")
    said = [call for call in world.stage.calls if call.pid == pid]
    told = {key: [c.detail[key] for c in said if key in c.detail][-1:] for key in ("pool_bytes", "threads")}
    text, engine = replica.present_spec.text, replica.present_spec.engine
    limits = (text.limits, text.chat_template, engine.limits)
    return {"limits": limits, "weight": replica.weight, "state": replica.state, "told": told, "roles": [*replica.pids]}


def _access(access: Access) -> dict[str, Any]:
    return {"keys": access.keys, "certificates": access.certificates(), "files": access.prints}


def _series(world: World, places: dict[Generation, str]) -> set[str]:
    """A generation's number is its place's name; one that is nowhere keeps its number."""
    named = {(each.model, str(each.number)): place for each, place in places.items()}

    def by_place(line: str) -> str:
        found = re.search(r'generation="(\d+)",model="([^"]+)"', line)
        place = None if found is None else named.get((found[2], found[1]))
        return line if found is None or place is None else line.replace(found[0], f'at="{place}"')

    return {by_place(line) for line in world.series(*_METRICS)}
