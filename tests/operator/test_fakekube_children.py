"""What the operator renders, through the stand-in: every child is taken, comes back equal, and is written once."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from halogen_operator import credentials
from halogen_operator.applying import differs
from halogen_operator.house import House
from halogen_operator.render import Held, render
from halogen_operator.wanted import Ref, Wanted, read

EXAMPLES = sorted((Path(__file__).parents[2] / "examples/kubernetes").glob("*.yaml"))
HOUSE = House(image="registry.test/halogend:1", namespace="halogen-system", labels={"app": "operator"}, version="1")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _model(path):
    return next(body for body in yaml.safe_load_all(path.read_text()) if body and body["kind"] == "HalogenModel")


@pytest.fixture
def stored(kube):
    """Stores a HalogenModel and applies its children; gives (manifest, stored child) pairs."""
    secrets = {}

    def store(body, live=None):
        body["metadata"]["namespace"] = "default"
        made = kube.objects.apply(body, author="user")
        wanted = read(made, HOUSE)
        assert isinstance(wanted, Wanted), wanted
        secret = secrets.setdefault(made["metadata"]["uid"], credentials.issue(Ref.of(made), NOW))
        held = Held.of(None, live)
        manifests = render(wanted, held, secret, HOUSE)
        return [(each, kube.objects.apply(each, author="halogen-operator", force=True)) for each in manifests]

    return store


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_children_of_every_example_come_back_without_a_difference(kube, stored, path):
    first = stored(_model(path))
    assert {child["kind"] for _, child in first} >= {"ConfigMap", "Deployment", "Secret", "Service"}
    assert [each["kind"] for each, child in first if differs(each, child)] == []
    revision = kube.store.revision
    stored(_model(path))
    assert kube.store.revision == revision


def test_a_model_moves_to_a_device_and_back(kube, stored):
    """The strategy changes with the device; what the last one held must not stand in the way of the next."""
    body = _model(Path(EXAMPLES[0].parent / "minimal.yaml"))
    for device, strategy in ((["cpu:0"], "RollingUpdate"), (["cuda:0"], "Recreate"), (["cpu:0"], "RollingUpdate")):
        body["spec"]["device"] = device
        pairs = stored(body)
        assert [each["kind"] for each, child in pairs if differs(each, child)] == []
        assert kube.objects.get("Deployment", body["metadata"]["name"])["spec"]["strategy"]["type"] == strategy


async def test_deleting_the_model_takes_its_children(kube, stored):
    body = _model(Path(EXAMPLES[0].parent / "full.yaml"))
    kinds = [child["kind"] for _, child in stored(body)]
    kube.objects.delete("HalogenModel", body["metadata"]["name"])
    await kube.until(lambda: not any(kube.objects.list(kind, "default") for kind in kinds))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_pods_of_every_example_are_let_into_a_restricted_namespace(kube, stored, path):
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kube.objects.patch("Namespace", "default", {"metadata": {"labels": labels}})
    (template,) = [child["spec"]["template"] for _, child in stored(_model(path)) if child["kind"] == "Deployment"]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"] | {"name": "p", "namespace": "default"}}
    assert kube.objects.create(body | {"spec": template["spec"]})
