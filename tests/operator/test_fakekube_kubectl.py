"""kubectl against the stand-in: what people type works, and what they read is there."""

import asyncio
from pathlib import Path

import pytest
from support.kube_samples import config_map, deployment, widget
from support.kubectl import Kubectl, needs_kubectl

pytestmark = needs_kubectl
ROOT = Path(__file__).parents[2]


@pytest.fixture
def kubectl(kube, tmp_path):
    return Kubectl(kube.url, tmp_path)


async def test_apply_is_applied_and_unchanged(widgets, kubectl):
    for said in ("created", "unchanged"):
        status, out, err = await kubectl("apply", "-f", "-", manifest=widget(color="red"))
        assert (status, out, err) == (0, f"widget.test.dev/w {said}\n", "")
    status, out, _ = await kubectl("apply", "-f", "-", manifest=widget(color="blue"))
    assert (status, out) == (0, "widget.test.dev/w configured\n")
    assert widgets.objects.get("Widget", "w")["metadata"]["generation"] == 2


async def test_apply_refuses_what_the_schema_does_not_know(widgets, kubectl):
    status, _, err = await kubectl("apply", "-f", "-", manifest=widget(colour="red"))
    assert status == 1
    assert 'unknown field "spec.colour"' in err
    status, _, err = await kubectl("apply", "-f", "-", manifest=widget(soft=2, hard=1))
    assert status == 1
    assert err.startswith('The Widget "w" is invalid: spec: Invalid value: "object": soft 2.0 is not below hard')


async def test_server_side_apply_and_diff(kube, kubectl):
    status, out, err = await kubectl("apply", "--server-side", "-f", "-", manifest=deployment())
    assert (status, out, err) == (0, "deployment.apps/d serverside-applied\n", "")
    status, out, _ = await kubectl("diff", "--server-side", "-f", "-", manifest=deployment())
    assert (status, out) == (0, "")


async def test_get_prints_the_columns_of_the_definition(widgets, kubectl):
    widgets.objects.create(widget(color="red"))
    condition = {"conditions": [{"type": "Ready", "status": "True"}]}
    widgets.objects.patch("Widget", "w", {"status": condition}, subresource="status")
    _, out, _ = await kubectl("get", "wd")
    head, row = (line.split() for line in out.splitlines())
    assert (head, row) == (["NAME", "READY", "REPLICAS"], ["w", "True", "1"])
    _, out, _ = await kubectl("get", "wd", "-o", "wide")
    assert out.splitlines()[1].split() == ["w", "True", "1", "red"]
    _, out, _ = await kubectl("get", "wd", "w", "-o", "jsonpath={.spec.color}")
    assert out == "red"


async def test_describe_shows_status_and_events(widgets, kubectl):
    made = widgets.objects.create(widget(color="red"))
    involved = {"apiVersion": "test.dev/v1", "kind": "Widget", "name": "w", "namespace": "default"}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "w.1", "namespace": "default"},
        "involvedObject": involved | {"uid": made["metadata"]["uid"]},
        "type": "Warning",
        "reason": "Broken",
        "message": "it is broken",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    widgets.objects.create(event)
    status, out, err = await kubectl("describe", "wd", "w")
    assert (status, err) == (0, "")
    assert "it is broken" in out
    _, out, _ = await kubectl("events", "--for", "widget/w")
    assert "Broken" in out


async def test_scale_delete_and_wait(widgets, kubectl):
    widgets.objects.create(widget())
    status, _, err = await kubectl("scale", "wd", "w", "--replicas", "3")
    assert (status, err) == (0, "")
    assert widgets.objects.get("Widget", "w")["spec"]["replicas"] == 3
    status, out, _ = await kubectl("delete", "wd", "w", "--wait")
    assert (status, out.split()[-1]) == (0, "deleted")
    assert widgets.objects.find("Widget", "w") is None


async def test_wait_for_a_condition(widgets, kubectl):
    widgets.objects.create(widget())
    waiting = asyncio.create_task(kubectl("wait", "wd/w", "--for=condition=Ready", "--timeout=20s"))
    await widgets.until(lambda: any(watch.kind.kind == "Widget" for watch in widgets.watches) or waiting.done())
    condition = {"conditions": [{"type": "Ready", "status": "True"}]}
    widgets.objects.patch("Widget", "w", {"status": condition}, subresource="status")
    status, out, err = await waiting
    assert (status, out, err) == (0, "widget.test.dev/w condition met\n", "")


async def test_edit_by_patch_and_label(kube, kubectl):
    kube.objects.create(config_map(key="1"))
    status, _, err = await kubectl("patch", "cm", "c", "-p", '{"data":{"key":"2"}}')
    assert (status, err) == (0, "")
    await kubectl("label", "cm", "c", "a=b")
    await kubectl("annotate", "cm", "c", "halogen.dev/x=y")
    found = kube.objects.get("ConfigMap", "c")
    assert (found["data"], found["metadata"]["labels"]) == ({"key": "2"}, {"a": "b"})
    assert found["metadata"]["annotations"] == {"halogen.dev/x": "y"}


async def test_explain_and_api_resources(widgets, kubectl):
    status, out, _ = await kubectl("explain", "widget.spec")
    assert status == 0
    assert "replicas" in out
    _, out, _ = await kubectl("api-resources", "--api-group", "test.dev")
    assert out.splitlines()[1].split() == ["widgets", "wd", "test.dev/v1", "true", "Widget"]


async def test_namespaces(kube, kubectl):
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "models"}}
    assert (await kubectl("apply", "-f", "-", manifest=space))[0] == 0
    _, out, _ = await kubectl("get", "ns")
    assert "models" in out
    assert (await kubectl("delete", "ns", "models", "--wait"))[0] == 0
    assert kube.objects.find("Namespace", "models") is None


@pytest.mark.parametrize("overlay", ["cluster-wide", "namespaced", "peering"])
async def test_the_operator_s_installation_is_taken_whole(kube, kubectl, overlay):
    """Strictly: no field of it is unknown, and a second time nothing changes."""
    kube.namespace("models")
    folder = str(ROOT / "operator/deploy/overlays" / overlay)
    status, out, err = await kubectl("apply", "--server-side", "--force-conflicts", "-k", folder)
    assert (status, err) == (0, "")
    assert "deployment.apps/halogen-operator serverside-applied" in out
    revision = kube.store.revision
    assert (await kubectl("apply", "--server-side", "-k", folder))[0] == 0
    assert kube.store.revision == revision
