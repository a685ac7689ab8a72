"""What a document would change of what is there now: its plan, with the bytes on the way.

Changes nothing. Which document is judged, and what comes of the plan, is the reconciler's business.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from halogend.control.access import changes
from halogend.control.barrier import Barrier
from halogend.control.forecast import Forecast
from halogend.control.house import House
from halogend.control.in_force import InForce
from halogend.control.plan import ModelPlan, Plan, has_changes
from halogend.control.planning import Draft
from halogend.control.presence import presence
from halogend.control.strategy import Now, decide
from halogend.control.target import Target


@dataclass(frozen=True, slots=True)
class Outlook:
    """From what runs in the `house` and what is `in_force`."""

    house: House
    in_force: InForce

    def plan(self, drafted: Draft, waiting: Barrier | None, *, is_newer: bool) -> tuple[Plan, Forecast]:
        """`waiting` is the atomic change on its way: given up for a document that is newer or has changes."""
        new, old = drafted.document, self.in_force.document
        if new is None:
            raise ValueError("a document with problems has no plan")
        now = Now(self._goals(), self.house.ledger.held(), presence(self.house))
        plan, bytes_ = decide(now, drafted.wanted, (old, new))
        if waiting is not None and (has_changes(plan) or is_newer):
            now = replace(now, goals=self._without(waiting))
            plan, bytes_ = decide(now, drafted.wanted, (old, new))
        differs = () if old is None else changes((old.server, self.in_force.access), (new.server, drafted.access))
        fields = [each for each in plan.server_changes if each["field"] != "server.auth"]  # told key by key
        models = tuple(self._timed(each) for each in plan.models)
        return replace(plan, models=models, server_changes=(*fields, *differs)), bytes_

    def _timed(self, plan: ModelPlan) -> ModelPlan:
        """With what loads like its own took lately."""
        if plan.load is None or plan.target is None:
            return plan
        goes_first = [plan.model] if plan.target.replaces else []
        in_company = any(unit.alive() is not None for unit in self.house.units.values() if unit.name not in goes_first)
        return replace(plan, expected=self.house.pace.expect(plan.load.expected_s, in_company=in_company))

    def _goals(self) -> dict[str, Target | None]:
        """What each wanted model is, or will be when all is done; None for one in trouble."""
        wanted = {name: unit for name, unit in self.house.units.items() if unit.is_wanted}
        return {name: None if unit.trouble else unit.goal for name, unit in wanted.items()}

    def _without(self, barrier: Barrier) -> dict[str, Target | None]:
        """`_goals`, had the models at the barrier never been asked to change."""
        goals = {name: goal for name, goal in self._goals().items() if name not in barrier.names}
        there = {name: unit for name, unit in self.house.units.items() if name in barrier.names}
        back = {name: unit for name, unit in there.items() if unit.active is not None or unit.trouble}
        return goals | {name: None if unit.trouble else unit.active for name, unit in back.items()}
