"""The way from what runs to what is wanted: what happens to each model, and whether it fits.

Pure: values in, values out. The class of a change comes from the schema; this module only adds
what the schema cannot know, the fingerprints of inputs and the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from halogend.config.changes import model_changes
from halogend.config.codes import Code
from halogend.config.fields import Apply, changed_fields
from halogend.config.problems import Problem
from halogend.config.schema import DeviceRef, Document
from halogend.config.values import cores_text
from halogend.control.facts import Inputs
from halogend.control.load_plan import LoadPlan
from halogend.control.pace import Expected
from halogend.control.present import Returnable, returning
from halogend.control.receipts import ModelAction
from halogend.control.target import Target


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """`changes` are JSON-ready: field, old, new, class. `takes_back`: an old generation that drains serves again.
    What stays, or is taken back, `gains` so many replicas that are loaded, `regains` so many that were to leave it, and
    `loses` so many.
    `expected` is how long the load takes, where that is known better than by its sizes."""

    model: str
    action: ModelAction
    changes: tuple[dict[str, Any], ...]
    target: Target | None
    takes_back: bool = False
    gains: int = 0
    regains: int = 0
    loses: int = 0
    expected: Expected | None = None

    @property
    def load(self) -> LoadPlan | None:
        """What loading the target takes, where that is what is planned."""
        loads = self.action in (ModelAction.CREATE, ModelAction.REPLACE) and not self.takes_back
        return self.target.load if loads and self.target is not None else None

    @property
    def load_view(self) -> dict[str, Any] | None:
        """JSON-ready: what the load reads and holds, and how long it should take."""
        if self.load is None:
            return None
        return self.load.view() | (self.expected or Expected.by_size(self.load.expected_s)).view()


@dataclass(frozen=True, slots=True)
class Plan:
    """`models` has a line for every model, kept ones too. `server_changes` are fields of everything else
    (listeners, devices, how changes are made). `loads_at_once`: so many models may load side by side. A problem's
    `path` is the name of the model that does not fit."""

    models: tuple[ModelPlan, ...]
    server_changes: tuple[dict[str, Any], ...]
    problems: tuple[Problem, ...]
    loads_at_once: int = 1
    together: bool = False


def has_changes(plan: Plan) -> bool:
    """Of any model."""
    return any(each.action is not ModelAction.KEEP for each in plan.models)


def make_plan(
    current: Mapping[str, Target | None],
    wanted: Mapping[str, Target],
    documents: tuple[Document | None, Document],
    returnable: Mapping[str, tuple[Returnable, ...]] = MappingProxyType({}),
    leaving: Mapping[str, Sequence[Target]] = MappingProxyType({}),
) -> Plan:
    """`current` is what serves or is on its way, None for a model that is in trouble and must be
    made anew; `documents` the old and the new one; `returnable` what drains and may serve again, `leaving` replicas
    that were to leave what serves. Whether it fits is not looked at."""
    models = [
        _with_way_back(_model_plan(current.get(name), target, leaving.get(name, ())), returnable.get(name, ()))
        for name, target in wanted.items()
    ]
    models += [ModelPlan(name, ModelAction.REMOVE, (), None) for name in current if name not in wanted]
    return Plan(
        tuple(models),
        _around_models(*documents),
        (),
        documents[1].reload.max_parallel_loads,
        documents[1].reload.atomic,
    )


def _around_models(old: Document | None, new: Document) -> tuple[dict[str, Any], ...]:
    """Every field outside the models that differs; devices by their id."""
    if old is None:
        return ()
    changes = [_shown(each) for each in changed_fields(old, new)]
    before, after = ({each.id: each for each in document.devices} for document in (old, new))
    for device in dict.fromkeys([*before, *after]):
        was, is_, field = before.get(device), after.get(device), f"devices[{device}]"
        if was is not None and is_ is not None:
            changes += [_shown(each) for each in changed_fields(was, is_, field)]
        elif was != is_:
            stated = [None if each is None else each.model_dump(exclude_defaults=True) for each in (was, is_)]
            changes.append({"field": field, "old": stated[0], "new": stated[1], "class": Apply.IDENTITY})
    return tuple(changes)


def _with_way_back(plan: ModelPlan, returnable: tuple[Returnable, ...]) -> ModelPlan:
    """What an old generation still holds is not loaded again."""
    target = plan.target
    back = None if target is None or plan.load is None else returning(returnable, target)
    if target is None or back is None:
        return plan
    return _regrouped(replace(plan, takes_back=True), back.target, target, [each.target for each in back.leaving])


def _regrouped(plan: ModelPlan, old: Target, new: Target, leaving: Sequence[Target]) -> ModelPlan:
    """Which replicas come and go where the generation is the same."""
    new_parts, loses = _unmatched(new, old), len(_unmatched(old, new))
    regains = sum(any(each.same_generation(part) for each in leaving) for part in new_parts)
    return replace(plan, gains=len(new_parts) - regains, regains=regains, loses=loses)


def _model_plan(old: Target | None, new: Target, leaving: Sequence[Target]) -> ModelPlan:
    if old is None:
        return ModelPlan(new.name, ModelAction.CREATE, (), new)
    changes = [_shown(each) for each in model_changes(old.config, new.config)]
    changes += _input_changes(old.inputs, new.inputs)
    if old.spec.engine.stretched != new.spec.engine.stretched:
        changes.append(_stretching(old, new))
    changes += _placing(old, new)
    if not old.same_generation(new):
        return ModelPlan(new.name, ModelAction.REPLACE, tuple(changes), new)
    changes += _sizes(old, new)
    action = ModelAction.UPDATE if changes else ModelAction.KEEP
    return _regrouped(ModelPlan(new.name, action, tuple(changes), new), old, new, leaving)


def _unmatched(these: Target, others: Target) -> list[Target]:
    """Replicas of `these` that are on no device of the others."""
    return [replace(part, others=()) for part in these.parts if others.part_on(part.device) is None]


def _stretching(old: Target, new: Target) -> dict[str, Any]:
    """max_model_len is live, unless it crosses the context that a model's positions are made for."""
    was, is_ = old.spec.engine.stretched, new.spec.engine.stretched
    return {"field": "positions past the original context", "old": was, "new": is_, "class": Apply.GENERATION}


def _pairs(old: Target, new: Target) -> list[tuple[Target, Target]]:
    """Replicas that stay on their device; one alone is followed by one alone."""
    if len(old.parts) == len(new.parts) == 1:
        return [(old, new)]
    return [(was, part) for part in new.parts if (was := old.part_on(part.device)) is not None]


def _placing(old: Target, new: Target) -> Iterator[dict[str, Any]]:
    """What the machine and the other models make of `device`."""
    for was, is_ in _pairs(old, new):
        if was.device != is_.device:
            yield {"field": "placed on", "old": was.device, "new": is_.device, "class": Apply.GENERATION}
        elif was.spec.cores != is_.spec.cores:
            before, after = (cores_text(each.spec.cores) or "all" for each in (was, is_))
            yield {"field": f"cores of {is_.device}", "old": before, "new": after, "class": Apply.GENERATION}


def _sizes(old: Target, new: Target) -> Iterator[dict[str, Any]]:
    """Of its pool, and of what generations may take where it is."""
    for was, is_ in _pairs(old, new):
        sizes = {
            "kv pool bytes" + (f" on {is_.device}" if new.others else ""): (was.holding.kv_bytes, is_.holding.kv_bytes),
            f"room on {is_.device}, bytes": (was.budget_bytes, is_.budget_bytes),
            f"room around {is_.device}, bytes": (was.shared_bytes, is_.shared_bytes),
        }
        is_apart = was.budget_bytes != was.shared_bytes or is_.budget_bytes != is_.shared_bytes
        for field, (before, after) in sizes.items():
            if before != after and (is_apart or "around" not in field):
                yield {"field": field, "old": before, "new": after, "class": Apply.LIVE}


def _input_changes(old: Inputs, new: Inputs) -> list[dict[str, Any]]:
    changes = []
    if old.checkpoint[0] == new.checkpoint[0] and old.checkpoint != new.checkpoint:
        changes.append(_input(new.checkpoint[0], old.checkpoint[1], new.checkpoint[1], Apply.GENERATION))
    if old.template and new.template and old.template[0] == new.template[0] and old.template != new.template:
        changes.append(_input(new.template[0], old.template[1], new.template[1], Apply.LIVE))
    return changes


def _input(path: str, old: str, new: str, apply: Apply) -> dict[str, Any]:
    return {"field": f"input {path}", "old": old[:12], "new": new[:12], "class": apply}


def _shown(change: Any) -> dict[str, Any]:
    return {"field": change.path, "old": _plain(change.old), "new": _plain(change.new), "class": change.apply}


def _plain(value: Any) -> Any:
    if isinstance(value, DeviceRef):
        return value.id if value.weight == 1 else f"{value.id} (weight {value.weight:g})"
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value.model_dump() if hasattr(value, "model_dump") else value


def does_not_fit(target: Target, taken: int, tried: Sequence[str], levers: str) -> Problem:
    """With the numbers: `taken` bytes are held when its load's turn comes; `tried` are the ways that were looked
    at beside."""
    holding = target.holding
    message = (
        f"{target.name} does not fit on {holding.device} beside what runs there: it needs {mib(target.needs_bytes)} "
        f"(weights {mib(holding.weights_bytes + holding.mapped_bytes)}, working memory "
        f"{mib(holding.working_bytes)}, least KV pool "
        f"{mib(target.floor_bytes)}); {mib(taken)} of {mib(target.budget_bytes)} are taken"
    )
    if tried:
        message += f"; nor {', nor '.join(tried)}"
    return Problem(Code.OVERLAP_DOES_NOT_FIT, message, levers, path=target.name)


def mib(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MiB"
