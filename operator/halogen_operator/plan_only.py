"""What a spec would do, told instead of done: `status.plan`, from what a pod's daemon answered.

Pure. Owns which part of a daemon's plan stands in a status: what an approver reads. The whole of it is
`halogend plan` in the pod.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from halogen_operator import answers
from halogen_operator.conditions import cut
from halogen_operator.engine_view import problem_text, short
from halogen_operator.pods import PodState
from halogen_operator.wanted import Wanted

_MOST_LINES = 16
_MOST_CHANGES = 64
_LINE_CHARACTERS = 1024
_WORD_CHARACTERS = 316
_NOTHING = answers.Plan(outcome="")
_NO_MODEL = answers.ModelPlan(action="")


def asked(states: Sequence[PodState]) -> PodState | None:
    """The pod that is asked for a plan: the first that is ready and answers, else that answers; None: there is none."""
    answering = sorted((each for each in states if each.is_there and each.engine is not None), key=lambda e: e.name)
    return next((each for each in answering if each.pod.is_ready), answering[0] if answering else None)


def plan(
    wanted: Wanted, state: PodState | None, answer: answers.Plan | None, *, replaces_pods: bool, trouble: str = ""
) -> dict[str, Any]:
    """`answer` is a daemon's plan, None where none was had (`trouble` says why); only with one is there a `pod`.
    `replaces_pods`: the Deployment's template would be another one."""
    told = answer or _NOTHING
    model = next((each for each in told.models if each.action != "remove"), _NO_MODEL)
    found = {
        "generation": wanted.generation,
        "pod": None if state is None or answer is None else state.name,
        "outcome": told.outcome or ("changes" if replaces_pods else None),
        "current": short(told.revision.current),
        "planned": short(wanted.revision),
        "action": model.action,
        "strategy": model.strategy,
        "steps": list(model.steps[:_MOST_CHANGES]),
        "changes": [_change(each) for each in (*model.changes, *told.server_changes)[:_MOST_CHANGES]],
        "replacesPods": replaces_pods,
        "loadSeconds": None if model.load is None else round(model.load.expected_s, 1),
        "problems": [problem_text(each) for each in told.problems[:_MOST_LINES]],
        "warnings": _warnings(state, told, model.drain, trouble),
    }
    return {key: value for key, value in found.items() if value not in (None, [], "")}


def _change(change: answers.Change) -> dict[str, str]:
    found = {"field": cut(change.field, _WORD_CHARACTERS)}
    for key, value in (("old", change.old), ("new", change.new)):
        if value is not None:
            found[key] = cut(_words(value), _LINE_CHARACTERS)
    return found | ({"apply": change.kind} if change.kind else {})


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _warnings(state: PodState | None, told: answers.Plan, drain: answers.Drain | None, trouble: str) -> list[str]:
    found = list(told.warnings)
    if drain is not None and drain.may_outlive:
        limit_s = round(drain.limit_s)
        found.append(f"{drain.may_outlive} running requests may not be done when the drain ends, after {limit_s} s")
    if state is None:
        found.append("no pod answers that could be asked: what its files and devices say is not known")
    if trouble:
        found.append(trouble)
    return [cut(each, _LINE_CHARACTERS) for each in found[:_MOST_LINES]]
