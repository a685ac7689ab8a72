"""Kustomize's files and the chart: what they render, and that both say the same."""

import copy
import tomllib
from typing import Any

import jsonschema
import pytest
import yaml
from halogen_operator.settings import Settings, parse
from support.operator_manifests import CHART, ROOT, Manifests, charted, kustomized, of_kind

OVERLAYS = ("cluster-wide", "namespaced", "peering")
CRD = ROOT / "crds/halogenmodels.halogen.dev.yaml"
CHOSEN: dict[str, Any] = {
    "image": {"repository": "registry.example/operator", "tag": "3", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "engineImage": "registry.example/halogend:cuda",
    "namespaces": ["chat", "code"],
    "peering": {"name": "pair", "priority": 7},
    "bind": "::",
    "logLevel": "debug",
    "workers": 3,
    "resources": {"requests": {"cpu": "2"}},
    "nodeSelector": {"role": "infra"},
    "tolerations": [{"key": "infra", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "system-cluster-critical",
    "podAnnotations": {"a": "b"},
    "serviceAccount": {"annotations": {"role": "x"}},
    "networkPolicy": {"enabled": False},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
}


def settings_of(deployment: dict[str, Any]) -> Settings:
    """As the operator reads its command line."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return parse(container["args"], {"POD_NAME": "pod", "POD_NAMESPACE": "halogen-system"}, "1")


def assert_restricted(deployment: dict[str, Any]) -> None:
    """The `restricted` level of the pod security standards, and a read-only root besides."""
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "volumes"} & set(pod)
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_installs_what_runs_under_restricted_pod_security(overlay: str) -> None:
    manifests = kustomized(overlay)
    (namespace,) = of_kind(manifests, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    definition = manifests["CustomResourceDefinition", "", "halogenmodels.halogen.dev"]
    assert definition == yaml.safe_load(CRD.read_text())
    for deployment in of_kind(manifests, "Deployment"):
        assert_restricted(deployment)


def test_the_cluster_wide_operator_may_look_everywhere() -> None:
    manifests = kustomized("cluster-wide")
    (deployment,) = of_kind(manifests, "Deployment")
    settings = settings_of(deployment)
    assert (settings.namespaces, settings.peering) == ((), None)
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert len(of_kind(manifests, "ClusterRoleBinding")) == 1
    assert of_kind(manifests, "RoleBinding") == []


def test_the_namespaced_operator_is_bound_where_it_looks_and_nowhere_else() -> None:
    manifests = kustomized("namespaced")
    (deployment,) = of_kind(manifests, "Deployment")
    assert of_kind(manifests, "ClusterRoleBinding") == []
    bound = tuple(each["metadata"]["namespace"] for each in of_kind(manifests, "RoleBinding"))
    assert settings_of(deployment).namespaces == bound == ("models",)


def test_peers_have_one_peering_two_priorities_and_no_pods_in_common() -> None:
    manifests = kustomized("peering")
    active, standby = of_kind(manifests, "Deployment")
    told = [settings_of(each) for each in (active, standby)]
    (peering,) = of_kind(manifests, "ClusterKopfPeering")
    assert [each.peering for each in told] == [peering["metadata"]["name"]] * 2
    assert told[0].priority > told[1].priority
    assert [each.namespaces for each in told] == [(), ()]
    selectors = [each["spec"]["selector"]["matchLabels"] for each in (active, standby)]
    assert selectors[0] != selectors[1]
    assert set(selectors[0]) == set(selectors[1])
    for each, selector in zip((active, standby), selectors, strict=True):
        assert selector.items() <= each["spec"]["template"]["metadata"]["labels"].items()
        assert each["spec"]["template"]["spec"]["serviceAccountName"] == "halogen-operator"
    roles = {binding["roleRef"]["name"] for binding in of_kind(manifests, "ClusterRoleBinding")}
    assert roles == {"halogen-operator", "halogen-operator-peering"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_points_at_the_operators_pods_finds_them(overlay: str) -> None:
    """The Service, the NetworkPolicy, and the NetworkPolicies that the operator makes for models."""
    manifests = kustomized(overlay)
    (service,), (policy,) = of_kind(manifests, "Service"), of_kind(manifests, "NetworkPolicy")
    for deployment in of_kind(manifests, "Deployment"):
        template = deployment["spec"]["template"]
        pods = template["metadata"]["labels"].items()
        assert service["spec"]["selector"].items() <= pods
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= pods
        assert dict(settings_of(deployment).labels).items() <= pods
        (container,) = template["spec"]["containers"]
        assert settings_of(deployment).namespace == deployment["metadata"]["namespace"]
        assert container["ports"] == [{"name": "health", "containerPort": settings_of(deployment).port}]


def alike(manifests: Manifests) -> Manifests:
    """Without what is the installer's own: labels that tell instances apart, arguments, when to pull."""
    plain = {}
    for key, manifest in manifests.items():
        copied = copy.deepcopy(manifest)
        _forget(copied, {"app.kubernetes.io/instance", "app.kubernetes.io/component", "args", "imagePullPolicy"})
        plain[key] = copied
    return plain


def _forget(part: Any, keys: set[str]) -> None:
    if isinstance(part, dict):
        for key in keys & part.keys():
            del part[key]
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _forget(each, keys)


def test_the_chart_installs_what_kustomize_does() -> None:
    wanted = kustomized("cluster-wide")
    for kind in ("Namespace", "CustomResourceDefinition"):  # helm's own business, and the chart's crds/
        wanted = {key: value for key, value in wanted.items() if key[0] != kind}
    assert alike(charted({"image": {"tag": "latest"}})) == alike(wanted)


def test_the_charts_own_definition_is_the_projects() -> None:
    (path,) = (CHART / "crds").iterdir()
    assert path.resolve() == CRD.resolve()


def test_the_charts_default_command_line_is_the_programs_default() -> None:
    (deployment,) = of_kind(charted(), "Deployment")
    told = settings_of(deployment)
    assert told == parse(["--all-namespaces"], {"POD_NAME": "pod", "POD_NAMESPACE": "halogen-system"}, "1")


def test_every_value_of_the_chart_shows() -> None:
    """The values that are set here are all there are, and each changes what is rendered."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    assert set(CHOSEN) == set(values) == set(schema["properties"]) - {"global"}
    plain = charted()
    for key, value in CHOSEN.items():
        assert charted({key: value}) != plain, key


def test_a_chart_with_everything_set() -> None:
    manifests = charted(CHOSEN, release="second")
    deployment = manifests["Deployment", "halogen-system", "second"]
    told = settings_of(deployment)
    assert (told.namespaces, told.peering, told.priority) == (("chat", "code"), "pair", 7)
    assert (told.bind, told.host) == ("::", "::")
    assert (told.image, told.log_level, told.workers) == ("registry.example/halogend:cuda", "debug", 3)
    pod = deployment["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "registry.example/operator:3"
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["tolerations"] == CHOSEN["tolerations"]
    assert pod["nodeSelector"] == CHOSEN["nodeSelector"]
    assert pod["priorityClassName"] == "system-cluster-critical"
    assert_restricted(deployment)
    assert [each["metadata"]["namespace"] for each in of_kind(manifests, "RoleBinding")] == ["chat", "code"]
    assert of_kind(manifests, "ClusterRoleBinding") == of_kind(manifests, "NetworkPolicy") == []
    (monitor,) = of_kind(manifests, "ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (role,) = of_kind(manifests, "ClusterRole")
    assert role["rules"][-1]["resources"] == ["clusterkopfpeerings", "kopfpeerings"]


@pytest.mark.parametrize(
    "values",
    [{"replicas": 2}, {"namespaces": ["Upper"]}, {"workers": 0}, {"image": {"name": "x"}}, {"logLevel": "all"}],
)
def test_the_chart_refuses_what_it_does_not_know(values: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        charted(values)


def test_the_chart_and_the_package_are_of_one_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert version.startswith(chart["appVersion"])
