"""The status of a HalogenModel, case by case: conditions, reasons, revisions, pods, and what kstatus makes of it."""

import datetime as dt
import json
from dataclasses import replace
from typing import Any

import pytest
from halogen_operator.conditions import find
from halogen_operator.events import events
from halogen_operator.observed import Observed
from halogen_operator.pods import PodState, Trouble
from halogen_operator.reasons import OF, REASONS, Kind, Why
from halogen_operator.rollout import decide
from halogen_operator.status import active_revision, status
from halogen_operator.wanted import Refusal, Wanted
from hypothesis import given, settings
from hypothesis import strategies as st
from support.operator_values import (
    BARE,
    NOW,
    engine,
    fresh,
    model,
    pod,
    problem,
    receipt,
    refusal,
    serving,
    waiting,
    wanted,
)

from halogend.config.custom_resource import tupled
from halogend.config.custom_resource_status import HalogenModelStatus

OLD, NEW = wanted(), wanted(max_batch=7, generation=2)
TEMPLATE = {"spec": {"template": {"metadata": {"annotations": {"halogen.dev/template": "t2"}}}}}


def told(of, states=(), previous=None, now=NOW, **seen: Any) -> dict[str, Any]:
    """The status, which the CRD's schema must take and whose reasons the table must have."""
    if not isinstance(of, Refusal):
        template = "t2" if seen.get("deployment") else ""
        seen.setdefault("rollout", decide(of, states, template))
    found = status(of, Observed(states=tuple(states), **seen), previous or {}, now)
    assert json.loads(json.dumps(found)) == found
    HalogenModelStatus.model_validate(tupled(found))
    for each in found["conditions"]:
        assert each["observedGeneration"] == found["observedGeneration"] == of.generation
        assert (Kind(each["type"]), each["status"]) in OF[Why(each["reason"])].kinds
    return found


def conditions(found: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: f"{each['status']} {each['reason']}" for each in found["conditions"]}


def message(found: dict[str, Any], kind: Kind) -> str:
    return str(find(found, kind)["message"])


def kstatus(found: dict[str, Any], generation: int) -> str:
    """What tools that follow kstatus make of it (cli-utils, pkg/kstatus/status: the generic rules, in their order)."""
    if found.get("observedGeneration") != generation:
        return "InProgress"
    if find(found, Kind.RECONCILING).get("status") == "True":
        return "InProgress"
    if find(found, Kind.STALLED).get("status") == "True":
        return "Failed"
    return "Current" if find(found, Kind.READY).get("status") == "True" else "InProgress"


def later(seconds: float) -> dt.datetime:
    return NOW + dt.timedelta(seconds=seconds)


def test_it_serves() -> None:
    found = told(NEW, [serving(NEW)])
    assert conditions(found) == {
        "Ready": "True Serving",
        "Validated": "True Accepted",
        "Reconciling": "False Serving",
        "Stalled": "False AsAsked",
        "Degraded": "False AsAsked",
    }
    assert kstatus(found, 2) == "Current"
    assert kstatus(found, 3) == "InProgress"  # an edit that nobody has seen yet
    assert found["active"] == {"revision": NEW.revision[:12]}
    assert found["desired"] == {"revision": NEW.revision[:12], "generation": 2}
    assert (found["replicas"], found["readyReplicas"], found["updatedReplicas"]) == (1, 1, 1)
    assert found["selector"] == "app.kubernetes.io/name=halogend,app.kubernetes.io/instance=chat,halogen.dev/model=chat"
    assert found["pods"] == [
        {
            "name": "chat-a",
            "ready": True,
            "revision": NEW.revision[:12],
            "desired": NEW.revision[:12],
            "receipt": "r1",
            "outcome": "applied",
        }
    ]
    assert found["lastReceipt"]["id"] == "r1"
    assert "progress" not in found
    assert message(found, Kind.READY) == f"1 of 1 pods serve by revision {NEW.revision[:12]}"


def test_nothing_is_there_yet() -> None:
    found = told(OLD)
    assert conditions(found)["Ready"] == "False Progressing"
    assert conditions(found)["Validated"] == "Unknown NotJudged"
    assert conditions(found)["Reconciling"] == "True Progressing"
    assert kstatus(found, 1) == "InProgress"
    assert "active" not in found
    assert message(found, Kind.READY) == "nothing serves; 0 of 1 pods serve; waiting for pods: 1 to come"


def test_o2_a_refused_spec_is_never_ready_and_says_where_and_what_serves_on() -> None:
    bad = refusal(generation=3, watermarks={"soft": 0.9, "hard": 0.5})
    found = told(bad, [serving(NEW)])
    assert conditions(found) == {
        "Ready": "False Rejected",
        "Validated": "False Rejected",
        "Reconciling": "False Rejected",
        "Stalled": "True Rejected",
        "Degraded": "False AsAsked",
    }
    assert kstatus(found, 3) == "Failed"
    assert found["active"] == {"revision": NEW.revision[:12]}
    assert "desired" not in found
    assert message(found, Kind.READY).startswith(f"revision {NEW.revision[:12]} serves on; spec.watermarks")
    assert "spec.watermarks" in message(found, Kind.VALIDATED)
    assert (found["readyReplicas"], found["updatedReplicas"]) == (1, 0)


def refused_by(outcome: str, code: str = "HCF-1019") -> PodState:
    record = receipt(NEW, outcome, number=2, problems=[problem("models[0].watermarks.soft", code=code)])
    desired = OLD if outcome == "rejected" else NEW
    return PodState(pod(), engine(desired, active=OLD, receipts=[record, receipt(OLD)]))


def test_o2_a_spec_that_a_pod_rejects_is_stalled_and_the_revision_before_serves_on() -> None:
    found = told(NEW, [refused_by("rejected")])
    assert conditions(found) == {
        "Ready": "False Rejected",
        "Validated": "False Rejected",
        "Reconciling": "False Rejected",
        "Stalled": "True Rejected",
        "Degraded": "False AsAsked",
    }
    assert found["active"]["revision"] == OLD.revision[:12] != found["desired"]["revision"]
    text = f"revision {OLD.revision[:12]} serves on; spec.watermarks.soft: HCF-1019: soft must be below hard (lower it)"
    assert message(found, Kind.READY) == f"{text} (chat-a, receipt r2)"
    assert found["lastReceipt"]["problems"] == ["spec.watermarks.soft: HCF-1019: soft must be below hard (lower it)"]
    assert found["pods"][0]["outcome"] == "rejected"
    assert kstatus(found, 2) == "Failed"


@pytest.mark.parametrize(
    ("outcome", "why"),
    [("failed", "LoadFailed"), ("partially_applied", "LoadFailed"), ("rolled_back", "RolledBack")],
)
def test_o2_a_generation_that_does_not_run_is_never_ready(outcome, why) -> None:
    found = conditions(told(NEW, [refused_by(outcome)]))
    assert (found["Ready"], found["Stalled"], found["Validated"]) == (f"False {why}", f"True {why}", "True Accepted")


def test_changes_that_somebody_holds() -> None:
    found = told(NEW, [refused_by("rejected", code="HRT-1018")])
    assert conditions(found)["Stalled"] == "True ChangesHeld"
    assert conditions(found)["Validated"] == "Unknown NotJudged"
    held = PodState(pod(), engine(NEW, hold={"since": 0, "by": "uid:0"}))
    found = told(NEW, [held])
    assert (conditions(found)["Ready"], conditions(found)["Degraded"]) == ("True Serving", "True ChangesHeld")


def test_an_edit_is_on_its_way() -> None:
    loading = engine(NEW, active=OLD, models={"chat": model(loaded=(43, 100))}, receipts=[receipt(NEW, None)])
    found = told(NEW, [PodState(pod(), loading)])
    assert conditions(found) == {
        "Ready": "False Progressing",
        "Validated": "True Accepted",
        "Reconciling": "True Progressing",
        "Stalled": "False Progressing",
        "Degraded": "False AsAsked",
    }
    assert message(found, Kind.RECONCILING) == "0 of 1 pods serve; waiting for chat-a to serve: weights, 40 %"
    assert found["active"]["revision"] == OLD.revision[:12]
    assert found["progress"] == {"generation": 2, "at": "2026-05-04T12:00:00Z", "mark": "0.0.1.1.1.40"}


def test_scaled_to_zero() -> None:
    none = wanted(replicas=0, generation=2)
    found = told(none, [])
    assert conditions(found)["Ready"] == "True ScaledToZero"
    assert kstatus(found, 2) == "Current"
    assert conditions(told(none, [serving(none)]))["Ready"] == "False Progressing"


def test_enough_pods_serve_and_one_is_missing() -> None:
    three = wanted(replicas=3)
    there = [serving(three, "chat-a"), serving(three, "chat-b"), fresh("chat-c")]
    found = told(three, there)
    assert (conditions(found)["Ready"], conditions(found)["Degraded"]) == ("True Serving", "False AsAsked")
    assert kstatus(found, 1) == "InProgress"
    past = told(three, there, found, later(601))
    assert (conditions(past)["Ready"], conditions(past)["Degraded"]) == ("True Serving", "True TooFewPods")
    assert message(past, Kind.DEGRADED) == "2 of 3 pods serve"
    assert kstatus(past, 1) == "Failed"
    two_missing = told(three, [serving(three, "chat-a"), fresh("chat-b"), fresh("chat-c")])
    assert conditions(two_missing)["Ready"] == "False Progressing"


def test_o2_as_long_as_one_pod_answers_by_something_else_it_is_not_ready() -> None:
    three = wanted(replicas=3, max_batch=7, generation=2)
    found = told(three, [serving(three, "chat-a"), serving(three, "chat-b"), serving(OLD, "chat-c")])
    assert conditions(found)["Ready"] == "False Progressing"
    assert found["updatedReplicas"] == 2


def test_pods_of_an_old_template_are_not_the_generation_that_is_asked_for() -> None:
    old = told(NEW, [serving(NEW, template="t1")], deployment=TEMPLATE)
    assert conditions(old)["Ready"] == "False Progressing"
    assert old["updatedReplicas"] == 0
    new = told(NEW, [serving(NEW, template="t2")], deployment=TEMPLATE)
    assert conditions(new)["Ready"] == "True Serving"


def test_o2_what_the_api_server_refuses_is_not_running_however_well_the_old_serves() -> None:
    """An image or resources that a policy refuses: pods and document are as before, and so is the Deployment."""
    refused = {"troubles": (Trouble(Why.CHILD_REFUSED, "Deployment chat: no such runtime"),), "is_behind": True}
    found = told(NEW, [serving(NEW)], **refused)
    assert conditions(found)["Ready"] == "False Progressing"
    assert conditions(found)["Degraded"] == "True ChildRefused"
    assert "Deployment chat: no such runtime" in message(found, Kind.READY)
    assert "waiting for the API server to take what it refuses" in message(found, Kind.RECONCILING)
    assert kstatus(found, 2) == "InProgress"
    past = told(NEW, [serving(NEW)], found, later(601), **refused)
    assert (conditions(past)["Ready"], conditions(past)["Stalled"]) == ("False ChildRefused", "True ChildRefused")
    assert kstatus(past, 2) == "Failed"
    none = wanted(replicas=0, generation=2)
    assert conditions(told(none, [], **refused))["Ready"] == "False Progressing"
    optional = {"troubles": (Trouble(Why.CHILD_REFUSED, "ServiceMonitor chat: no such kind"),)}
    assert conditions(told(NEW, [serving(NEW)], **optional))["Ready"] == "True Serving"


# --- the deadline -------------------------------------------------------------------------------------


def test_o11_past_the_deadline_a_pod_that_nobody_takes_is_told() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes: no gpu"}
    states = [PodState(pod(ready=False, podIP="", conditions=[condition]), None, "it does not run yet")]
    before = told(OLD, states)
    assert conditions(before)["Stalled"] == "False Progressing"
    assert "chat-a: 0/3 nodes: no gpu" in message(before, Kind.READY)
    almost = told(OLD, states, before, later(599))
    assert conditions(almost) == conditions(before)
    past = told(OLD, states, almost, later(600))
    assert conditions(past)["Stalled"] == "True Unschedulable"
    assert conditions(past)["Reconciling"] == "False Unschedulable"
    assert conditions(past)["Ready"] == "False Unschedulable"
    assert message(past, Kind.STALLED).startswith("nothing moved for 600 s; ")
    assert kstatus(past, 1) == "Failed"
    again = told(OLD, [fresh()], past, later(700))
    assert conditions(again)["Stalled"] == "False Progressing"
    assert again["progress"]["at"] == "2026-05-04T12:11:40Z"


STUCK = [
    (PodState(pod(ready=False, containerStatuses=[waiting("ImagePullBackOff")])), {}, "ImagePull"),
    (PodState(pod(ready=False, containerStatuses=[waiting("CrashLoopBackOff")])), {}, "CrashLoop"),
    (PodState(pod(ready=False), engine(OLD, active=BARE, models={"chat": model("failed")})), {}, "EngineFailed"),
    (PodState(pod(ready=False), None, "it did not answer in time"), {}, "AdminUnreachable"),
    (fresh(), {"troubles": (Trouble(Why.CHILD_REFUSED, "quota"),)}, "ChildRefused"),
    (fresh(), {}, "ProgressDeadlineExceeded"),
]


@pytest.mark.parametrize(("state", "seen", "why"), STUCK)
def test_o11_what_it_is_that_does_not_move(state, seen, why) -> None:
    short = wanted(update={"progressDeadlineSeconds": 10})
    past = told(short, [state], told(short, [state], **seen), later(10), **seen)
    assert conditions(past)["Stalled"] == f"True {why}"


def test_what_it_waits_for_is_said_once() -> None:
    silent = told(OLD, [PodState(pod(ready=False), None, "it did not answer in time")])
    assert message(silent, Kind.RECONCILING) == (
        "0 of 1 pods serve; waiting for the daemon of chat-a: it did not answer in time"
    )
    dead = {"chat": model("failed", trouble="HRT-1012: no memory")}
    failed = told(OLD, [PodState(pod(ready=False), engine(OLD, active=BARE, models=dead))])
    assert message(failed, Kind.RECONCILING) == "0 of 1 pods serve; waiting for chat-a to serve: HRT-1012: no memory"


def test_o11_a_deployment_that_may_not_make_pods() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    deployment = {**TEMPLATE, "status": {"conditions": [failure]}}
    past = told(OLD, [], told(OLD, [], deployment=deployment), later(601), deployment=deployment)
    assert conditions(past)["Stalled"] == "True PodsNotMade"
    assert "exceeded quota" in message(past, Kind.STALLED)


def loading(percent: int) -> PodState:
    models = {"chat": model("loading", loaded=(percent, 100))}
    return PodState(pod(ready=False), engine(OLD, active=BARE, models=models, receipts=[receipt(OLD, None)]))


def test_a_large_model_may_load_for_hours_as_long_as_it_loads() -> None:
    found = told(OLD, [loading(0)])
    for step in range(1, 20):
        found = told(OLD, [loading(5 * step)], found, later(590 * step))
        assert conditions(found)["Stalled"] == "False Progressing"
    stuck = told(OLD, [loading(95)], found, later(590 * 19 + 600))
    assert conditions(stuck)["Stalled"] == "True ProgressDeadlineExceeded"
    moved = told(OLD, [loading(100)], stuck, later(590 * 19 + 700))
    assert conditions(moved)["Stalled"] == "False Progressing"


def test_a_probation_is_no_standstill() -> None:
    tried = wanted(probation={"s": 300}, generation=2, replicas=2)
    models = {"chat": model(probation={"left_s": 12.3})}
    there = [PodState(pod("chat-a"), engine(tried, models=models, receipts=[receipt(tried)])), serving(OLD, "chat-b")]
    found = told(tried, there)
    assert conditions(told(tried, there, found, later(899)))["Stalled"] == "False Progressing"
    assert conditions(told(tried, there, found, later(900)))["Stalled"] == "True ProgressDeadlineExceeded"


def test_a_pod_that_starts_again_and_again_does_not_move() -> None:
    crashing = PodState(pod(ready=False, containerStatuses=[waiting("CrashLoopBackOff")]), None, "refused")
    found: dict[str, Any] = {}
    for turn in range(8):
        found = told(OLD, [loading(30) if turn % 2 else crashing], found, later(150 * turn))
    assert conditions(found)["Stalled"].startswith("True")


def test_the_deadline_begins_anew_with_each_generation() -> None:
    found = told(OLD, [fresh()])
    found = told(NEW, [fresh()], found, later(599))
    assert found["progress"]["generation"] == 2
    assert conditions(told(NEW, [fresh()], found, later(1000)))["Stalled"] == "False Progressing"


@pytest.mark.parametrize("progress", [{"at": "yesterday"}, {"mark": "all"}, {"at": "2027-01-01T00:00:00Z"}, {}])
def test_a_status_that_somebody_spoilt_is_begun_anew(progress) -> None:
    before = told(OLD, [fresh()])
    spoilt = {**before, "progress": {**before["progress"], **progress} if progress else None}
    found = told(OLD, [fresh()], spoilt, later(5))
    assert found["progress"]["generation"] == 1
    assert conditions(found)["Stalled"] == "False Progressing"


# --- plan only ----------------------------------------------------------------------------------------

HELD_BACK = wanted(max_batch=7, generation=2, annotations={"halogen.dev/plan-only": "true"})


def test_plan_only_is_told_and_not_done() -> None:
    found = told(HELD_BACK, [serving(OLD)], plan={"generation": 2, "outcome": "changes"})
    assert conditions(found) == {
        "Ready": "False PlanOnly",
        "Validated": "Unknown NotJudged",
        "Reconciling": "False PlanOnly",
        "Stalled": "False AsAsked",
        "Degraded": "False AsAsked",
    }
    assert found["plan"] == {"generation": 2, "outcome": "changes"}
    assert found["active"]["revision"] == OLD.revision[:12]
    same = told(HELD_BACK, [serving(HELD_BACK)], plan={"outcome": "unchanged"})
    assert conditions(same)["Ready"] == "True Serving"


def test_o2_a_plan_that_would_replace_pods_is_not_what_serves() -> None:
    """The document is the same; image, resources or placement are not."""
    found = told(HELD_BACK, [serving(HELD_BACK)], plan={"outcome": "changes", "replacesPods": True}, is_behind=True)
    assert conditions(found)["Ready"] == "False PlanOnly"
    assert kstatus(found, 2) == "InProgress"


def test_a_plan_that_would_be_rejected() -> None:
    problems = ["spec.model: HCF-1040: no such folder"]
    found = told(HELD_BACK, [serving(OLD)], plan={"outcome": "rejected", "problems": problems})
    assert (conditions(found)["Stalled"], conditions(found)["Validated"]) == ("True Rejected", "False Rejected")
    assert problems[0] in message(found, Kind.VALIDATED)


# --- what is degraded ---------------------------------------------------------------------------------


def test_what_serves_and_is_not_as_it_should_be() -> None:
    changed = {"chat": model(degraded="InputsChanged: weights are other ones")}
    found = told(OLD, [PodState(pod(), engine(OLD, models=changed))])
    assert (conditions(found)["Ready"], conditions(found)["Degraded"]) == ("True Serving", "True EngineDegraded")
    assert message(found, Kind.DEGRADED) == "chat-a: InputsChanged: weights are other ones"
    assert found["pods"][0]["message"] == "InputsChanged: weights are other ones"
    silent = told(OLD, [PodState(pod(), None, "it did not answer in time")])
    assert conditions(silent)["Degraded"] == "True AdminUnreachable"
    broken = told(OLD, [serving(OLD)], troubles=(Trouble(Why.SECRET_BROKEN, "chat-admin has no usable tls.key"),))
    assert conditions(broken)["Degraded"] == "True SecretBroken"


def silent(name: str = "chat-a", **more: Any) -> PodState:
    return PodState(pod(name, **more), None, "it did not answer in time")


def test_o2_a_pod_that_is_ready_and_cannot_be_asked_serves_what_it_served() -> None:
    """That the way from the operator to a pod is cut ends no request, and makes no edit."""
    before = told(NEW, [serving(NEW)])
    found = told(NEW, [silent()], before, later(60))
    assert conditions(found) == {**conditions(before), "Degraded": "True AdminUnreachable"}
    assert kstatus(found, 2) == "Current"
    kept = ("active", "lastReceipt", "updatedReplicas")
    assert [found[each] for each in kept] == [before[each] for each in kept]
    assert found["pods"] == [{**before["pods"][0], "message": "it did not answer in time"}]
    assert told(NEW, [silent()], found, later(7200)) == found
    assert conditions(told(NEW, [serving(NEW)], found, later(7200))) == conditions(before)


@pytest.mark.parametrize(
    ("of", "state"),
    [(NEW, silent(ready=False)), (NEW, silent("chat-b")), (wanted(max_batch=8, generation=3), silent())],
    ids=["not ready", "another pod", "another document"],
)
def test_o2_what_nobody_knows_to_serve_is_not_ready(of, state) -> None:
    found = told(of, [state], told(NEW, [serving(NEW)]), later(60))
    assert conditions(found)["Ready"] == "False Progressing"
    assert found["updatedReplicas"] == 0


def test_what_serves_meanwhile_is_told_of_a_pod_that_cannot_be_asked_too() -> None:
    bad = refusal(generation=3, watermarks={"soft": 0.9, "hard": 0.5})
    found = told(bad, [silent()], told(NEW, [serving(NEW)]), later(60))
    assert message(found, Kind.READY).startswith(f"revision {NEW.revision[:12]} serves on; spec.watermarks")
    gone = told(bad, [silent(ready=False)], found, later(120))
    assert message(gone, Kind.READY).startswith("nothing serves; ")


def test_a_daemon_that_counts_the_same_document_otherwise_serves_what_is_desired() -> None:
    """One of another release: its own record says that it is what it was handed."""
    theirs = "abcdef012345" + 52 * "0"
    record = {**receipt(NEW), "revision": theirs}
    view = engine(NEW, receipts=[record])
    other = replace(view, desired=theirs[:12], active=theirs[:12], document="otherwise")
    found = told(NEW, [PodState(pod(), other)])
    assert conditions(found)["Ready"] == "True Serving"
    assert found["active"]["revision"] == found["desired"]["revision"] == found["pods"][0]["revision"]


# --- what stays ---------------------------------------------------------------------------------------


def test_o9_the_same_is_the_same_to_the_byte_and_times_move_with_the_status_alone() -> None:
    first = told(NEW, [serving(NEW)])
    assert told(NEW, [serving(NEW)], first, later(3600)) == first
    edited = told(wanted(max_batch=8, generation=3), [serving(NEW)], first, later(60))
    moved = {each["type"]: each["lastTransitionTime"] for each in edited["conditions"]}
    assert moved == {
        "Ready": "2026-05-04T12:01:00Z",
        "Validated": "2026-05-04T12:01:00Z",
        "Reconciling": "2026-05-04T12:01:00Z",
        "Stalled": "2026-05-04T12:00:00Z",
        "Degraded": "2026-05-04T12:00:00Z",
    }
    again = told(wanted(max_batch=8, generation=3), [serving(NEW)], edited, later(120))
    assert again == edited


def test_conditions_of_others_are_not_kept_and_all_five_are_there_always() -> None:
    foreign = {"conditions": [{"type": "Foreign", "status": "True", "lastTransitionTime": "x"}]}
    found = told(NEW, [serving(NEW)], foreign)
    assert [each["type"] for each in found["conditions"]] == [each.value for each in Kind]


def test_at_most_32_pods_are_shown_those_with_something_to_tell_first() -> None:
    many = wanted(replicas=40)
    states = [serving(many, f"chat-{number:02}") for number in range(39)] + [fresh("chat-99")]
    found = told(many, states)
    assert len(found["pods"]) == 32
    assert found["pods"][0]["name"] == "chat-99"
    assert (found["replicas"], found["updatedReplicas"]) == (40, 39)


def test_the_active_revision_is_the_one_that_most_requests_are_answered_by() -> None:
    old, new = OLD.revision[:12], NEW.revision[:12]

    def active(states: list[PodState]) -> str | None:
        return active_revision(Observed(tuple(states), decide(NEW, states)), new)

    mixed = [serving(OLD, "a"), serving(OLD, "b"), serving(NEW, "c")]
    assert active(mixed) == old
    assert active(mixed[1:]) == old
    assert active([*mixed[1:], serving(NEW, "d")]) == new
    assert active([fresh()]) is None


# --- whatever is seen -----------------------------------------------------------------------------------

SPECS = [
    NEW,
    wanted(max_batch=7, generation=3, replicas=3),
    wanted(replicas=0, generation=4),
    wanted(max_batch=7, generation=2, annotations={"halogen.dev/plan-only": "true"}),
    refusal(generation=5, watermarks={"soft": 0.9, "hard": 0.5}),
]


def _views(name: str) -> list[PodState]:
    loading = {"chat": model(loaded=(3, 10))}
    dead = {"chat": model("failed", trouble="no memory")}
    return [
        serving(NEW, name),
        serving(OLD, name),
        serving(NEW, name, ready=False),
        fresh(name),
        PodState(pod(name), None, "it did not answer in time"),
        PodState(pod(name, ready=False, podIP=""), None, "it does not run yet"),
        PodState(pod(name, ready=False, containerStatuses=[waiting("CrashLoopBackOff")]), None, "refused"),
        PodState(pod(name), engine(NEW, active=OLD, models=loading, receipts=[receipt(NEW, None)])),
        PodState(pod(name), engine(OLD, receipts=[receipt(NEW, "rejected")])),
        PodState(pod(name), engine(NEW, active=OLD, receipts=[receipt(NEW, "failed")])),
        PodState(pod(name, ready=False), engine(NEW, models=dead, receipts=[receipt(NEW)])),
        PodState(pod(name), engine(NEW, hold={"since": 0, "by": "uid:0"})),
        PodState(pod(name, phase="Failed"), None, "it is on its way out"),
    ]


SEEN = st.tuples(*(st.sampled_from(_views(f"chat-{letter}")) for letter in "abc"), st.integers(0, 3))


@given(st.lists(st.tuples(st.sampled_from(SPECS), SEEN, st.integers(0, 700)), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_o2_o9_whatever_is_seen_a_status_is_sound_and_written_once(looks: list[Any]) -> None:
    """Ready means that what is asked for is what is answered by; looking again gives the same to the byte."""
    found: dict[str, Any] = {}
    now = NOW
    for of, (*pods, count), seconds in looks:
        now += dt.timedelta(seconds=seconds)
        states = pods[:count]
        found = told(of, states, found, now)
        assert told(of, states, found, now) == found
        assert events(found, found) == ()
        is_true = {each["type"] for each in found["conditions"] if each["status"] == "True"}
        assert not {"Reconciling", "Stalled"} <= is_true
        if "Ready" in is_true and not (isinstance(of, Wanted) and of.spec.replicas == 0):
            assert found["active"]["revision"] == found["desired"]["revision"]
            assert found["updatedReplicas"] == found["readyReplicas"] > 0
        if isinstance(of, Refusal):
            assert is_true & {"Ready", "Stalled"} == {"Stalled"}


# --- the table ----------------------------------------------------------------------------------------


def test_every_reason_is_in_the_table_once() -> None:
    assert [each.why for each in REASONS] == list(Why)
    assert all(each.meaning.endswith(".") and each.kinds for each in REASONS)
