"""Edits in a storm: answers of the API server fail, watches are cut, operators are killed, and requests never stop."""

import random

import pytest
from support.cluster import cluster, usual_children
from support.pod_traffic import Traffic, daemon_status

A, B = "/models/a.gguf", "/models/b.gguf"
EDITS = (
    {"model": A},
    {"model": B},
    {"max_batch": 5},
    {"max_batch": 9, "max_queue": 100},
    {"model": "/models/none.gguf"},
    {"eviction": {"policy": "priority_lru", "sessions": [{"class": "agents", "pin_quota": 0.9}]}},
    {"eviction": None},
)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
async def test_edits_in_a_storm_end_at_the_last_one_and_fail_no_request(tmp_path, two_models, seed):
    """One pod, one container, from the first edit to the last."""
    chance = random.Random(seed)
    async with cluster(tmp_path, two_models) as here:
        if here.kube is None:
            pytest.skip("the storm is the stand-in's")
        async with here.operator():
            await here.apply("chat", model=A)
            await here.until_settled("chat", 1)
        (pod,) = await here.pods()
        async with Traffic(here.endpoints, "chat", clients=2) as traffic:
            for _ in range(10):
                for _ in range(chance.randint(1, 3)):
                    await here.edit("chat", **chance.choice(EDITS))
                weather(here.kube, chance)
                await here.killed_operator(chance.uniform(0.3, 3.0))
            here.kube.faults.clear()
            generation = await here.edit("chat", model=B, eviction=None, max_batch=6)
            async with here.operator():
                model = await here.until_settled("chat", generation, 120)
                await traffic.until(2)
        assert traffic.failures == []
        assert await here.made() == usual_children("chat")
        (same,) = await here.pods()
        assert same["metadata"]["uid"] == pod["metadata"]["uid"]
        assert same["status"]["containerStatuses"][0]["restartCount"] == 0
        assert (await daemon_status(here.client, same, "chat"))["models"]["chat"]["serving"]["path"] == B
        assert model["status"]["active"]["revision"] == model["status"]["desired"]["revision"]
        print(f"{len(traffic.answers)} requests, 0 failed, over {generation} generations")


def weather(kube, chance):
    """What befalls the operator that comes next; the node and the other controllers suffer the cut watches too."""
    for _ in range(chance.randint(0, 4)):
        verb = chance.choice(["get", "list", "watch", "patch", "create"])
        where = {"verb": verb, "writer": "halogen-operator", "nth": chance.randint(1, 6)}
        if (status := chance.choice([409, 422, 429, 500, None])) is not None:
            kube.faults.fail(status, **where)
        else:
            kube.faults.cut(**where, is_after=chance.random() < 0.5)
    if chance.random() < 0.5:
        kube.cut_watches(abruptly=chance.random() < 0.5)
    if chance.random() < 0.3:
        kube.expire_watches()
