"""What the daemon is, was asked to be, and is doing about it: one JSON-ready value for people on call."""

from __future__ import annotations

from typing import Any

from halogend.control.generation import Generation
from halogend.control.house import House
from halogend.control.reconciler import Reconciler
from halogend.control.unit import Unit


def status(reconciler: Reconciler, version: str, started_at: float) -> dict[str, Any]:
    """`desired` is the accepted document's revision; `active` equals it when every model is what
    the document asks for."""
    house = reconciler.house
    desired = None if reconciler.accepted is None else reconciler.accepted.revision[:12]
    models = {name: _model(unit, house) for name, unit in house.units.items()}
    settled = all(model["state"] == "serving" for model in models.values())
    newest = reconciler.receipts.all()[-1:]
    return {
        "version": version,
        "started_at": started_at,
        "uptime_s": round(house.clock() - started_at, 1),
        "source": reconciler.source.file,
        "revision": {"desired": desired, "active": reconciler.active_revision and reconciler.active_revision[:12]},
        "settled": settled,
        "models": models,
        "memory": house.ledger.view(),
        "last_receipt": newest[0].view() if newest else None,
    }


def _model(unit: Unit, house: House) -> dict[str, Any]:
    return {
        "state": state(unit),
        "trouble": unit.trouble,
        "degraded": unit.degraded,
        "path": None if unit.active is None else unit.active.config.model,
        "names": [] if (route := house.router.route(unit.name)) is None else list(route.names()),
        "waiting": house.router.waiting(unit.name),
        "serving": _generation(unit.serving),
        "loading": _generation(unit.loading),
        "draining": _generation(unit.draining),
    }


def state(unit: Unit) -> str:
    """serving, loading (nothing serves yet), failed, restarting, removed."""
    if unit.is_gone:
        return "removed"
    if unit.serving is not None and not unit.serving.died.is_set():
        return "serving"
    if unit.loading is not None:
        return "loading"
    return "failed" if unit.trouble else "starting"


def _generation(generation: Generation | None) -> dict[str, Any] | None:
    if generation is None:
        return None
    stats, pulse = generation.stats, generation.pulses().get("engine")
    return {
        "generation": generation.number,
        "path": generation.spec.engine.path,
        "pids": generation.pids,
        "requests": len(generation.leases),
        "stage": None if pulse is None else pulse.stage,
        "loaded_bytes": 0 if pulse is None else pulse.done,
        "total_bytes": 0 if pulse is None else pulse.total,
        "running": 0 if stats is None else stats.running,
        "waiting": 0 if stats is None else stats.waiting,
        "blocks_used": 0 if stats is None else stats.blocks_used,
        "blocks_total": 0 if stats is None else stats.blocks_total,
        "pss_bytes": generation.pss_bytes(),
        "kernels": generation.kernels,
    }
