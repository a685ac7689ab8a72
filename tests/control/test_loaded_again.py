"""What the ledger has of a replica that is loaded again as it was: its weights as they lay, its steps as they are."""

import os
import signal

import pytest
from support.played.world import document, reached, until
from support.v2_files import copy_v2

from halogend.control import mend

PARTS = [{"id": f"cpu:{number}", "cores": str(number)} for number in (0, 1)]
BOTH = {"exec_mode": "data_parallel", "device": ["cpu:0", "cpu:1"]}
TWO_LOADS = {"max_parallel_loads": 2}
REFUSED = {"do": "fail", "code": "HRT-1016", "message": "no memory"}
pytestmark = pytest.mark.skipif(os.sched_getaffinity(0) < {0, 1}, reason="needs the cores 0 and 1")


@pytest.fixture
async def mapped(world, monkeypatch):
    """A world in which `a` serves on two devices with its weights mapped, whose next load would map none. There is
    room for so many generations on each."""
    monkeypatch.setattr(mend, "BACKOFF_S", (0.0,))

    async def make(room):
        there = await world()
        for name in ("v", "w"):
            copy_v2(there.folder / f"{name}.gguf", quantisation="int8")
        there.text = document(there.model("a", "v", **BOTH), devices=PARTS)
        planned = await there.steering.plan()
        memory = int(max(each["after"]["total_bytes"] for each in planned["devices"]) * room)
        parts = [{**each, "memory": memory} for each in PARTS]
        for threshold in ({}, {"mmap_threshold": 0}):
            text = document(there.model("a", "v", **BOTH, **threshold), devices=parts, reload=TWO_LOADS)
            assert (await reached(there.edit(text))).outcome == "applied"
        await until(there.is_quiet, "all is quiet")
        assert there.stage.loads() == 2
        assert there.house.ledger.holding("a#1").mapped_bytes > 0
        return there, parts

    return make


def _weights(world):
    return {name: (each.weights_bytes, each.mapped) for name, each in world.house.ledger.held().items()}


async def test_what_is_rolled_back_lies_as_it_lay(mapped):
    there, parts = await mapped(1.5)
    before = _weights(there)
    loads = there.stage.hold("load", role="engine", model="w")
    receipt = there.edit(document(there.model("a", "w", **BOTH, mmap_threshold=0), devices=parts))
    (await loads.reached()).say()
    (await loads.reached(2)).say(**REFUSED)
    await reached(receipt)
    assert "roll_back" in [step.name for step in receipt.models["a"].steps]
    serving = there.unit("a").serving
    await until(lambda: [each.is_alive for each in serving.replicas] == [True, True], "the old ones serve again")
    assert [each.spec.engine.mmap_threshold for each in serving.replicas] == [0.9, 0.9]
    assert _weights(there) == before


async def test_what_is_mended_is_measured_against_weights_as_they_lie(mapped):
    there, _ = await mapped(3)
    before, serving = _weights(there), there.unit("a").serving
    dead = serving.replicas[1]
    there.stage.order("ready", "go", where={"role": "engine"}, transient_bytes=1 << 20)
    os.kill(dead.pids["engine"], signal.SIGKILL)
    await until(lambda: serving.replicas[1] is not dead and serving.replicas[1].is_alive, "another is in its place")
    assert _weights(there) == before
    memory, held = serving.replicas[1].memory, there.house.ledger.holding("a#1/1")
    assert memory._expected.weights_bytes == held.weights_bytes
    assert memory.working_bytes == held.working_bytes


async def test_what_an_atomic_change_claims_is_given_back_though_a_replica_was_mended_meanwhile(mapped):
    there, parts = await mapped(3)
    before, serving = there.house.ledger.held(), there.unit("a").serving
    load = there.stage.hold("load", role="engine", model="b")
    larger = there.model("a", "v", **BOTH, mmap_threshold=0, kv_cache_bytes="3MiB")
    models = (larger, there.model("b", device="cpu:0"))
    receipt = there.edit(document(*models, devices=parts, reload={"atomic": True, **TWO_LOADS}))
    await load.reached()
    await until(lambda: there.house.ledger.holding("a#1/1").kv_bytes > before["a#1/1"].kv_bytes, "it is claimed")
    dead = serving.replicas[1]
    there.stage.order("ready", "go", where={"role": "engine", "model": "v"}, transient_bytes=1 << 20)
    os.kill(dead.pids["engine"], signal.SIGKILL)
    await until(lambda: serving.replicas[1] is not dead and serving.replicas[1].is_alive, "another is in its place")
    assert there.house.ledger.holding("a#1/1").kv_bytes > before["a#1/1"].kv_bytes
    looked = []
    there.unit("a").poke = lambda: looked.append(1)  # what a pool that looks whether it may grow would put right
    (await load.reached()).say(**REFUSED)
    await reached(receipt)
    assert receipt.outcome == "failed"
    kv = {name: each.kv_bytes for name, each in there.house.ledger.held().items()}
    assert kv == {name: each.kv_bytes for name, each in before.items()}


@pytest.mark.parametrize("touched", [0, 1 << 19, 1 << 40])
async def test_a_newcomer_is_ready_with_as_much_of_its_pool_as_what_serves_has(serving, touched):
    """And never with more than its pool may have; the least is one full request."""
    world = await serving()
    world.stage.order("ready", "go", where={"role": "engine", "model": "b"}, touched_bytes=touched)
    assert (await world.apply(world.model("a", "b"))).outcome == "applied"
    planned = world.unit("a").active.spec.engine
    assert (await world.apply(world.model("a", "c"))).outcome == "applied"
    loaded = world.unit("a").serving.spec.engine
    assert planned.pool_floor_bytes < 1 << 19 < loaded.limits.pool_bytes < 1 << 40
    assert loaded.pool_floor_bytes == min(loaded.limits.pool_bytes, max(planned.pool_floor_bytes, touched))
    assert world.unit("a").active.spec.engine.pool_floor_bytes == planned.pool_floor_bytes
