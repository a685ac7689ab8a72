"""Golden pairs: a HalogenModel (and what is held of its children), a line of dashes, all its manifests."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from halogen_operator.render import Held, Manifest, bare_document, digest, render, selector, template_of
from halogen_operator.wanted import Wanted, read
from support.halogen_models import HOUSE, SECRET, halogen_model, of_kind, wanted

CASES = sorted((Path(__file__).parent.parent / "cases/operator/render").glob("*.yaml"))
DASHES = "-" * 10 + "\n"


def rendered(held: Held | None = None, **spec: Any) -> tuple[Manifest, ...]:
    return render(wanted(**spec), held or Held(), SECRET, HOUSE)


def template(held: Held | None = None, **spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = of_kind(rendered(held, **spec), "Deployment")["spec"]["template"]
    return found


def document(manifests: tuple[Manifest, ...]) -> str:
    text: str = of_kind(manifests, "ConfigMap")["data"]["halogend.yaml"]
    return text


def live(**spec: Any) -> Held:
    """What is held once a first rendering stands in the cluster."""
    manifests = rendered(**spec)
    return Held.of(of_kind(manifests, "ConfigMap"), of_kind(manifests, "Deployment"))


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_model_gives_the_manifests_of_the_case(case: Path) -> None:
    text, _, expected = case.read_text().partition(DASHES)
    model, *held = yaml.safe_load_all(text)
    found = read(model, HOUSE)
    assert isinstance(found, Wanted), found
    manifests = render(found, Held(**held[0]) if held else Held(), SECRET, HOUSE)
    assert list(manifests) == list(yaml.safe_load_all(expected))


def test_there_are_cases() -> None:
    assert len(CASES) >= 5


# --- what replaces pods, and what does not (O1) ---------------------------------------------------------


@pytest.mark.parametrize(
    "edit",
    [
        {"model": "/models/other.gguf"},
        {"watermarks": {"soft": 0.5, "hard": 0.6}},
        {"max_batch": 3},
        {"replicas": 3},
        {"service": {"port": 81}},
        {"update": {"maxUnavailable": "50%", "progressDeadlineSeconds": 60}},
        {"name": "other"},
        {"reload": {"drain_timeout_s": 20}},
        {"device": ["cpu:0"]},
    ],
    ids=str,
)
def test_o1_an_edit_of_the_document_leaves_the_pods_template_as_it_is(edit: dict[str, Any]) -> None:
    before = {"device": ["cuda:0"]}
    assert template(live(**before), **(before | edit)) == template(**before)


@pytest.mark.parametrize(
    "edit",
    [
        {"image": "registry.example/halogend:2.0"},
        {"resources": {"limits": {"memory": "8Gi"}}},
        {"nodeSelector": {"zone": "a"}},
        {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
        {"volumes": [{"name": "m", "mountPath": "/models", "persistentVolumeClaim": {"claimName": "m"}}]},
        {"auth": {"keys": [{"name": "a", "secretKeyRef": {"name": "s", "key": "k"}}]}},
        {"device": ["cuda:0", "cuda:1"], "exec_mode": "data_parallel"},
        {"imagePullSecrets": [{"name": "pull"}]},
    ],
    ids=str,
)
def test_placement_replaces_pods_and_the_digest_tells(edit: dict[str, Any]) -> None:
    before = {"device": ["cuda:0"]}
    old, new = rendered(**before), rendered(live(**before), **(before | edit))
    assert template_of(old) != template_of(new)


def test_o1_pods_with_an_accelerator_are_recreated_and_others_make_room_first() -> None:
    def strategy(**spec: Any) -> Any:
        return of_kind(rendered(**spec), "Deployment")["spec"]["strategy"]

    assert strategy(device=["cuda:0"]) == {"type": "Recreate"}
    assert strategy(resources={"limits": {"nvidia.com/mig-1g.10gb": 1}}) == {"type": "Recreate"}
    rolling = {"maxUnavailable": "25%", "maxSurge": 0}
    assert strategy(update={"maxUnavailable": "25%"}) == {"type": "RollingUpdate", "rollingUpdate": rolling}


def test_keys_in_another_order_replace_no_pod() -> None:
    keys = [
        {"name": "a", "secretKeyRef": {"name": "s", "key": "1"}},
        {"name": "b", "secretKeyRef": {"name": "s", "key": "2"}},
        {"name": "c", "secretKeyRef": {"name": "r", "key": "1"}, "rpm": 5},
    ]
    assert template(auth={"keys": keys}) == template(auth={"keys": keys[::-1]})


# --- accelerators ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "resource", "count"),
    [
        ({"device": ["cuda:0"]}, "nvidia.com/gpu", "1"),
        ({"device": ["h100:1"]}, "nvidia.com/gpu", "2"),
        ({"device": ["rtx_4090:0", "cuda:2"], "exec_mode": "data_parallel"}, "nvidia.com/gpu", "3"),
        ({"device": ["mi300x:0"]}, "amd.com/gpu", "1"),
        ({"device": ["ai_max_395:0"]}, "amd.com/gpu", "1"),
        ({"resources": {"limits": {"nvidia.com/gpu": 2}}}, "nvidia.com/gpu", "2"),
        ({"resources": {"requests": {"amd.com/gpu": 1, "memory": "8Gi"}}}, "amd.com/gpu", "1"),
        ({"device": ["cuda:0"], "resources": {"limits": {"nvidia.com/gpu": "4"}}}, "nvidia.com/gpu", "4"),
    ],
    ids=str,
)
def test_a_pod_gets_as_many_accelerators_as_the_document_needs(spec: dict[str, Any], resource: str, count: str) -> None:
    made = template(**spec)
    assert made["spec"]["containers"][0]["resources"]["limits"] == {resource: count}
    assert made["metadata"]["annotations"]["halogen.dev/devices"] == count


@pytest.mark.parametrize("spec", [{}, {"device": ["cpu:0"]}, {"device": ["auto"]}], ids=str)
def test_processors_ask_for_none(spec: dict[str, Any]) -> None:
    made = template(**spec)
    assert "resources" not in made["spec"]["containers"][0]
    assert made["metadata"]["annotations"]["halogen.dev/devices"] == "0"


def test_a_spec_that_needs_fewer_keeps_what_the_pods_have_and_another_maker_does_not() -> None:
    held = live(device=["cuda:0", "cuda:1"], exec_mode="data_parallel")
    assert held == Held(held.document, 2, "nvidia", 935)

    def limits(**spec: Any) -> Any:
        return template(held, **spec)["spec"]["containers"][0]["resources"]["limits"]

    assert limits(device=["cuda:0"]) == limits(device=["cpu:0"]) == {"nvidia.com/gpu": "2"}
    assert limits(device=["rocm:0"]) == {"amd.com/gpu": "1"}
    assert limits(resources={"limits": {"nvidia.com/gpu": 1}}) == {"nvidia.com/gpu": "1"}


@pytest.mark.parametrize("annotation", ["", "two", "-1", "²"])
def test_what_somebody_spoilt_counts_as_not_there(annotation: str) -> None:
    deployment = of_kind(rendered(device=["cuda:0"]), "Deployment")
    deployment["spec"]["template"]["metadata"]["annotations"]["halogen.dev/devices"] = annotation
    assert Held.of(None, deployment) == Held(grace_s=935)
    assert Held.of({"data": None}, {"spec": {}}) == Held()


# --- the document of cold starts ------------------------------------------------------------------------


def test_the_first_document_has_the_listeners_and_no_model() -> None:
    text = document(rendered())
    assert text == bare_document(wanted(), HOUSE)
    assert yaml.safe_load(text)["models"] == []
    assert yaml.safe_load(text)["server"] == yaml.safe_load(wanted().written)["server"]


def test_an_accepted_document_stays_whatever_the_spec_says_now() -> None:
    accepted = wanted(model="/models/old.gguf").document
    assert document(rendered(Held(accepted), model="/models/new.gguf")) == accepted


def test_the_keys_of_an_accepted_document_are_those_that_the_pods_have() -> None:
    """A pod whose document names a key that is not mounted would have no admin listener that anybody reaches."""
    accepted = wanted(model="/models/old.gguf").document
    auth = {"keys": [{"name": "a", "secretKeyRef": {"name": "s", "key": "k"}}]}
    text = document(rendered(Held(accepted), auth=auth))
    assert yaml.safe_load(text)["server"] == yaml.safe_load(wanted(auth=auth).document)["server"]
    assert yaml.safe_load(text)["models"] == yaml.safe_load(accepted)["models"]


@pytest.mark.parametrize("text", ["", "not: [a", "apiVersion: halogen.dev/v9\nmodels: []\n"])
def test_a_document_that_this_release_cannot_read_gives_way_to_a_bare_one(text: str) -> None:
    assert document(rendered(Held(text))) == bare_document(wanted(), HOUSE)


# --- every child ----------------------------------------------------------------------------------------


def full() -> tuple[Manifest, ...]:
    return rendered(replicas=3, service={"monitor": True}, device=["cuda:0"])


def test_children_are_owned_labelled_and_told_by_a_digest() -> None:
    """O4: what is owned goes with its owner, and holds nothing up. O6: a digest, not the manifest, in an annotation."""
    for each in full():
        metadata = each["metadata"]
        (owner,) = metadata["ownerReferences"]
        assert owner["uid"] == "uid-chat"
        assert owner["controller"] is True
        assert owner["blockOwnerDeletion"] is False
        assert "finalizers" not in metadata
        assert metadata["namespace"] == "default"
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "halogen-operator"
        without = {key: value for key, value in metadata["annotations"].items() if key != "halogen.dev/rendered"}
        stated = metadata["annotations"]["halogen.dev/rendered"]
        assert stated == digest({**each, "metadata": {**metadata, "annotations": without}})
        assert sum(map(len, metadata["annotations"].values())) < 1024


def test_the_same_answer_twice() -> None:
    assert full() == full()


def test_the_selector_finds_the_pods() -> None:
    pairs = dict(each.split("=") for each in selector(wanted().ref).split(","))
    manifests = full()
    assert pairs.items() <= template()["metadata"]["labels"].items()
    assert of_kind(manifests, "Deployment")["spec"]["selector"]["matchLabels"] == pairs
    assert of_kind(manifests, "Service")["spec"]["selector"] == pairs
    assert of_kind(manifests, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == pairs


def test_some_children_are_there_where_they_are_wanted() -> None:
    assert {"PodDisruptionBudget", "ServiceMonitor"} <= {each["kind"] for each in full()}
    for replicas in (0, 1):
        kinds = {each["kind"] for each in rendered(replicas=replicas)}
        assert not kinds & {"PodDisruptionBudget", "ServiceMonitor"}


@pytest.mark.parametrize(("drain", "grace"), [("auto", 935), (0, 935), (900, 935), (900.5, 936), (3600, 3635)])
def test_o10_the_grace_period_outlasts_what_may_come_before_the_end(drain: float | str, grace: int) -> None:
    made = template(reload={"drain_timeout_s": drain})["spec"]
    assert made["terminationGracePeriodSeconds"] == grace
    assert made["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"] == 5


def test_o10_a_pod_drains_as_long_as_its_document_says_and_a_shorter_drain_replaces_none() -> None:
    long = {"reload": {"drain_timeout_s": 3600}}
    assert "--stop-drain document" in " ".join(template()["spec"]["containers"][0]["args"])
    assert template(live(**long)) == template(**long)


def test_pods_meet_the_restricted_pod_security_standard() -> None:
    """As the standard lists its controls (kubernetes.io/docs/concepts/security/pod-security-standards)."""
    pod = template(volumes=[{"name": "m", "mountPath": "/models", "image": {"reference": "r/m:1"}}])["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    for container in pod["containers"]:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert "privileged" not in security
        assert not any("hostPort" in port for port in container["ports"])
    allowed = {"configMap", "emptyDir", "projected", "secret", "persistentVolumeClaim", "image"}
    assert all(len(each.keys() & allowed) == 1 and len(each) == 2 for each in pod["volumes"])
    assert pod["automountServiceAccountToken"] is False


def test_every_mount_has_its_volume_and_the_authoritys_key_is_in_no_pod() -> None:
    auth = {"keys": [{"name": "a", "secretKeyRef": {"name": "s", "key": "k"}}]}
    pod = template(auth=auth)["spec"]
    names = [each["name"] for each in pod["volumes"]]
    assert [each["name"] for each in pod["containers"][0]["volumeMounts"]] == names
    assert len(set(names)) == len(names)
    assert "ca.key" not in str(pod)


def test_an_address_of_ipv6_is_written_as_one() -> None:
    from dataclasses import replace

    house = replace(HOUSE, bind="::")
    found = read(halogen_model(), house)
    assert isinstance(found, Wanted)
    assert yaml.safe_load(found.document)["server"]["admin"] == "[::]:8443"
