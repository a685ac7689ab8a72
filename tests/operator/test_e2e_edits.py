"""Edits that come at a bad moment, fail late, change much at once, or take a name that somebody had."""

import shutil

import aiohttp
import pytest
from support.cluster import cluster, condition, conditions, secret
from support.pod_traffic import Traffic, daemon_status

A, B = "/models/a.gguf", "/models/b.gguf"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def served(here):
    """Path and generation of the model in each pod, by the pod's name."""
    found = {}
    for pod in await here.pods():
        serving = (await daemon_status(here.client, pod, "chat"))["models"]["chat"]["serving"]
        found[pod["metadata"]["name"]] = (serving["path"], serving["generation"])
    return found


def is_stalled(generation):
    def check(model):
        seen = model.get("status", {}).get("observedGeneration") == generation
        return seen and condition(model, "Stalled").get("status") == "True"

    return check


def is_on_its_way(model):
    return any(each.get("desired") != each.get("revision") for each in model["status"]["pods"])


async def test_edits_overtake_each_other_and_a_load_that_fails_is_told_and_taken_back(tmp_path, two_models):
    """Under requests, of which none fails."""
    (two_models / "bad.jinja").write_text("{% for %}")
    async with cluster(tmp_path, two_models) as here, here.operator():
        await here.apply("chat", model=A)
        await here.until_settled("chat", 1)
        async with Traffic(here.endpoints, "chat", clients=2) as traffic:
            await traffic.until(2)
            for model in (B, A, B):
                generation = await here.edit("chat", model=model)
                await here.until("chat", is_on_its_way)
            await here.until_settled("chat", generation)
            assert [path for path, _ in (await served(here)).values()] == [B]
            generation = await here.edit("chat", chat_template="/models/bad.jinja")
            found = await here.until("chat", is_stalled(generation))
            assert conditions(found)["Stalled"] in {"True/LoadFailed", "True/Rejected"}
            assert [path for path, _ in (await served(here)).values()] == [B]
            generation = await here.edit("chat", chat_template=None)
            await here.until_settled("chat", generation)
        assert traffic.failures == []


async def test_a_spec_that_one_pod_refuses_is_handed_to_no_other(tmp_path, two_models):
    async with cluster(tmp_path, two_models) as here, here.operator():
        await here.apply("chat", model=A, replicas=2)
        await here.until_settled("chat", 1)
        generation = await here.edit("chat", model="/models/none.gguf")
        model = await here.until("chat", is_stalled(generation))
        assert sum(each["outcome"] == "rejected" for each in model["status"]["pods"]) == 1
        assert model["status"]["readyReplicas"] == 2
        assert set((await served(here)).values()) == {(A, 1)}


@pytest.mark.models
async def test_weights_of_real_models_are_edited_under_requests(tmp_path, smollm2, gemma):
    folder = tmp_path / "models"
    folder.mkdir()
    for name, source in (("a", smollm2), ("b", gemma)):
        shutil.copy(source, folder / f"{name}.gguf")
    async with cluster(tmp_path, folder) as here, here.operator():
        await here.apply("chat", model=A, precision="auto")
        await here.until_settled("chat", 1)
        async with Traffic(here.endpoints, "chat", clients=4) as traffic:
            await traffic.until(4)
            for model in (B, A):
                generation = await here.edit("chat", model=model)
                await here.until_settled("chat", generation, 120)
                await traffic.until(4)
        assert traffic.failures == []
        assert len(set(traffic.answers)) == 2
        print(f"{len(traffic.answers)} requests, 0 failed, during two edits of the weights")


async def test_keys_image_and_model_change_at_once(tmp_path, two_models):
    async with cluster(tmp_path, two_models) as here, here.operator():
        await here.apply("chat", model=A)
        await here.until_settled("chat", 1)
        keys = [{"name": "team", "secretKeyRef": {"name": "keys", "key": "team"}}]
        await here.client.create("Secret", secret("keys", team="a-key-of-the-team"))
        generation = await here.edit("chat", model=B, image="halogend:next", auth={"keys": keys, "none": None})
        await here.until_settled("chat", generation)
        assert [path for path, _ in (await served(here)).values()] == [B]
        (url,) = here.endpoints()
        async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/models") as answer:
            assert answer.status == 401


def everywhere(here):
    """Settings of an operator of all namespaces; on a real cluster it stays in its own."""
    return {} if here.kube is None else {"namespaces": ()}


async def test_a_name_is_taken_again_at_once(tmp_path, two_models):
    async with cluster(tmp_path, two_models) as here, here.operator(**everywhere(here)):
        await here.apply("chat", model=A)
        await here.until_settled("chat", 1)
        await here.client.delete("HalogenModel", "chat")
        made = await here.apply("chat", model=B)
        await here.until_settled("chat", 1)
        owners = {
            owner["uid"]
            for (kind, _), body in (await here.children()).items()
            if kind != "Pod"
            for owner in body["metadata"]["ownerReferences"]
        }
        assert owners == {made["metadata"]["uid"]}
        assert [path for path, _ in (await served(here)).values()] == [B]
        await here.client.delete("Deployment", "chat")
        await here.eventually(lambda: here.client.find("Deployment", "chat"))
        await here.until_settled("chat", 1)
