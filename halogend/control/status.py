"""What the daemon is, was asked to be, and is doing about it: one JSON-ready value for people on call."""

from __future__ import annotations

from typing import Any

from halogend.control.acceptance import Accepted
from halogend.control.generation import Generation
from halogend.control.house import House
from halogend.control.load_progress import progress_of
from halogend.control.receipts import Outcome
from halogend.control.reconciler import Reconciler
from halogend.control.replica import Replica
from halogend.control.unit import Unit

_UNSETTLED = (Outcome.REJECTED, Outcome.FAILED, Outcome.PARTIALLY_APPLIED, Outcome.ROLLED_BACK)


def status(reconciler: Reconciler, version: str, started_at: float) -> dict[str, Any]:
    """`desired` is the newest accepted document's revision, `active` the newest one that was applied.
    `settled`: they are one, every model serves, and the newest edit was not refused."""
    house = reconciler.house
    desired = _short(reconciler.accepted)
    models = {name: _model(unit, house) for name, unit in house.units.items()}
    newest = reconciler.receipts.all()[-1:]
    settled = (
        desired is not None
        and reconciler.active is reconciler.accepted
        and all(model["state"] == "serving" and not model["loading"] for model in models.values())
        and not any(receipt.outcome in _UNSETTLED for receipt in newest)
    )
    return {
        "version": version,
        "started_at": started_at,
        "uptime_s": round(house.clock() - started_at, 1),
        "source": reconciler.source.file,
        "revision": {"desired": desired, "active": _short(reconciler.active)},
        "settled": settled,
        "models": models,
        "memory": house.ledger.view(),
        "lingering": house.lingering.view(),
        "spare_worker": house.spare.view(),
        "last_receipt": newest[0].view() if newest else None,
    }


def _short(accepted: Accepted | None) -> str | None:
    return None if accepted is None else accepted.revision[:12]


def _model(unit: Unit, house: House) -> dict[str, Any]:
    return {
        "state": state(unit),
        "trouble": unit.trouble,
        "degraded": unit.degraded,
        "path": None if unit.active is None else unit.active.config.model,
        "names": [] if (route := house.router.route(unit.name)) is None else list(route.names()),
        "waiting": house.router.waiting(unit.name),
        "serving": _generation(unit.serving, house),
        "loading": _generation(unit.loading, house),
        "parked": _generation(unit.parked, house),
        "probation": None if unit.probation is None else unit.probation.view(),
        "draining": [_draining(unit, each, house) for each in unit.draining],
    }


def state(unit: Unit) -> str:
    """serving, loading (nothing served yet), restarting, failed (and why: `trouble`), removed (its
    memory is still on its way back)."""
    if not unit.is_wanted:
        return "removed"
    if unit.alive() is not None:
        return "serving"
    if unit.loading is not None:
        return "restarting" if unit.active else "loading"
    return "failed" if unit.trouble else "starting"


def _draining(unit: Unit, generation: Generation, house: House) -> dict[str, Any]:
    drain, view = unit.drains.get(generation), _generation(generation, house) or {}
    limit_s, left_s = (None, None) if drain is None else (round(drain.limit_s, 1), round(drain.left_s, 1))
    return {**view, "limit_s": limit_s, "left_s": left_s}


def _generation(generation: Generation | None, house: House) -> dict[str, Any] | None:
    if generation is None:
        return None
    stats, progress = generation.stats, progress_of(generation.parts)
    held = [holding for each in generation.replicas if (holding := house.ledger.holding(each.name)) is not None]
    return {
        "generation": generation.number,
        "device": ", ".join(each.device for each in held) or None,
        "path": generation.spec.engine.path,
        "pids": generation.pids,
        "requests": len(generation.leases),
        "stage": progress.stage,
        "loaded_bytes": progress.done_bytes,
        "total_bytes": progress.total_bytes,
        "running": 0 if stats is None else stats.running,
        "waiting": 0 if stats is None else stats.waiting,
        "blocks_used": 0 if stats is None else stats.blocks_used,
        "blocks_total": 0 if stats is None else stats.blocks_total,
        "held_bytes": generation.measured_bytes,
        "kernels": generation.kernels,
        "replicas": [_replica(generation, each) for each in generation.everybody],
    }


def _replica(generation: Generation, replica: Replica) -> dict[str, Any]:
    return {
        "replica": replica.name,
        "device": replica.spec.device,
        "weight": replica.weight,
        "state": generation.state_of(replica),
        "requests": len(replica.leases),
        "pids": replica.pids,
        "held_bytes": replica.memory.measured_bytes,
    }
