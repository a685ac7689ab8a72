"""Pods as the API server has them: what the operator sees of them, and which trouble it tells."""

from typing import Any

import pytest
from halogen_operator.pods import PodView, live_template
from halogen_operator.reasons import Why
from support.operator_values import pod, pod_body, waiting


def test_a_pod_that_runs() -> None:
    view = pod("chat-a", template="abc", devices=2)
    assert (view.name, view.uid, view.ip) == ("chat-a", "uid-chat-a", "10.1.0.7")
    assert (view.is_ready, view.is_deleting, view.devices, view.template) == (True, False, 2, "abc")
    assert view.trouble is None


def test_a_pod_of_which_nothing_is_known_yet() -> None:
    view = PodView.of({"metadata": {"name": "chat-a"}})
    assert (view.ip, view.is_ready, view.is_deleting, view.devices, view.template) == (None, False, False, 0, "")


@pytest.mark.parametrize("text", ["", "two", "-1", "²", "1e3"])
def test_an_annotation_that_somebody_spoilt_counts_as_none(text: str) -> None:
    body = pod_body()
    body["metadata"]["annotations"]["halogen.dev/devices"] = text
    assert PodView.of(body).devices == 0


def test_a_pod_on_its_way_out_and_one_that_is_over() -> None:
    body = pod_body()
    body["metadata"]["deletionTimestamp"] = "2026-05-04T12:00:00Z"
    assert PodView.of(body).is_deleting
    for phase in ("Failed", "Succeeded"):
        over = pod(phase=phase)
        assert (over.is_deleting, over.ip) == (True, None)


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: no gpu"}
CRASHED = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "message": "starting\nno memory\n"}}
TROUBLES: list[tuple[dict[str, Any], Why, str]] = [
    ({"conditions": [UNSCHEDULABLE]}, Why.UNSCHEDULABLE, "0/3 nodes: no gpu"),
    ({"containerStatuses": [waiting("ErrImagePull", "not found")]}, Why.IMAGE_PULL, "halogend:1: not found"),
    ({"containerStatuses": [waiting("ImagePullBackOff")]}, Why.IMAGE_PULL, "ImagePullBackOff"),
    ({"initContainerStatuses": [waiting("InvalidImageName")]}, Why.IMAGE_PULL, "InvalidImageName"),
    (
        {"containerStatuses": [waiting("CreateContainerConfigError", 'secret "k" not found')]},
        Why.CONTAINER_CONFIG,
        '"k"',
    ),
    (
        {"containerStatuses": [waiting("CrashLoopBackOff", restartCount=4, lastState=CRASHED)]},
        Why.CRASH_LOOP,
        "4 restarts; the last end: OOMKilled, exit status 137, no memory",
    ),
    ({"containerStatuses": [waiting("CrashLoopBackOff")]}, Why.CRASH_LOOP, "for an unknown reason, exit status ?"),
    (
        {"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"},
        Why.POD_FAILED,
        "low on memory",
    ),
]


@pytest.mark.parametrize(("status", "why", "words"), TROUBLES)
def test_o11_what_keeps_a_pod_from_running_is_told(status: dict[str, Any], why: Why, words: str) -> None:
    trouble = pod(ready=False, **status).trouble
    assert trouble is not None
    assert trouble.why is why
    assert words in trouble.message


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing", ""])
def test_a_pod_that_is_being_made_is_in_no_trouble(reason: str) -> None:
    assert pod(ready=False, containerStatuses=[waiting(reason)]).trouble is None


def test_the_template_of_a_deployment() -> None:
    annotations = {"halogen.dev/template": "abc"}
    assert live_template({"spec": {"template": {"metadata": {"annotations": annotations}}}}) == "abc"
    assert live_template({"spec": {"template": {"metadata": {}}}}) == live_template(None) == ""
