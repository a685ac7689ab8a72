"""What a spec would do, told instead of done: `status.plan`, from what a pod's daemon answered.

Pure. Owns which part of a daemon's plan stands in a status: what an approver reads. The whole of it is
`halogend plan` in the pod.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from halogen_operator.conditions import cut
from halogen_operator.engine_view import problem_text, short
from halogen_operator.pods import PodState
from halogen_operator.wanted import Wanted

_MOST_LINES = 16
_MOST_CHANGES = 64
_LINE_CHARACTERS = 1024
_WORD_CHARACTERS = 316


def asked(states: Sequence[PodState]) -> PodState | None:
    """The pod that is asked for a plan: the first that is ready and answers, else that answers; None: there is none."""
    answering = sorted((each for each in states if each.is_there and each.engine is not None), key=lambda e: e.name)
    return next((each for each in answering if each.pod.is_ready), answering[0] if answering else None)


def plan(
    wanted: Wanted, state: PodState | None, answer: Mapping[str, Any] | None, *, replaces_pods: bool, trouble: str = ""
) -> dict[str, Any]:
    """`answer` is a daemon's plan, None where none was had (`trouble` says why). `replaces_pods`: the Deployment's
    template would be another one."""
    known = answer or {}
    models = known.get("models") or ()
    model: Mapping[str, Any] = next((each for each in models if each.get("action") != "remove"), {})
    found = {
        "generation": wanted.generation,
        "pod": None if state is None else state.name,
        "outcome": known.get("outcome") or ("changes" if replaces_pods else None),
        "current": (known.get("revision") or {}).get("current"),
        "planned": short(wanted.revision),
        "action": model.get("action"),
        "strategy": model.get("strategy"),
        "steps": list(model.get("steps") or ())[:_MOST_CHANGES],
        "changes": _changes(model, known),
        "replacesPods": replaces_pods,
        "loadSeconds": _seconds(model),
        "problems": [problem_text(each) for each in known.get("problems") or ()][:_MOST_LINES],
        "warnings": _warnings(state, known, model, trouble),
    }
    return {key: value for key, value in found.items() if value not in (None, [], "")}


def _changes(model: Mapping[str, Any], plan: Mapping[str, Any]) -> list[dict[str, str]]:
    every = [*(model.get("changes") or ()), *(plan.get("server_changes") or ())]
    return [_change(each) for each in every[:_MOST_CHANGES]]


def _change(change: Mapping[str, Any]) -> dict[str, str]:
    found = {"field": cut(str(change.get("field")), _WORD_CHARACTERS)}
    for key in ("old", "new"):
        if change.get(key) is not None:
            found[key] = cut(_words(change[key]), _LINE_CHARACTERS)
    if change.get("class"):
        found["apply"] = cut(str(change["class"]), _WORD_CHARACTERS)
    return found


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _seconds(model: Mapping[str, Any]) -> float | None:
    seconds = (model.get("load") or {}).get("expected_s")
    return round(float(seconds), 1) if isinstance(seconds, int | float) else None


def _warnings(state: PodState | None, plan: Mapping[str, Any], model: Mapping[str, Any], trouble: str) -> list[str]:
    found = [str(each) for each in plan.get("warnings") or ()]
    drain = model.get("drain") or {}
    if drain.get("may_outlive"):
        limit_s = round(float(drain.get("limit_s") or 0))
        found.append(f"{drain['may_outlive']} running requests may not be done when the drain ends, after {limit_s} s")
    if state is None:
        found.append("no pod answers that could be asked: what its files and devices say is not known")
    if trouble:
        found.append(trouble)
    return [cut(each, _LINE_CHARACTERS) for each in found[:_MOST_LINES]]
