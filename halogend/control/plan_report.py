"""A plan as people and programs read it: per model what happens and why, per device the bytes.

Pure. The one JSON-ready value that `halogend plan`, `GET /plan` and every dry run share.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from halogend.config.canonical import short_revision
from halogend.config.facts import DeviceFacts
from halogend.config.fit import allowance, usable_bytes
from halogend.config.placement import divided
from halogend.config.problems import Problem
from halogend.config.schema import Document
from halogend.control.course import Start
from halogend.control.forecast import Forecast
from halogend.control.ledger import Holding
from halogend.control.peaks import DeviceForecast, Use
from halogend.control.plan import ModelPlan, Plan
from halogend.control.receipts import ModelAction
from halogend.control.target import Way

_STEPS = {
    Way.OVERLAP: ("load", "switch", "drain", "reclaim"),
    Way.SHRINK: ("shrink", "load", "switch", "drain", "reclaim"),
    Way.REPLACE: ("drain", "reclaim", "load", "switch"),
}
_END = ("drain", "reclaim")
_ROLLED, _AFTER_ROLLING = ("drain", "reclaim", "load"), ("switch", "drain", "reclaim")  # each replica; then all


class PlanOutcome(enum.StrEnum):
    UNCHANGED = "unchanged"
    CHANGES = "changes"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Drain:
    """What ends with an old generation. `running` are the requests that it serves now and that stay on
    it, `may_outlive` those among them that may still run when `limit_s` is over."""

    limit_s: float
    running: int
    may_outlive: int


@dataclass(frozen=True, slots=True)
class Subject:
    """What was planned: which document, and against which revision, whose targets are set."""

    source: str
    revision: str | None
    current: str | None


@dataclass(frozen=True, slots=True)
class Room:
    """What a device has, and how much of it generations may take, in bytes. `spare_bytes` are held there by a process
    that stands by and gives way to anybody: they are counted nowhere else."""

    memory_bytes: int
    reserve_bytes: int
    foreign_bytes: int
    budget_bytes: int
    spare_bytes: int = 0


NO_ROOM = Room(0, 0, 0, 0)
"""Of a device that the document has not: what is left there is on its way out."""


def rooms_of(
    document: Document, devices: Iterable[DeviceFacts], standing_by: Sequence[Holding] = ()
) -> dict[str, Room]:
    """By device, as this document divides and allows it. `devices` are the machine's; `standing_by` is the ledger's."""
    return {
        each.id: Room(
            *allowance(document, each),
            each.foreign_bytes,
            usable_bytes(document, each),
            sum(holding.own_bytes for holding in standing_by if holding.device == each.id),
        )
        for each in divided(document, tuple(devices))
    }


def rejected(subject: Subject, problems: Iterable[Problem]) -> dict[str, Any]:
    """A document that could not even be planned."""
    return _report(subject, PlanOutcome.REJECTED, problems)


def report(
    subject: Subject,
    plan: Plan,
    bytes_: Forecast,
    rooms: Mapping[str, Room],
    drains: Mapping[str, Drain],
    problems: Iterable[Problem] = (),
) -> dict[str, Any]:
    """JSON-ready. With `problems` it would be rejected, and the bytes show what it would have taken."""
    problems = tuple(problems)
    changes = plan.server_changes or any(each.action is not ModelAction.KEEP for each in plan.models)
    outcome = PlanOutcome.CHANGES if changes else PlanOutcome.UNCHANGED
    return _report(
        subject,
        PlanOutcome.REJECTED if problems else outcome,
        problems,
        models=[_model(each, bytes_, drains.get(each.model)) for each in plan.models],
        server_changes=list(plan.server_changes),
        loads_at_once=plan.loads_at_once,
        together=plan.together,
        devices=[_device(each, rooms.get(each.device, NO_ROOM)) for each in bytes_.devices],
    )


def _report(subject: Subject, outcome: PlanOutcome, problems: Iterable[Problem], **more: Any) -> dict[str, Any]:
    body = {
        "outcome": outcome,
        "source": subject.source,
        "revision": {"current": _short(subject.current), "planned": _short(subject.revision)},
        "problems": [problem.view() for problem in problems],
    }
    return {
        **body,
        "models": [],
        "server_changes": [],
        "loads_at_once": 1,
        "together": False,
        "devices": [],
        "hold": None,
        "warnings": [],
        **more,
    }


def _model(plan: ModelPlan, bytes_: Forecast, drain: Drain | None) -> dict[str, Any]:
    """`at_start` is what the load takes as it begins (the receipt's load step expects its `grows_bytes`), `after`
    what the model holds when all is done; `landing` says what `device` is to it, `shrink` what its old pool gives."""
    return {
        "model": plan.model,
        "action": plan.action,
        "strategy": _strategy(plan),
        "device": None if plan.target is None else plan.target.device,
        "landing": None if plan.target is None else plan.target.landing,
        "steps": _steps(plan, shrinks=plan.model in bytes_.shrinks),
        "shrink": _shrink(bytes_.shrinks.get(plan.model)),
        "changes": list(plan.changes),
        "load": plan.load_view,
        "probation_s": _probation_s(plan),
        "at_start": _start(bytes_.starts.get(plan.model)),
        "after": _held(bytes_.after.get(plan.model)),
        "drain": None if drain is None else asdict(drain),
    }


def _probation_s(plan: ModelPlan) -> float | None:
    """For how long the old generation stands by after the switch, with its memory."""
    if plan.load is None or plan.action is not ModelAction.REPLACE or plan.target is None:
        return None
    terms = plan.target.config.probation
    return None if terms is None else terms.s


def _strategy(plan: ModelPlan) -> str | None:
    """How old and new follow each other, where there are both."""
    if plan.takes_back:
        return "take_back"
    if plan.action is not ModelAction.REPLACE or plan.target is None:
        return None
    return plan.target.way


def _steps(plan: ModelPlan, *, shrinks: bool) -> list[str]:
    """In order, as the receipt will have them."""
    if plan.action is ModelAction.REMOVE:
        return ["drain", "reclaim"]
    joins = [*(["take_back"] if plan.regains else []), *(["load"] if plan.gains else [])]
    if plan.action is ModelAction.UPDATE:
        return ["update", *joins, *_END * plan.loses]
    if plan.takes_back:
        return ["take_back", *joins, "switch", *_END * (plan.loses + (plan.action is ModelAction.REPLACE))]
    if plan.action is ModelAction.CREATE:
        return ["load", "switch"]
    if plan.action is not ModelAction.REPLACE or plan.target is None:
        return []
    if plan.target.way is Way.ROLLING:
        return [*_ROLLED * len(plan.target.parts), *_AFTER_ROLLING]
    return [step for step in _STEPS[plan.target.way] if shrinks or step != "shrink"]


def _shrink(sizes: tuple[int, int] | None) -> dict[str, int] | None:
    return None if sizes is None else {"from_bytes": sizes[0], "to_bytes": sizes[1]}


def _start(start: Start | None) -> dict[str, Any] | None:
    """`grows_bytes`: what is held grows by less than the total where a file that it maps is mapped already."""
    return None if start is None else {**_bytes(start.holding), "grows_bytes": start.grows_bytes}


def _held(holding: Holding | None) -> dict[str, Any] | None:
    return None if holding is None else _bytes(holding)


def _bytes(holding: Holding) -> dict[str, Any]:
    return {
        "device": holding.device,
        "weights_bytes": holding.weights_bytes,
        "mapped_bytes": holding.mapped_bytes,
        "working_bytes": holding.working_bytes,
        "kv_bytes": holding.kv_bytes,
        "host_bytes": holding.host_bytes,
        "total_bytes": holding.total_bytes,
    }


def _device(forecast: DeviceForecast, room: Room) -> dict[str, Any]:
    return {
        "device": forecast.device,
        **asdict(room),
        "now": _use(forecast.now),
        "peak": {**_use(forecast.peak), "during": forecast.during},
        "after": _use(forecast.after),
    }


def _use(use: Use) -> dict[str, int]:
    return {
        "weights_bytes": use.weights_bytes,
        "mapped_bytes": use.mapped_bytes,
        "working_bytes": use.working_bytes,
        "kv_bytes": use.kv_bytes,
        "total_bytes": use.total_bytes,
    }


def _short(revision: str | None) -> str | None:
    return None if revision is None else short_revision(revision)
