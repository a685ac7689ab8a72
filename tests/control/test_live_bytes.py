"""What a live change lowers: the pool's bytes are free when it is confirmed, all others when the process has ended."""

import asyncio
import os
import signal

import pytest
from support.fake_devices import accelerator
from support.played.world import content, document, reached, until
from support.tiny_models import tiny_llama
from support.v2_files import copy_v2

from halogend.control import mend
from halogend.control.planning import Given

GIB = 1 << 30
WIDE, NARROW = {"max_batch": 4096, "kv_cache_bytes": "16MiB"}, {"max_batch": 8, "kv_cache_bytes": "256KiB"}
PARTS = [{"id": f"cpu:{number}", "cores": str(number)} for number in (0, 1)]
BOTH = {"exec_mode": "data_parallel", "device": ["cpu:0", "cpu:1"]}


async def changed(there, *models, **top):
    """The plan of a change, which is live, and what the ledger holds when all of it is confirmed."""
    text = document(*models, **top)
    plan = await there.reconciler.plan(Given(content(text), ""))
    receipt = await reached(there.edit(text))
    assert receipt.outcome == "applied", [str(each) for each in receipt.problems]
    assert {each.action for each in receipt.models.values()} == {"update"}
    await until(there.is_quiet, "all is confirmed")
    return plan, there.house.ledger.held()


@pytest.mark.parametrize("device", ["cpu:0", "cuda:0"])
async def test_a_smaller_batch_gives_back_its_part_of_the_pool_and_nothing_else(world, device):
    """Recordings, and whatever an allocator keeps of larger steps, are there as long as the process."""
    there = await world(8 * GIB, accelerators=(accelerator(),))
    await there.apply(there.model("a", device=device, **WIDE))
    before = there.house.ledger.holding("a#1")
    plan, held = await changed(there, there.model("a", device=device, **NARROW))
    after = held["a#1"]
    assert after.kv_bytes < before.kv_bytes
    assert (after.working_bytes, after.host_bytes) == (before.working_bytes, before.host_bytes)
    estimate = there.unit("a").active.holding.working_bytes
    assert estimate < after.working_bytes
    taken = {each["device"]: each["after"]["total_bytes"] for each in plan["devices"]}
    assert taken == {name: there.house.ledger.taken_bytes(name) for name in taken}
    await there.apply(there.model("a", "b", device=device, **NARROW))
    assert there.house.ledger.holding("a#2").working_bytes == estimate, "another generation begins anew"


async def test_no_pool_grows_into_what_larger_steps_took(serving):
    first = await serving(**WIDE)
    wide = first.unit("a").active.holding
    await first.stop()
    room = wide.total_bytes + (1 << 20)
    there = await serving(room, **WIDE)
    assert there.house.ledger.taken_bytes("cpu:0") == wide.total_bytes
    _, held = await changed(there, there.model("a", max_batch=2048, kv_cache_bytes="90MiB"))
    assert held["a#1"].kv_bytes == wide.kv_bytes + (1 << 20)
    assert held["a#1"].total_bytes == room


async def test_a_template_that_goes_ends_no_process(world):
    there = await world()
    tiny_llama(there.folder / "bare.gguf")
    (there.folder / "t.jinja").write_text("{{ messages[0].content }}")
    await there.apply(there.model("a", "bare", chat_template=str(there.folder / "t.jinja")))
    with_template = there.house.ledger.holding("a#1")
    plan, held = await changed(there, there.model("a", "bare"))
    assert there.unit("a").active.holding.working_bytes < with_template.working_bytes
    assert held["a#1"] == with_template
    assert plan["devices"][0]["after"]["total_bytes"] == with_template.total_bytes


async def test_weights_lie_as_they_were_loaded_whatever_the_next_load_will_do(world):
    there = await world()
    copy_v2(there.folder / "v.gguf", quantisation="int8")
    await there.apply(there.model("a", "v"))
    before = there.house.ledger.holding("a#1")
    assert before.mapped_bytes > 0
    plan, held = await changed(there, there.model("a", "v", mmap_threshold=0))
    assert held["a#1"] == before
    assert plan["devices"][0]["after"]["mapped_bytes"] == before.mapped_bytes
    assert plan["devices"][0]["after"]["total_bytes"] == before.total_bytes
    await there.apply(there.model("a", "v", mmap_threshold=0, kv_cache_dtype="fp32"))
    assert there.house.ledger.holding("a#2").mapped_bytes < before.mapped_bytes


@pytest.mark.skipif(os.sched_getaffinity(0) < {0, 1}, reason="needs the cores 0 and 1")
async def test_what_stands_in_the_place_of_a_dead_replica_has_steps_of_its_own(world, monkeypatch):
    monkeypatch.setattr(mend, "BACKOFF_S", (0.0,))
    there = await world()
    await there.apply(there.model("a", **BOTH, **WIDE), devices=PARTS)
    wide = there.house.ledger.holding("a#1/1").working_bytes
    await changed(there, there.model("a", **BOTH, **NARROW), devices=PARTS)
    ledger, serving = there.house.ledger, there.unit("a").serving
    dead = serving.replicas[1]
    assert ledger.holding("a#1/1").working_bytes == wide
    os.kill(dead.pids["engine"], signal.SIGKILL)
    async with asyncio.timeout(60):
        await dead.died.wait()
    await until(lambda: serving.replicas[1] is not dead and serving.replicas[1].is_alive, "another is in its place")
    own = there.unit("a").active.part_on("cpu:1").holding.working_bytes
    assert ledger.holding("a#1/1").working_bytes == own < wide
    assert ledger.holding("a#1").working_bytes == wide
