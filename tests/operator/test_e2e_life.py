"""The life of a HalogenModel with a real daemon behind it: made, edited under load, refused, mended, deleted."""

import time

import aiohttp
import pytest
from support.cluster import cluster, condition, conditions, usual_children
from support.pod_traffic import Traffic, ask, daemon_status

A, B = "/models/a.gguf", "/models/b.gguf"
PINNED = {"policy": "priority_lru", "sessions": [{"class": "agents", "pin_quota": 0.9}]}
REJECTED = ("Warning", "Rejected")
GOOD = {"Validated": "True/Accepted", "Ready": "True/Serving", "Stalled": "False/AsAsked", "Degraded": "False/AsAsked"}


def is_stalled(generation):
    def check(model):
        seen = model.get("status", {}).get("observedGeneration") == generation
        return seen and condition(model, "Stalled").get("status") == "True"

    return check


async def answer(here, prompt="alpha"):
    (url,) = here.endpoints()
    async with aiohttp.ClientSession() as session:
        return await ask(session, url, "chat", prompt)


async def serving(here):
    """What the only pod's daemon says of the generation that serves; nothing where none does or nobody answers."""
    (pod,) = await here.pods()
    try:
        return (await daemon_status(here.client, pod, "chat"))["models"]["chat"].get("serving") or {}
    except (aiohttp.ClientError, KeyError):
        return {}


async def generation_of(here):
    return (await serving(here))["generation"]


def serves(model, revision):
    """Both revisions are this one, or, for None, one and the same; returns it."""
    active, desired = (model["status"][key]["revision"] for key in ("active", "desired"))
    assert active == desired == (revision or active)
    return active


@pytest.mark.timeout(300)
async def test_o1_o2_o4_a_model_is_made_edited_refused_mended_and_deleted(tmp_path, two_models):
    """With requests running from the first moment until it is deleted: none of them fails."""
    async with cluster(tmp_path, two_models) as here:
        async with here.operator():
            first = await made(here)
            async with Traffic(here.endpoints, "chat", clients=2) as traffic:
                await traffic.until(2)
                second = await policy_is_edited(here, first)
                third = await weights_are_edited(here, traffic)
                await refused(here, third)
                await mended(here, third)
                await traffic.until(2)
            assert traffic.failures == []
            assert len({first, second, third}) == 3
            told = await here.events()
            assert told.keys() >= {("Normal", word) for word in ("Progressing", "Serving", "Recovered")} | {REJECTED}
            assert told[REJECTED] == 2
        began = time.monotonic()
        await here.client.delete("HalogenModel", "chat")  # nobody runs who could have a hand in it
        await here.until_gone()
        print(f"nothing was left {time.monotonic() - began:.1f} s after the deletion")
        async with here.operator():
            await here.apply("other", model=A, eviction=PINNED)
            await here.until("other", is_stalled(1))
            assert await here.children() == {}  # of a first spec that is refused, and of what was deleted


@pytest.mark.timeout(300)
async def test_two_quick_edits_while_the_mount_lags_and_the_last_one_stays(tmp_path, two_models):
    """Also when the container starts again from a mount that is two edits old."""
    async with cluster(tmp_path, two_models) as here, here.operator():
        await here.apply("chat", model=A)
        await here.until_settled("chat", 1)
        await here.eventually(lambda: mounted(here, "a.gguf"))
        here.kubelet.follows_mounts = False
        await here.edit("chat", model=B)
        await here.edit("chat", max_batch=9)
        last = serves(await here.until_settled("chat", 3), None)
        assert (await serving(here))["path"] == B
        assert await mounted(here, "a.gguf")
        (run,) = here.kubelet.runs.values()
        run.process.kill()
        await here.eventually(lambda: serves_again(here, run, B))
        serves(await here.until_settled("chat", 3), last)
        here.kubelet.catch_up()
        assert await mounted(here, "b.gguf")
        serves(await here.until_settled("chat", 3), last)


async def mounted(here, model):
    """Has the only pod's document this model?"""
    (run,) = here.kubelet.runs.values()
    return model in (run.volumes["halogend-document"] / "halogend.yaml").read_text()


async def serves_again(here, run, path):
    return run.restarts == 1 and (await serving(here)).get("path") == path


async def made(here):
    """What there is once it serves: children, conditions, revisions; nothing on the HalogenModel itself."""
    await here.apply("chat", model=A)
    model = await here.until_settled("chat", 1)
    assert conditions(model).items() >= GOOD.items()
    assert condition(model, "Reconciling")["status"] == "False"
    assert {each["observedGeneration"] for each in model["status"]["conditions"]} == {1}
    status = model["status"]
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (1, 1, 1)
    assert "finalizers" not in model["metadata"]
    assert "annotations" not in model["metadata"]
    assert await here.made() == usual_children("chat")
    children = await here.children()
    for kind, name in await here.made():
        (owner,) = children[kind, name]["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("HalogenModel", model["metadata"]["uid"])
    revision = serves(model, None)
    (told,) = status["pods"]
    assert (told["ready"], told["revision"], told["outcome"]) == (True, revision, "applied")
    assert "a.gguf" in children["ConfigMap", "chat-document"]["data"]["halogend.yaml"]
    return revision


async def policy_is_edited(here, before):
    """Live: the same pod, the same generation of the model."""
    (pod,) = await here.pods()
    assert await here.edit("chat", max_batch=7) == 2
    model = await here.until_settled("chat", 2)
    (same,) = await here.pods()
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    assert same["status"]["containerStatuses"][0]["restartCount"] == 0
    assert await generation_of(here) == 1
    revision = serves(model, None)
    assert revision != before
    return revision


async def weights_are_edited(here, traffic):
    """In place: another generation in the same process, and not one request knows of it."""
    (pod,) = await here.pods()
    of_a = await answer(here)
    await here.edit("chat", model=B)
    model = await here.until_settled("chat", 3)
    (same,) = await here.pods()
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    assert await generation_of(here) == 2
    of_b = await answer(here)
    assert of_a != of_b
    await traffic.until(2)
    assert set(traffic.answers) == {of_a, of_b}
    assert traffic.failures == []
    print(f"{len(traffic.answers)} requests, 0 failed, during the policy and the weight edit")
    config = await here.client.get("ConfigMap", "chat-document")
    assert "b.gguf" in config["data"]["halogend.yaml"]
    return serves(model, None)


async def refused(here, before):
    """By the operator's own reading, and by the pod: the place is told, and what served serves on."""
    held = (await here.client.get("ConfigMap", "chat-document"))["data"]
    faults = [
        (4, {"eviction": PINNED}, "spec.eviction.sessions[0].pin_quota: HCF-"),
        (5, {"eviction": None, "model": "/models/none.gguf"}, "spec.model: HCK-1010: "),
    ]
    for generation, fault, place in faults:
        await here.edit("chat", **fault)
        model = await here.until("chat", is_stalled(generation))
        found = conditions(model)
        assert found.items() >= {"Validated": "False/Rejected", "Ready": "False/Rejected"}.items()
        assert found.items() >= {"Stalled": "True/Rejected", "Reconciling": "False/Rejected"}.items()
        assert place in condition(model, "Validated")["message"]
        assert before in condition(model, "Ready")["message"]
        assert model["status"]["active"]["revision"] == before
        assert len(here.endpoints()) == 1
        assert (await here.client.get("ConfigMap", "chat-document"))["data"] == held
    assert model["status"]["desired"]["revision"] != before


async def mended(here, before):
    await here.edit("chat", model=B)
    model = await here.until_settled("chat", 6)
    assert conditions(model).items() >= GOOD.items()
    assert serves(model, before) == before
    assert await generation_of(here) == 2
