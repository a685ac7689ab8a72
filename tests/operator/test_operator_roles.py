"""The operator's role: what it does, and nothing besides."""

from collections.abc import Iterator
from pathlib import Path

import yaml
from fakekube import FakeKube
from halogen_operator.names import PLAN_ONLY_ANNOTATION
from halogen_operator.resources import (
    DISRUPTION_BUDGET,
    EVENT,
    HALOGEN_MODEL,
    KINDS,
    POD,
    SERVICE_MONITOR,
    WATCHED,
)
from support.operator_manifests import DEPLOY
from support.operators import halogen_model, is_ready, quick, running
from support.played_pods import PlayedPods
from support.ports import free_port

LOOK = {"get", "list", "watch"}
ROLE = DEPLOY / "base/cluster-role.yaml"
PEERS_ROLE = DEPLOY / "overlays/peering/cluster-role.yaml"
Allowed = set[tuple[str, str, str]]
"""Group, resource, verb."""


def allowed(*paths: Path) -> Allowed:
    return {
        (group, resource, verb)
        for path in paths
        for rule in yaml.safe_load(path.read_text())["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _verbs() -> Iterator[tuple[str, str, str]]:
    for kind in KINDS.values():
        verbs: set[str] = LOOK.copy() if kind in WATCHED else {"get"}
        if kind is EVENT:
            verbs = {"create"}
        elif kind not in (HALOGEN_MODEL, POD):
            verbs |= {"create", "patch"}  # server-side apply
        if kind in (DISRUPTION_BUDGET, SERVICE_MONITOR):
            verbs |= {"delete"}  # not wanted any more
        yield from ((kind.group, kind.plural, verb) for verb in verbs)
    yield HALOGEN_MODEL.group, f"{HALOGEN_MODEL.plural}/status", "patch"


def test_the_role_is_what_the_operator_needs_of_each_kind() -> None:
    assert allowed(ROLE) == set(_verbs())


def test_nothing_is_allowed_by_a_star() -> None:
    assert not any("*" in each for each in allowed(ROLE, PEERS_ROLE))


async def test_the_operators_calls_are_those_that_its_role_allows() -> None:
    """Over a life: made, edited, refused, planned, scaled, monitored and not, with all that a spec may have or not."""
    port = free_port()
    async with FakeKube() as kube, PlayedPods(kube, port) as pods:
        kube.objects.create({"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "pair"}})
        kube.objects.create(halogen_model(replicas=2, service={"monitor": True}))

        def edit(**spec: object) -> None:
            kube.objects.patch("HalogenModel", "chat", {"spec": spec})

        async with running(quick(kube.url, admin_port=port, peering="pair")):
            await kube.until(lambda: is_ready(kube))
            edit(replicas=1, service={"monitor": False}, max_batch=7)
            await kube.until(lambda: is_ready(kube) and not kube.objects.list("ServiceMonitor", "default"))
            pods.judge = lambda _: "rejected"
            edit(max_batch=8)
            await kube.until(lambda: not is_ready(kube))
            annotation = {"metadata": {"annotations": {PLAN_ONLY_ANNOTATION: "true"}}}
            kube.objects.patch("HalogenModel", "chat", annotation)
            await kube.until(lambda: kube.objects.get("HalogenModel", "chat")["status"].get("plan") is not None)
            kube.objects.delete("HalogenModel", "chat")
            await kube.until(lambda: not kube.objects.list("Pod", "default"))
        called = {(call.group, call.resource, call.verb) for call in kube.calls}
    may = allowed(ROLE, PEERS_ROLE)
    assert called <= may
    written = {each for each in may if each[2] in {"patch", "delete", "create"}}
    by_apply = {each for each in written if each[2] == "create" and each[1] != "events"}  # the server asks for both
    assert written - by_apply <= called
    assert {each for each in may if each[2] in {"list", "watch"}} <= called
