"""What one round saw of a HalogenModel's pods and children: the ground that its status stands on. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from halogen_operator.pods import PodState, Trouble, live_template
from halogen_operator.rollout import Rollout


@dataclass(frozen=True, slots=True)
class Observed:
    """`deployment` as the API server has it, None where there is none. `troubles` are those of other children: what
    could not be applied, a broken Secret. `waits_for` is a predecessor's child that is about to go. `is_behind`:
    what is there is not what the spec asks for, however well the document is served: the API server refuses the
    Deployment or the Service, or pods would be replaced if it were not only planned. `plan` is what `plan_only`
    made of the pods' answers, where they were asked. Of a spec that was refused there is no rollout. `trusted` are
    pods that do not answer and count as serving by what is remembered."""

    states: tuple[PodState, ...] = ()
    rollout: Rollout = field(default_factory=Rollout)
    deployment: Mapping[str, Any] | None = None
    troubles: tuple[Trouble, ...] = ()
    plan: Mapping[str, Any] | None = None
    is_behind: bool = False
    waits_for: str = ""
    trusted: frozenset[str] = frozenset()

    @property
    def there(self) -> tuple[PodState, ...]:
        """Pods that are not on their way out, by name."""
        return tuple(sorted((each for each in self.states if each.is_there), key=lambda each: each.name))

    @property
    def ready(self) -> tuple[PodState, ...]:
        return tuple(each for each in self.there if each.pod.is_ready)

    def is_current(self, state: PodState) -> bool:
        """Is the pod of the template that the Deployment has now? One that is not will be replaced."""
        return live_template(self.deployment) in ("", state.pod.template)

    def serves(self, state: PodState) -> bool:
        """Does it answer requests by the document that is wanted, and stay?"""
        is_known = state.name in self.rollout.serving or state.name in self.trusted
        return state.pod.is_ready and is_known and self.is_current(state)

    @property
    def no_pods(self) -> str | None:
        """Why the Deployment can make none, where it says so: a quota, a policy."""
        conditions = ((self.deployment or {}).get("status") or {}).get("conditions") or ()
        failed = (each for each in conditions if each.get("type") == "ReplicaFailure" and each.get("status") == "True")
        return next((str(each.get("message") or each.get("reason")) for each in failed), None)
