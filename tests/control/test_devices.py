"""A host that the document divides: whose memory and whose cores a model uses."""

import os

import pytest
from support.played.world import GIB, document, reached, until

from halogend.control.receipts import Milestone

TWO = [{"id": "cpu:0", "cores": "0"}, {"id": "cpu:1", "cores": "1", "memory": "1GiB"}]
pytestmark = pytest.mark.skipif(os.sched_getaffinity(0) < {0, 1}, reason="needs the cores 0 and 1")


def cores_of(generation):
    return {role: os.sched_getaffinity(pid) for role, pid in generation.pids.items()}


async def test_each_model_runs_on_the_cores_of_its_device(serving):
    there = await serving()
    assert cores_of(there.unit("a").serving)["engine"] == os.sched_getaffinity(0)
    both = document(there.model("a"), there.model("b", device="cpu:1"), devices=TWO)
    receipt = await reached(there.edit(both))
    assert {name: each.action for name, each in receipt.models.items()} == {"a": "replace", "b": "create"}
    assert cores_of(there.unit("a").serving) == {"text": {0}, "engine": {0}}
    assert cores_of(there.unit("b").serving) == {"text": {1}, "engine": {1}}
    assert there.house.ledger.taken_bytes("cpu:1") == there.unit("b").active.holding.total_bytes
    assert set(there.steering.ledger()["devices"]) == {"cpu:0", "cpu:1"}
    same = await reached(there.edit(document(there.model("b", device="cpu:1"), there.model("a"), devices=TWO[::-1])))
    assert same.outcome == "unchanged"


async def test_what_is_still_there_of_the_whole_host_is_counted_in_its_parts(serving):
    """`a` holds most of the host's memory until it has drained: `b`, for whose own device it is nothing, waits."""
    there = await serving(586 << 20, kv_cache_bytes="90MiB", max_batch=4096)
    slow = there.stage.hold("generate", prompt="slow")
    answer = await there.submit("a", "slow", 5)
    (await slow.reached()).say("token")
    await until(lambda: answer.has_token, "a token has come")
    parts = [{"id": "cpu:0", "cores": "0", "memory": "268MiB"}, {"id": "cpu:1", "cores": "1"}]
    await reached(there.edit(document(devices=parts)), Milestone.SERVING)
    receipt = there.edit(document(there.model("b", device="cpu:1"), devices=parts))
    await reached(receipt, Milestone.ACCEPTED)
    target = there.unit("b").goal
    alone = target.granted_beside(0)
    assert target.fits_beside(there.house.ledger.taken_bytes("cpu:1"))
    assert not there.house.fits(target)
    slow.release("finish")
    assert (await reached(receipt)).outcome == "applied"
    assert there.house.ledger.holding("b#1").kv_bytes == alone


async def test_threads_are_those_of_the_device(world):
    there = await world()
    await there.apply(there.model("a"), there.model("b", device="cpu:1"), devices=TWO)
    assert {call.model: call.detail["threads"] for call in there.stage.at("load", "engine")} == {"a": 1, "b": 1}
    three = [{"id": "cpu:0", "cores": "0"}, {"id": "cpu:1", "cores": "1"}, {"id": "cpu:2", "spare": True}]
    again = await there.apply(there.model("a"), there.model("b", device="cpu:1"), devices=three)
    assert {record.action for record in again.models.values()} == {"update"}  # a has less memory, and b


async def test_memory_of_a_device_is_live(world):
    there = await world(4 * GIB)
    sized = {"kv_cache_ratio": 0.9, "kv_cache_bytes": None, "max_batch": 4096}
    fields = {key: value for key, value in {**there.model("a"), **sized}.items() if value is not None}
    rest = {"id": "cpu:1", "cores": "1"}
    await there.apply(fields, devices=[{"id": "cpu:0", "cores": "0", "memory": "412MiB"}, rest])
    before = there.unit("a").serving.engine_limits.pool_bytes
    receipt = await there.apply(fields, devices=[{"id": "cpu:0", "cores": "0", "memory": "372MiB"}, rest])
    assert (receipt.outcome, receipt.models["a"].action, there.stage.loads()) == ("applied", "update", 1)
    assert there.unit("a").serving.engine_limits.pool_bytes == before - int((40 << 20) * 0.9)
    assert [each["field"] for each in receipt.server_changes] == ["devices[cpu:0].memory"]
