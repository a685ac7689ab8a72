"""A pod runs what an image holds: whatever its answers are, they are refused, or a status can be made of them."""

import copy
from typing import Any

import pytest
from halogen_operator import answers
from halogen_operator.observed import Observed
from halogen_operator.plan_only import plan
from halogen_operator.pods import PodState
from halogen_operator.rollout import decide
from halogen_operator.status import status
from hypothesis import given, settings
from hypothesis import strategies as st
from support.operator_values import NOW, model, pod, problem, receipt, serving, view, wanted

from halogend.config.custom_resource import tupled
from halogend.config.custom_resource_status import HalogenModelStatus, PlanStatus

NEW = wanted(max_batch=7, generation=2)
STATUS = {
    "version": "0.1.0",
    "revision": {"desired": NEW.revision[:12], "active": NEW.revision[:12]},
    "settled": False,
    "models": {"chat": model(loaded=(3, 10), trouble="no memory", degraded="InputsChanged")},
    "hold": {"since": 0.0, "by": "uid:0", "put_off": False},
}
RECEIPTS = [
    receipt(
        NEW,
        "failed",
        problems=[problem("models[0].model")],
        models=[{"model": "chat", "error": "no memory"}],
    ),
    receipt(NEW, None, generation=1),
]
PLAN = {
    "outcome": "changes",
    "revision": {"current": "0123456789ab", "planned": NEW.revision[:12]},
    "problems": [problem("models[0].model")],
    "models": [
        {
            "action": "replace",
            "strategy": "overlap",
            "steps": ["load"],
            "changes": [{"field": "max_batch", "old": 64, "new": 7, "class": "live"}],
            "load": {"expected_s": 12.34},
            "drain": {"limit_s": 30.0, "running": 3, "may_outlive": 2},
        }
    ],
    "server_changes": [{"field": "server.port", "old": 1, "new": [2], "class": "listener"}],
    "warnings": ["link 0-1 is slow"],
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys: list[Any] = list(value) if isinstance(value, dict) else []
    keys = list(range(len(value))) if isinstance(value, list) else keys
    return [place for key in keys for place in ((*at, key), *_places(value[key], (*at, key)))]


WHOLE = {"status": STATUS, "receipts": RECEIPTS}


def _with(whole: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    made = copy.deepcopy(whole)
    around: Any = made
    for key in place[:-1]:
        around = around[key]
    around[place[-1]] = value
    return made


@given(st.sampled_from(_places(PLAN)), VALUES)
@settings(max_examples=200, deadline=None)
def test_one_part_of_a_plan_that_is_something_else(place: tuple[Any, ...], value: Any) -> None:
    try:
        told = answers.read(_with(PLAN, place, value), answers.Plan)
    except ValueError:
        return
    found = plan(NEW, serving(NEW), told, replaces_pods=False)
    PlanStatus.model_validate(tupled(found))


@given(st.sampled_from(_places(WHOLE)), VALUES)
@settings(max_examples=300, deadline=None)
def test_one_part_that_is_something_else(place: tuple[Any, ...], value: Any) -> None:
    changed = _with(WHOLE, place, value)
    try:
        seen = view(changed["status"], NEW.document, NEW.revision, changed["receipts"])
    except ValueError:
        return
    state = PodState(pod(), seen)
    found = status(NEW, Observed((state,), decide(NEW, [state])), {}, NOW)
    HalogenModelStatus.model_validate(tupled(found))


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"a":' * 100_000, b'{"a": NaN}', b'{"a": 1e999}', b'{"a": "\\ud800"}', b'{"a": "\xff"}', b"[]"],
)
def test_what_is_no_json_object_that_others_could_read(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        answers.decoded(body)
