"""The ledger for people: what each device has, what each replica is counted with, and what was measured of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from halogend.control.house import House
from halogend.control.ledger import Holding, host_side, together
from halogend.control.peaks import touched
from halogend.control.plan_report import Room
from halogend.control.replica import Replica


def ledger_view(house: House, rooms: Mapping[str, Room], devices: Iterable[str]) -> dict[str, Any]:
    """JSON-ready. `rooms` are the devices of the document; `devices` those to show where there is none."""
    held, replicas = house.ledger.shown(), _replicas(house)
    known = dict.fromkeys([*(rooms or devices), *(name for each in held.values() for name in touched(each))])
    return {
        "devices": {device: _device(device, rooms, held, replicas) for device in known},
        "generations": {name: _replica(each, replicas.get(name)) for name, each in held.items()},
    }


def _replicas(house: House) -> dict[str, Replica]:
    """By their names in the ledger."""
    units = house.units.values()
    generations = [each for unit in units for each in (*unit.generations, unit.loading) if each is not None]
    return {replica.name: replica for each in generations for replica in each.everybody}


def _device(
    device: str, rooms: Mapping[str, Room], held: Mapping[str, Holding], replicas: Mapping[str, Replica]
) -> dict[str, Any]:
    there = {name: each for name, each in held.items() if each.device == device}
    return {
        **(msgspec.to_builtins(rooms[device]) if device in rooms else {}),
        "held_bytes": together(there.values()) + host_side(held.values(), device),
        "measured_bytes": sum(replicas[name].memory.measured_bytes for name in there if name in replicas),
    }


def _replica(holding: Holding, replica: Replica | None) -> dict[str, Any]:
    counted = {
        "device": holding.device,
        "weights_bytes": holding.weights_bytes,
        "mapped_bytes": holding.mapped_bytes,
        "working_bytes": holding.working_bytes,
        "kv_bytes": holding.kv_bytes,
        "host_bytes": holding.host_bytes,
        "total_bytes": holding.total_bytes,
    }
    return {**counted, "measured": None if replica is None or not replica.memory.base_bytes else _measured(replica)}


def _measured(replica: Replica) -> dict[str, int]:
    """`kv_bytes` of the pool are touched; `working_surplus_bytes` is how much more than the estimate."""
    return {
        "held_bytes": replica.memory.measured_bytes,
        "kv_bytes": replica.pool_touched_bytes,
        "working_bytes": replica.memory.working_bytes,
        "working_surplus_bytes": replica.memory.surplus_bytes,
    }
