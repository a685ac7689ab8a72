"""Events: one for each turn that a person may act on, none for what merely goes on."""

from halogen_operator.events import events
from halogen_operator.observed import Observed
from halogen_operator.pods import PodState
from halogen_operator.rollout import decide
from halogen_operator.status import status
from halogen_operator.wanted import Refusal
from support.operator_values import NOW, engine, fresh, model, pod, problem, receipt, refusal, serving, wanted

OLD, NEW = wanted(), wanted(max_batch=7, generation=2)


def told(of, *states):
    rollout = {} if isinstance(of, Refusal) else {"rollout": decide(of, states)}
    return status(of, Observed(states=states, **rollout), {}, NOW)


def turn(before, after):
    return [(each.type, each.reason) for each in events(before, after)]


LOADING = PodState(pod(), engine(NEW, active=OLD, models={"chat": model(loaded=(1, 2))}, receipts=[receipt(NEW, None)]))
REJECTED = PodState(pod(), engine(OLD, receipts=[receipt(NEW, "rejected", problems=[problem("models[0].model")])]))


def test_an_edit_from_its_beginning_to_its_end() -> None:
    first, serves = told(OLD, fresh()), told(OLD, serving(OLD))
    begun, done = told(NEW, LOADING), told(NEW, serving(NEW))
    assert turn({}, first) == [("Normal", "Progressing")]
    assert turn(first, serves) == [("Normal", "Serving")]
    assert turn(serves, begun) == [("Normal", "Progressing")]
    assert turn(begun, done) == [("Normal", "Serving")]
    assert turn(serves, done) == [("Normal", "Serving")]  # between two rounds
    assert events(serves, begun)[0].message == f"revision {NEW.revision[:12]} is on its way to the pods"


def test_what_goes_on_is_no_event() -> None:
    more = PodState(
        pod(), engine(NEW, active=OLD, models={"chat": model(loaded=(2, 2))}, receipts=[receipt(NEW, None)])
    )
    assert turn(told(NEW, LOADING), told(NEW, more)) == []
    assert turn(told(NEW, serving(NEW)), told(NEW, serving(NEW))) == []
    scaled = wanted(max_batch=7, generation=3, replicas=2)
    assert turn(told(NEW, serving(NEW)), told(scaled, serving(NEW), fresh("chat-b"))) == []


def test_a_bad_spec_and_back_to_good() -> None:
    serves, stopped = told(OLD, serving(OLD)), told(NEW, REJECTED)
    assert turn(serves, stopped) == [("Warning", "Rejected")]
    assert "spec.model" in events(serves, stopped)[0].message
    bad = refusal(generation=3, watermarks={"soft": 0.9, "hard": 0.5})
    assert turn(stopped, told(bad, serving(OLD))) == [("Warning", "Rejected")]
    back = told(wanted(generation=4), serving(OLD))
    assert turn(stopped, back) == [("Normal", "Recovered"), ("Normal", "Serving")]


def test_degraded_and_over() -> None:
    changed = PodState(pod(), engine(OLD, models={"chat": model(degraded="InputsChanged")}))
    assert turn(told(OLD, serving(OLD)), told(OLD, changed)) == [("Warning", "EngineDegraded")]
    assert turn(told(OLD, changed), told(OLD, serving(OLD))) == [("Normal", "Recovered")]


def test_an_event_has_room_for_so_much() -> None:
    long = [problem("models[0].model", message="x" * 900), problem("models[0].device", message="y" * 900)]
    stopped = told(NEW, PodState(pod(), engine(OLD, receipts=[receipt(NEW, "rejected", problems=long)])))
    assert len(events({}, stopped)[0].message) == 1024


def test_what_served_and_serves_no_more() -> None:
    died = PodState(pod(ready=False), engine(OLD, models={"chat": model("restarting", loaded=(1, 2))}))
    assert turn(told(OLD, serving(OLD)), told(OLD, died)) == [("Warning", "NotReady")]
    assert turn(told(OLD, died), told(OLD, serving(OLD))) == [("Normal", "Serving")]


def test_who_scales_from_zero_is_not_warned() -> None:
    none, one = told(wanted(replicas=0)), told(wanted(generation=2))
    assert turn(none, one) == [("Normal", "Progressing")]
    assert events(none, one)[0].message == "nothing serves; 0 of 1 pods serve; waiting for pods: 1 to come"
    assert turn(one, told(wanted(generation=2), serving(OLD))) == [("Normal", "Serving")]
    assert turn(told(OLD, serving(OLD)), told(OLD)) == [("Warning", "NotReady")]
