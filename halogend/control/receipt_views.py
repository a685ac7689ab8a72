"""Receipts of earlier runs, from the views that were kept of them."""

from __future__ import annotations

from typing import Any

import msgspec

from halogend.config.codes import Code
from halogend.config.problems import Problem
from halogend.control.receipts import ModelAction, ModelRecord, Outcome, Receipt, StepRecord, number_of


def from_view(view: Any) -> Receipt:
    """A receipt of an earlier run from its `view()`. One that was open then failed: the daemon's end was
    its end. Raises ValueError for what is no such view."""
    known = msgspec.convert(view, _View)
    if not number_of(known.id):
        raise ValueError(f"{known.id!r} is no receipt's id")
    receipt = Receipt(
        id=known.id,
        trigger=known.trigger,
        actor=known.actor,
        asked_at=known.asked_at,
        source=known.source,
        revision=known.revision,
        previous_revision=known.previous_revision,
        outcome=known.outcome,
        milestones=known.milestones,
        problems=known.problems,
        models={each.model: each.record() for each in known.models},
        server_changes=known.server_changes,
        origin=known.origin,
    )
    if receipt.outcome is None:
        receipt.outcome = Outcome.FAILED
        receipt.problems += (Problem(Code.INTERRUPTED, Code.INTERRUPTED.heading, Code.INTERRUPTED.remedy),)
    receipt.end_waits()
    return receipt


class _ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `models`; a step's further keys are its detail."""

    model: str
    action: ModelAction
    outcome: Outcome | None
    error: str | None
    changes: tuple[dict[str, Any], ...]
    load: dict[str, Any] | None
    steps: tuple[dict[str, Any], ...]

    def record(self) -> ModelRecord:
        return ModelRecord(
            model=self.model,
            action=self.action,
            changes=self.changes,
            load=self.load,
            steps=[_step(each) for each in self.steps],
            outcome=self.outcome,
            error=self.error,
            is_closed=True,
        )


class _View(msgspec.Struct, frozen=True, kw_only=True):
    """What `Receipt.view` writes. A key that an older release did not write has a default."""

    id: str
    outcome: Outcome | None
    trigger: str
    actor: str
    source: str = ""
    origin: dict[str, Any] | None = None
    revision: str | None
    previous_revision: str | None
    asked_at: float
    milestones: dict[str, float]
    problems: tuple[Problem, ...]
    server_changes: tuple[dict[str, Any], ...]
    models: tuple[_ModelView, ...]


class _StepView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    began_at: float
    seconds: float | None
    error: str | None


def _step(view: dict[str, Any]) -> StepRecord:
    known = msgspec.convert(view, _StepView)
    detail = {key: value for key, value in view.items() if key not in _StepView.__struct_fields__}
    return StepRecord(known.name, known.began_at, known.seconds, known.error, detail)
