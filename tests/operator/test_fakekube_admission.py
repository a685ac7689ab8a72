"""Who and what the stand-in lets in: roles and their bindings, and the pod security that a namespace asks for."""

import pytest
from support.kube.errors import ApiError
from support.kube_samples import config_map, deployment, pod

RBAC = {"apiVersion": "rbac.authorization.k8s.io/v1"}
GOOD = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture
def bound(kube):
    """Binds a ServiceAccount `me` of `default` to rules, cluster-wide or in one namespace."""

    def bind(*rules, namespace=""):
        kind = "Role" if namespace else "ClusterRole"
        meta = {"name": "r"} | ({"namespace": namespace} if namespace else {})
        kube.objects.create(RBAC | {"kind": kind, "metadata": meta, "rules": list(rules)})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "r"}
        subjects = [{"kind": "ServiceAccount", "name": "me", "namespace": "default"}]
        binding = {"kind": f"{kind}Binding", "metadata": meta, "roleRef": reference, "subjects": subjects}
        kube.objects.create(RBAC | binding)
        kube.only_as("me", "default")

    return bind


async def test_what_no_role_grants_is_forbidden(bound, wire):
    bound({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]})
    assert (await wire.get(wire.path("ConfigMap")))[0] == 200
    status, refused = await wire.send("POST", wire.path("ConfigMap"), config_map())
    assert (status, refused["reason"]) == (403, "Forbidden")
    user = "system:serviceaccount:default:me"
    what = 'cannot create resource "configmaps" in API group "" in the namespace "default"'
    assert refused["message"] == f'configmaps is forbidden: User "{user}" {what}'


async def test_a_role_holds_in_its_namespace_alone(kube, bound, wire):
    kube.namespace("other")
    bound({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, namespace="other")
    assert (await wire.get(wire.path("ConfigMap", namespace="other")))[0] == 200
    assert (await wire.get(wire.path("ConfigMap")))[0] == 403


async def test_names_and_subresources_are_granted_by_name(kube, bound, wire):
    kube.objects.create(config_map("mine"))
    kube.objects.create(deployment())
    bound(
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["mine"]},
        {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get"]},
    )
    assert (await wire.get(wire.path("ConfigMap", "mine")))[0] == 200
    assert (await wire.get(wire.path("ConfigMap", "other")))[0] == 403
    assert (await wire.get(wire.path("Deployment", "d", "scale")))[0] == 200
    assert (await wire.get(wire.path("Deployment", "d")))[0] == 403


async def test_an_apply_that_makes_an_object_needs_the_right_to_create(kube, bound, wire):
    kube.objects.create(config_map("there"))
    bound({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]})
    assert (await wire.apply(wire.path("ConfigMap", "there"), config_map("there")))[0] == 200
    assert (await wire.apply(wire.path("ConfigMap", "new"), config_map("new")))[0] == 403


@pytest.fixture
def restricted(kube):
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    kube.objects.patch("Namespace", "default", label)
    return kube


def _secured(**context):
    body = pod()
    body["spec"]["containers"][0]["securityContext"] = {**GOOD, **context}
    return body


def test_a_restricted_namespace_takes_a_restricted_pod(restricted):
    assert restricted.objects.create(_secured())


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ({"allowPrivilegeEscalation": None}, "allowPrivilegeEscalation != false"),
        ({"capabilities": None}, "unrestricted capabilities"),
        ({"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}, "unrestricted capabilities"),
        ({"runAsNonRoot": None}, "runAsNonRoot != true"),
        ({"runAsUser": 0}, "runAsUser=0"),
        ({"seccompProfile": None}, "seccompProfile"),
        ({"privileged": True}, "privileged"),
    ],
)
def test_a_restricted_namespace_refuses_any_other_pod(restricted, context, said):
    with pytest.raises(ApiError, match=said) as refused:
        restricted.objects.create(_secured(**context))
    assert refused.value.status == 403


async def test_a_workload_is_stored_with_a_warning(restricted, wire):
    headers = {"Content-Type": "application/json"}
    async with wire.session.post(
        restricted.url + wire.path("Deployment"), json=deployment(), headers=headers
    ) as answer:
        assert answer.status == 201
        assert "would violate PodSecurity" in answer.headers["Warning"]
