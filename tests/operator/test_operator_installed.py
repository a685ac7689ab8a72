"""An installation as kustomize or the chart renders it: with those rights and that command line the operator works."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from fakekube import FakeKube
from halogen_operator.settings import Settings, parse
from support.operator_manifests import Manifests, charted, kustomized
from support.operators import halogen_model, is_ready, quick, running
from support.played_pods import PlayedPods
from support.ports import free_port

CHARTED = {"chart": charted, "chart for one namespace": lambda: charted({"namespaces": ["models"]})}
WAYS = ["cluster-wide", "namespaced", "peering", *CHARTED]
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@dataclass
class Installed:
    """A cluster with the overlay's objects, in which callers have the rights of the operator's account alone. The
    Deployments are not among them: they run here, in the test."""

    kube: FakeKube
    manifests: Manifests
    port: int

    def settings(self, deployment: str = "halogen-operator") -> Settings:
        """The command line of a Deployment, sped up."""
        (container,) = self.manifests["Deployment", "halogen-system", deployment]["spec"]["template"]["spec"][
            "containers"
        ]
        told = parse(container["args"], {"POD_NAME": deployment, "POD_NAMESPACE": "halogen-system"}, "1")
        fast = quick(self.kube.url, admin_port=self.port)
        kept = {name: getattr(told, name) for name in ("namespaces", "peering", "priority", "identity", "labels")}
        return replace(fast, **kept)

    def refused(self) -> list[str]:
        return [f"{call.verb} {call.resource} {call.name}" for call in self.kube.calls if call.status == 403]


@pytest.fixture
async def installed(request: pytest.FixtureRequest) -> AsyncIterator[Installed]:
    manifests = CHARTED[request.param]() if request.param in CHARTED else kustomized(request.param)
    port = free_port()
    async with FakeKube() as kube, PlayedPods(kube, port):
        for name in ("models", "others", "halogen-system"):
            namespace = {"name": name, "labels": RESTRICTED}
            kube.objects.create({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace})
        for (kind, _, name), manifest in manifests.items():
            if kind not in {"Deployment", "Namespace"} and kube.objects.find(kind, name) is None:
                kube.objects.create(manifest)
        kube.only_as("halogen-operator", "halogen-system")
        yield Installed(kube, manifests, port)


@pytest.mark.parametrize("installed", WAYS, indirect=True)
async def test_a_model_lives_under_the_rights_of_the_installation(installed: Installed) -> None:
    """With all optional children, in a namespace that takes restricted pods only."""
    kube = installed.kube
    kube.objects.create(halogen_model("chat", "models", replicas=2, service={"monitor": True}))
    async with running(installed.settings()):
        await kube.until(lambda: is_ready(kube, "chat", "models"))
        for kind in ("PodDisruptionBudget", "ServiceMonitor", "NetworkPolicy"):
            assert kube.objects.find(kind, "chat", "models") is not None
        spec = {"replicas": 1, "service": {"monitor": False}, "max_batch": 9}
        kube.objects.patch("HalogenModel", "chat", {"spec": spec}, "models")
        await kube.until(lambda: is_ready(kube, "chat", "models"))
        await kube.until(lambda: kube.objects.find("ServiceMonitor", "chat", "models") is None)
    assert installed.refused() == []
    assert kube.objects.list("Event", "models")


@pytest.mark.parametrize("installed", ["namespaced", "chart for one namespace"], indirect=True)
async def test_a_namespaced_operator_leaves_other_namespaces_alone(installed: Installed) -> None:
    kube = installed.kube
    kube.objects.create(halogen_model("chat", "others"))
    kube.objects.create(halogen_model("chat", "models"))
    async with running(installed.settings()):
        await kube.until(lambda: is_ready(kube, "chat", "models"))
    assert "status" not in kube.objects.get("HalogenModel", "chat", "others")
    assert {call.namespace for call in kube.calls if call.kind != "ClusterKopfPeering"} <= {"models"}
    assert installed.refused() == []


@pytest.mark.parametrize("installed", ["peering"], indirect=True)
async def test_the_standby_acts_when_the_active_one_has_gone(installed: Installed) -> None:
    kube = installed.kube
    async with running(installed.settings("halogen-operator-standby")):
        async with running(installed.settings()):
            kube.objects.create(halogen_model("chat", "models"))
            await kube.until(lambda: is_ready(kube, "chat", "models"))
        kube.objects.create(halogen_model("code", "models"))
        await kube.until(lambda: is_ready(kube, "code", "models"))
    assert installed.refused() == []
