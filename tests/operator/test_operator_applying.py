"""When a child is applied: what differs, what does not, and whose it is."""

from __future__ import annotations

import copy
from decimal import Decimal
from typing import Any

import aiohttp
import pytest
from fakekube import FakeKube
from halogen_operator.applying import Whose, applied, differs, quantity, whose
from halogen_operator.kube import Kube, KubeError
from halogen_operator.names import MANAGED_BY_LABEL, RENDERED_ANNOTATION
from halogen_operator.store import Store
from halogen_operator.wanted import Ref
from support.operators import halogen_model, is_ready, quick, running
from support.played_pods import PlayedPods
from support.ports import free_port

_REF = Ref("n", "chat", "u1")


def _manifest() -> dict[str, Any]:
    container = {
        "name": "halogend",
        "args": ["run", "--source", "push"],
        "resources": {"limits": {"cpu": "2000m", "memory": "2Gi", "nvidia.com/gpu": "1"}},
        "ports": [{"name": "http", "containerPort": 8000}],
    }
    volumes = [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": "n", "annotations": {RENDERED_ANNOTATION: "d1"}},
        "spec": {
            "replicas": 1,
            "paused": False,
            "template": {"spec": {"containers": [container], "volumes": volumes, "tolerations": [{"key": "a"}]}},
        },
    }


def _live() -> dict[str, Any]:
    """As an API server gives it back: defaults, quantities in their canonical form, what others added."""
    live = copy.deepcopy(_manifest())
    live["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "3"
    live["metadata"]["uid"] = "u9"
    live["spec"]["revisionHistoryLimit"] = 10
    del live["spec"]["paused"]
    pod = live["spec"]["template"]["spec"]
    pod["containers"][0]["imagePullPolicy"] = "IfNotPresent"
    pod["containers"][0]["resources"]["limits"] = {"cpu": "2", "memory": "2Gi", "nvidia.com/gpu": "1"}
    pod["containers"].append({"name": "sidecar"})
    pod["volumes"].insert(0, {"name": "token"})
    pod["volumes"][1]["emptyDir"] = {"sizeLimit": "1024Mi"}
    return live


@pytest.mark.parametrize("place", [("selector",), ("template", "spec", "nodeSelector"), ("selector", "matchLabels")])
def test_a_pair_added_to_what_selects_is_a_difference(place: tuple[str, ...]) -> None:
    """A Service that selects by one label more has no pod left, and nothing else would tell."""

    def selecting(**pairs: str) -> dict[str, Any]:
        made = _manifest()
        around = made["spec"]
        for key in place[:-1]:
            around = around.setdefault(key, {})
        around[place[-1]] = {"a": "1", **pairs}
        return made

    assert not differs(selecting(), selecting())
    assert differs(selecting(), selecting(evil="1"))
    assert differs(selecting(b="1"), selecting())


async def test_a_service_selects_its_pods_whatever_somebody_adds(kube: FakeKube) -> None:
    port = free_port()
    async with PlayedPods(kube, port), running(quick(kube.url, admin_port=port)):
        kube.objects.create(halogen_model())
        await kube.until(lambda: is_ready(kube))
        sound = kube.objects.get("Service", "chat")["spec"]["selector"]
        kube.objects.patch("Service", "chat", {"spec": {"selector": {"evil": "1"}}})
        await kube.until(lambda: kube.objects.get("Service", "chat")["spec"]["selector"] == sound, 20.0)


def test_what_an_api_server_adds_is_no_difference() -> None:
    assert not differs(_manifest(), _live())


def test_a_missing_object_differs() -> None:
    assert differs(_manifest(), None)


def _pod(live: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = live["spec"]["template"]["spec"]
    return pod


_CHANGES = {
    "rendered otherwise": lambda live: live["metadata"]["annotations"].update({RENDERED_ANNOTATION: "d0"}),
    "digest taken away": lambda live: live["metadata"].pop("annotations"),
    "replicas": lambda live: live["spec"].update(replicas=2),
    "a quantity": lambda live: _pod(live)["containers"][0]["resources"]["limits"].update(cpu="3"),
    "an argument more": lambda live: _pod(live)["containers"][0]["args"].append("--resume"),
    "a container gone": lambda live: _pod(live)["containers"].pop(0),
    "a port changed": lambda live: _pod(live)["containers"][0]["ports"][0].update(containerPort=1),
    "a toleration more": lambda live: _pod(live)["tolerations"].append({"key": "b"}),
    "a volume of another kind": lambda live: _pod(live)["volumes"].__setitem__(1, {"name": "tmp", "secret": {}}),
    "a switch": lambda live: live["spec"].update(paused=True),
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES.keys())
def test_what_somebody_changed_differs(change: Any) -> None:
    live = _live()
    change(live)
    assert differs(_manifest(), live)


def test_a_rule_added_to_a_network_policy_is_taken_away_again() -> None:
    annotations = {RENDERED_ANNOTATION: "d"}
    rule = {"ports": [{"port": "admin"}], "from": [{"podSelector": {}}]}
    manifest = {"kind": "NetworkPolicy", "metadata": {"annotations": annotations}, "spec": {"ingress": [rule]}}
    live = copy.deepcopy(manifest)
    assert not differs(manifest, live)
    live["spec"]["ingress"][0]["ports"].append({"port": "other"})  # type: ignore[index]  # plain data
    assert differs(manifest, live)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), (1, 1), ("500m", "0.5"), ("2Gi", 2 * 1024**3), ("1e3", 1000), ("3k", 3000), ("1.5Ki", 1536)],
)
def test_quantities_are_compared_by_value(text: object, value: object) -> None:
    assert quantity(text) == Decimal(str(value))


def test_what_is_no_quantity_stays_a_text() -> None:
    assert quantity("25%") == "25%"
    assert quantity("1Xi") == "1Xi"


def _owned(**owner: object) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": [{"controller": True, **owner}]}}


def test_whose_an_object_is() -> None:
    assert whose(_owned(kind="HalogenModel", name="chat", uid="u1"), _REF) is Whose.OURS
    assert whose(_owned(kind="HalogenModel", name="chat", uid="u0"), _REF) is Whose.PREDECESSORS
    assert whose(_owned(kind="HalogenModel", name="other", uid="u0"), _REF) is Whose.FOREIGN
    assert whose(_owned(kind="Application", name="chat", uid="u0"), _REF) is Whose.FOREIGN
    assert whose({"metadata": {}}, _REF) is Whose.FOREIGN
    orphan = {"metadata": {"labels": {MANAGED_BY_LABEL: "halogen-operator"}}}
    assert whose(orphan, _REF) is Whose.OURS


async def test_a_field_the_server_is_too_old_for_is_told_and_not_tried_for_ever(kube: FakeKube) -> None:
    ref = Ref("default", "chat", "u1")
    named = {"namespace": "default", "annotations": {RENDERED_ANNOTATION: "d1"}}
    novel = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named | {"name": "a"}, "novel": {}}
    known = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named | {"name": "b"}, "data": {"k": "v"}}
    async with aiohttp.ClientSession() as session:
        (told,) = await applied(Kube(session, kube.url), Store(), ref, [novel, known])
        assert told.message.endswith(".novel: field not declared in schema")
        assert kube.objects.get("ConfigMap", "b")
        kube.faults.fail(500)
        with pytest.raises(KubeError):
            await applied(Kube(session, kube.url), Store(), ref, [novel])


def _child(kind: str, api_version: str = "v1", **rest: Any) -> dict[str, Any]:
    meta = {"namespace": "default", "name": "chat", "annotations": {RENDERED_ANNOTATION: "d1"}}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **rest}


def _deployment() -> dict[str, Any]:
    labels = {"matchLabels": {"app": "chat"}}
    containers = [{"name": "c", "image": "i"}]
    template = {"metadata": {"labels": {"app": "chat"}}, "spec": {"containers": containers}}
    return _child("Deployment", "apps/v1", spec={"replicas": 1, "selector": labels, "template": template})


async def test_no_pods_are_made_that_would_run_as_somebody_elses_account(kube: FakeKube) -> None:
    kube.objects.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "chat"}})
    ref, manifests = Ref("default", "chat", "u1"), [_child("ServiceAccount"), _deployment()]
    async with aiohttp.ClientSession() as session:
        account, deployment = await applied(Kube(session, kube.url), Store(), ref, manifests)
    assert "is not this HalogenModel's" in account.message
    assert not account.is_essential
    assert deployment.message == "Deployment chat waits: its pods need the ServiceAccount"
    assert deployment.is_essential
    assert kube.objects.find("Deployment", "chat") is None


async def test_an_account_that_is_ours_and_cannot_be_changed_keeps_nothing_from_being_applied(kube: FakeKube) -> None:
    ref, account = Ref("default", "chat", "u1"), _child("ServiceAccount")
    labelled = copy.deepcopy(account)
    labelled["metadata"] |= {"labels": {MANAGED_BY_LABEL: "halogen-operator"}, "annotations": {}}
    kube.objects.create(labelled)
    kube.faults.fail(403, kind="ServiceAccount", verb="patch", times=None)
    async with aiohttp.ClientSession() as session:
        (refused,) = await applied(Kube(session, kube.url), Store(), ref, [account, _deployment()])
    assert refused.kind == "ServiceAccount"
    assert kube.objects.find("Deployment", "chat") is not None


async def test_a_webhook_that_nobody_answers_for_is_told_and_keeps_no_other_child_waiting(kube: FakeKube) -> None:
    words = 'Internal error occurred: failed calling webhook "vet.example.com": no endpoints available'
    kube.faults.fail(500, message=words, kind="Service", verb="patch", times=None)
    service = _child("Service", spec={"ports": [{"port": 80}]})
    async with aiohttp.ClientSession() as session:
        (refused,) = await applied(
            Kube(session, kube.url), Store(), Ref("default", "chat", "u1"), [service, _deployment()]
        )
    assert words in refused.message
    assert refused.is_essential
    assert kube.objects.find("Deployment", "chat") is not None
