"""What befalls pods: scaled, replaced, killed, late with their mounts, without a node, and left by their operator."""

import signal

import aiohttp
import pytest
from support.cluster import cluster, condition, conditions, usual_children
from support.pod_traffic import Traffic, ask, daemon_status

A, B = "/models/a.gguf", "/models/b.gguf"
GPU = {"limits": {"nvidia.com/gpu": 1}}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def only_pod(here):
    (pod,) = await here.pods()
    return pod


async def document_of(here):
    """What the only pod's daemon serves, and its model's generation."""
    status = await daemon_status(here.client, await only_pod(here), "chat")
    return status["models"]["chat"]["serving"]["path"], status["models"]["chat"]["serving"]["generation"]


async def test_scale_up_edits_pod_by_pod_and_to_zero_and_back(tmp_path, two_models):
    """Through the scale subresource, as an autoscaler does it. An edit of two pods never has both in change."""
    async with cluster(tmp_path, two_models) as here, here.operator():
        await here.apply("chat", model=A)
        await here.until_settled("chat", 1)
        await here.client.merge("HalogenModel", "chat", {"spec": {"replicas": 2}}, "scale")
        model = await here.until_settled("chat", 2)
        assert model["status"]["readyReplicas"] == 2
        assert len({each["revision"] for each in model["status"]["pods"]}) == 1
        assert await here.client.find("PodDisruptionBudget", "chat")
        before = {pod["metadata"]["uid"] for pod in await here.pods()}
        most = 0
        async with Traffic(here.endpoints, "chat") as traffic:
            await traffic.until(4)
            generation = await here.edit("chat", model=B)

            def is_done(model):
                nonlocal most
                pods = model["status"].get("pods", [])
                most = max(most, sum(each.get("revision") != each.get("desired") for each in pods))
                return (
                    condition(model, "Ready").get("status") == "True"
                    and model["status"]["observedGeneration"] == generation
                )

            await here.until("chat", is_done)
            await traffic.until(4)
        assert traffic.failures == []
        assert len(set(traffic.answers)) == 2
        assert most <= 1
        assert {pod["metadata"]["uid"] for pod in await here.pods()} == before
        await here.client.merge("HalogenModel", "chat", {"spec": {"replicas": 0}}, "scale")
        model = await here.until_settled("chat", 4)
        assert conditions(model)["Ready"] == "True/ScaledToZero"
        await here.eventually(lambda: _none(here))
        await here.client.merge("HalogenModel", "chat", {"spec": {"replicas": 1}}, "scale")
        await here.until_settled("chat", 5)
        assert (await document_of(here))[0] == B


async def _none(here):
    return not await here.client.all("Pod")


async def test_a_daemon_that_hangs_holds_up_no_other_pod_and_is_told_of(tmp_path, two_models):
    async with cluster(tmp_path, two_models) as here, here.operator():
        await here.apply("chat", model=A, replicas=2)
        await here.until_settled("chat", 1)
        hung, other = sorted(here.kubelet.runs.values(), key=lambda run: run.name)
        hung.process.send_signal(signal.SIGSTOP)
        try:
            generation = await here.edit("chat", model=B)

            def is_served_by_the_other(model):
                pods = {each["name"]: each.get("revision") for each in model["status"]["pods"]}
                is_served = pods.get(other.name) == model["status"]["desired"]["revision"]
                return model["status"]["observedGeneration"] == generation and is_served

            model = await here.until("chat", is_served_by_the_other)
            assert conditions(model)["Reconciling"].startswith("True/")
            assert hung.name in condition(model, "Reconciling")["message"]
        finally:
            hung.process.send_signal(signal.SIGCONT)
        model = await here.until_settled("chat", generation)
        assert {each["revision"] for each in model["status"]["pods"]} == {model["status"]["desired"]["revision"]}


async def test_o1_one_device_is_edited_in_place_and_an_image_waits_for_nobody(tmp_path, two_models):
    """The node has one accelerator, and the pod holds it."""
    async with cluster(tmp_path, two_models, room={"nvidia.com/gpu": 1}) as here, here.operator():
        await here.apply("chat", model=A, resources=GPU)
        await here.until_settled("chat", 1)
        pod = await only_pod(here)
        await here.edit("chat", model=B)
        await here.until_settled("chat", 2)
        assert (await only_pod(here))["metadata"]["uid"] == pod["metadata"]["uid"]
        await here.edit("chat", image="halogend:next")
        await here.until_settled("chat", 3)
        other = await only_pod(here)
        assert other["metadata"]["uid"] != pod["metadata"]["uid"]
        assert other["spec"]["containers"][0]["image"] == "halogend:next"
        assert (await document_of(here)) == (B, 1)


async def test_o11_without_a_node_it_stalls_with_the_reason_and_recovers_by_itself(tmp_path, two_models):
    async with cluster(tmp_path, two_models, room={"nvidia.com/gpu": 0}) as here, here.operator():
        await here.apply("chat", model=A, resources=GPU, update={"progressDeadlineSeconds": 10})
        model = await here.until("chat", lambda model: condition(model, "Stalled").get("status") == "True")
        assert conditions(model)["Stalled"] == "True/Unschedulable"
        assert conditions(model)["Reconciling"].startswith("False/")
        assert "nvidia.com/gpu" in condition(model, "Stalled")["message"]
        await here.controllers.give({"nvidia.com/gpu": 1})
        await here.until_settled("chat", 1)


async def test_an_image_that_is_not_there_stalls_and_the_old_pods_serve(tmp_path, two_models):
    async with cluster(tmp_path, two_models) as here, here.operator():
        await here.apply("chat", model=A, replicas=2, update={"progressDeadlineSeconds": 10})
        await here.until_settled("chat", 1)
        here.kubelet.missing_images = {"halogend:none"}
        await here.edit("chat", image="halogend:none")
        model = await here.until("chat", lambda model: condition(model, "Stalled").get("status") == "True")
        assert conditions(model)["Stalled"] == "True/ImagePull"
        assert len(here.endpoints()) == 1
        async with aiohttp.ClientSession() as session:
            await ask(session, here.endpoints()[0], "chat", "alpha")
        await here.edit("chat", image=None)
        await here.until_settled("chat", 3)


async def test_an_operator_that_is_killed_in_a_change_is_followed_by_one_that_ends_it(tmp_path, two_models):
    """Each time it got a little further."""
    async with cluster(tmp_path, two_models) as here:
        await here.apply("chat", model=A)
        for number in range(12):
            await here.killed_operator(0.15 * (number + 1))
        async with here.operator():
            model = await here.until_settled("chat", 1)
        assert len(await here.pods()) == 1
        assert model["status"]["replicas"] == 1
        assert await here.made() == usual_children("chat")
