"""What somebody on call reads of a HalogenModel by kubectl, with the operator at work."""

import pytest
from fakekube import FakeKube
from support.kubectl import Kubectl, needs_kubectl
from support.operators import halogen_model, is_ready, quick, running
from support.played_pods import PlayedPods
from support.ports import free_port

pytestmark = needs_kubectl


@pytest.fixture
async def world(tmp_path):
    port = free_port()
    async with FakeKube() as kube, PlayedPods(kube, port) as pods, running(quick(kube.url, admin_port=port)):
        yield kube, pods, Kubectl(kube.url, tmp_path)


def _reason(kube):
    found = kube.objects.get("HalogenModel", "chat")
    told = {each["type"]: each for each in found.get("status", {}).get("conditions", [])}
    ready = told.get("Ready", {})
    is_new = ready.get("observedGeneration") == found["metadata"]["generation"]
    return (ready.get("status"), ready.get("reason")) if is_new else None


async def test_get_shows_whether_it_serves_and_what(world):
    kube, pods, kubectl = world
    assert (await kubectl("apply", "-f", "-", manifest=halogen_model()))[0] == 0
    await kube.until(lambda: is_ready(kube))
    status, out, _ = await kubectl("get", "hm")
    head, row = (line.split() for line in out.splitlines())
    assert head == ["NAME", "READY", "REASON", "ACTIVE", "DESIRED", "REPLICAS", "AGE"]
    revision = pods.of("chat")[0].revision[:12]
    assert (status, row[:6]) == (0, ["chat", "True", _reason(kube)[1], revision, revision, "1"])
    _, out, _ = await kubectl("get", "hm", "-o", "wide")
    assert halogen_model()["spec"]["model"] in out
    assert (await kubectl("wait", "hm/chat", "--for=condition=Ready", "--timeout=10s"))[0] == 0


async def test_describe_says_what_is_wrong_and_what_serves_on(world):
    kube, pods, kubectl = world
    kube.objects.create(halogen_model())
    await kube.until(lambda: is_ready(kube))
    active = pods.of("chat")[0].revision[:12]
    pods.judge = lambda text: "rejected"
    assert (await kubectl("patch", "hm", "chat", "--type", "merge", "-p", '{"spec":{"max_batch":3}}'))[0] == 0
    await kube.until(lambda: (_reason(kube) or ("True",))[0] == "False")
    _, out, _ = await kubectl("get", "hm", "chat")
    row = out.splitlines()[1].split()
    assert row[1] == "False"
    assert row[3] == active != row[4]
    status, out, err = await kubectl("describe", "hm", "chat")
    assert (status, err) == (0, "")
    assert "is not there" in out
    assert active in out
    _, _, events = out.partition("Events:")
    assert "Warning" in events


async def test_scale_to_none_and_delete(world):
    kube, _, kubectl = world
    kube.objects.create(halogen_model())
    await kube.until(lambda: is_ready(kube))
    assert (await kubectl("scale", "hm", "chat", "--replicas", "0"))[0] == 0
    await kube.until(lambda: _reason(kube) == ("True", "ScaledToZero"))
    status, out, _ = await kubectl("delete", "hm", "chat", "--wait", "--timeout", "10s")
    assert (status, out.split()[-1]) == (0, "deleted")
    await kube.until(lambda: not kube.objects.list("Deployment", "default"))
