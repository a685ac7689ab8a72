"""Models on accelerators: what is counted there, and what their processes take of the host besides."""

import pytest
from support.fake_devices import accelerator
from support.played.world import content, document, reached, until

from halogend.control.ledger import Holding, Ledger
from halogend.control.planning import Given
from halogend.control.working import CONTEXT_BYTES

GIB = 1 << 30
MIB = 1 << 20


@pytest.fixture
async def on_device(world):
    """A factory: a world with a host of this size, in which `a` serves on an accelerator."""

    async def make(host_bytes, **fields):
        there = await world(host_bytes, accelerators=(accelerator(),))
        receipt = await there.apply(there.model("a", device="cuda:0", **fields))
        assert receipt.outcome == "applied", [str(each) for each in receipt.problems]
        return there

    return make


async def test_weights_and_cache_are_counted_there_and_processes_on_the_host(on_device):
    there = await on_device(8 * GIB)
    held = there.house.ledger.holding("a#1")
    assert (held.device, held.kv_bytes) == ("cuda:0", MIB)
    assert held.host_bytes > 500 * MIB
    assert held.mapped_bytes == 0, "nothing of a file stays mapped: it was copied"
    assert there.house.ledger.taken_bytes("cpu:0") == held.host_bytes
    assert there.house.ledger.taken_bytes("cuda:0") == held.total_bytes
    uses = there.house.ledger.by_use("cpu:0"), there.house.ledger.by_use("cuda:0")
    assert [each["working"] for each in uses] == [held.host_bytes, held.working_bytes]
    devices = there.steering.ledger()["devices"]
    assert (devices["cpu:0"]["held_bytes"], devices["cuda:0"]["held_bytes"]) == (held.host_bytes, held.total_bytes)
    assert there.steering.ledger()["generations"]["a#1"]["measured"] is None, "no measure of processes sees a device"
    spec = there.unit("a").serving.spec
    assert (spec.device, spec.engine.device, spec.engine.backend) == ("cuda:0", "cuda:0", "triton")
    assert dict(spec.environ)["CUDA_VISIBLE_DEVICES"] == "GPU-0000-0"
    assert spec.engine.compute_dtype == "bf16", "whatever the processor has"
    await there.apply()
    assert there.house.ledger.taken_bytes("cpu:0") == 0


@pytest.mark.parametrize(("more", "less"), [(100 * MIB, 0), (0, 100 * MIB)])
async def test_what_an_engine_says_its_steps_took_there_may_raise_what_is_counted(world, more, less):
    there = await world(8 * GIB, accelerators=(accelerator(),))
    text = document(there.model("a", device="cuda:0"))
    estimate = (await there.steering.plan(Given(content(text), "config.yaml")))["devices"]
    (expected,) = [each["after"]["working_bytes"] for each in estimate if each["device"] == "cuda:0"]
    took = expected - CONTEXT_BYTES + more - less
    there.stage.order("ready", "go", where={"role": "engine"}, transient_bytes=took)
    assert (await reached(there.edit(text))).outcome == "applied"
    assert there.house.ledger.holding("a#1").working_bytes == expected + more


async def test_a_plan_shows_both(on_device):
    there = await on_device(8 * GIB)
    plan = await there.steering.plan()
    by_device = {each["device"]: each["after"] for each in plan["devices"]}
    held = there.house.ledger.holding("a#1")
    assert by_device["cuda:0"]["total_bytes"] == held.total_bytes
    assert by_device["cpu:0"] == {
        "weights_bytes": 0,
        "mapped_bytes": 0,
        "working_bytes": held.host_bytes,
        "kv_bytes": 0,
        "total_bytes": held.host_bytes,
    }


async def test_a_new_generation_waits_for_room_on_the_host_too(on_device):
    """On the device there is room for two; the host has none for the processes of both."""
    there = await on_device(1 * GIB)
    text = document(there.model("a", "other", device="cuda:0"))
    receipt = await reached(there.edit(text))
    assert receipt.outcome == "rejected"
    (problem,) = receipt.problems
    assert problem.code == "HRT-1004"
    assert "does not fit on cpu:0 beside what runs there" in problem.message
    replaced = document(there.model("a", "other", device="cuda:0", reload={"strategy": "replace"}))
    assert (await reached(there.edit(replaced))).outcome == "applied"


async def test_a_host_that_is_too_small_for_its_processes_is_a_problem_of_the_document(world):
    there = await world(256 * MIB, accelerators=(accelerator(),))
    receipt = await there.apply(there.model("a", device="cuda:0"))
    assert receipt.outcome == "rejected"
    assert "the models on cpu:0 need" in receipt.problems[0].message


async def test_pools_on_the_host_leave_room_for_those_processes(on_device):
    there = await on_device(2 * GIB)
    own = there.house.ledger.holding("a#1").host_bytes
    wide = there.model("b", device="cpu:0", kv_cache_bytes=None, kv_cache_ratio=1.0, max_batch=4096)
    wide = {key: value for key, value in wide.items() if value is not None}
    receipt = await reached(there.edit(document(there.model("a", device="cuda:0"), wide)))
    assert receipt.outcome == "applied"
    await until(there.is_quiet, "all is quiet")
    assert there.house.ledger.taken_bytes("cpu:0") <= 2 * GIB
    assert there.house.ledger.holding("b#1").kv_bytes <= 2 * GIB - own


async def test_a_part_without_memory_of_its_own_shares_the_host_s_ledger(world):
    """What one holds the other has not: AI MAX 395."""
    shared = accelerator(
        id="ai_max_395:0", aliases=("rocm:0",), kind="rocm", product="ai_max_395", arch="gfx1151", in_host_memory=True
    )
    there = await world(8 * GIB, accelerators=(shared,))
    text = document(there.model("a", device="rocm:0"), there.model("b", device="cpu:0"))
    assert (await reached(there.edit(text))).outcome == "applied"
    a, b = (there.house.ledger.holding(name) for name in ("a#1", "b#1"))
    assert (a.device, a.host_bytes) == ("ai_max_395:0", 0)
    for name, other in (("a", b), ("b", a)):
        goal = there.unit(name).goal
        assert goal.taken_of([other]) == other.total_bytes
        assert goal.shared_bytes == 8 * GIB
    spec = there.unit("a").serving.spec
    assert (spec.engine.device, spec.engine.backend) == ("rocm:0", "triton")
    assert there.unit("b").serving.spec.engine.device == "cpu:0"


async def test_on_a_divided_host_they_are_counted_on_its_first_part(world):
    there = await world(8 * GIB, accelerators=(accelerator(),))
    parts = [{"id": "cpu:1", "cores": "0"}, {"id": "cpu:2", "cores": "1"}]
    text = document(there.model("a", device="cuda:0"), there.model("b", device="cpu:2"), devices=parts)
    assert (await reached(there.edit(text))).outcome == "applied"
    ledger = there.house.ledger
    own, beside = (ledger.holding(name) for name in ("a#1", "b#1"))
    assert own.host_bytes > 500 * MIB
    assert (ledger.taken_bytes("cpu:1"), ledger.taken_bytes("cpu:2")) == (own.host_bytes, beside.total_bytes)
    devices = there.steering.ledger()["devices"]
    assert {name: each["held_bytes"] for name, each in devices.items()} == {
        "cpu:1": own.host_bytes,
        "cpu:2": beside.total_bytes,
        "cuda:0": own.total_bytes,
    }
    plan = await there.steering.plan()
    after = {each["device"]: each["after"]["working_bytes"] for each in plan["devices"]}
    assert after == {"cpu:1": own.host_bytes, "cpu:2": beside.working_bytes, "cuda:0": own.working_bytes}


def test_the_ledger_adds_up_what_processes_take_of_the_host():
    ledger = Ledger()
    ledger.enter("a#1", Holding("cuda:0", 100, 10, 50, host_bytes=7))
    ledger.enter("b#1", Holding("cuda:1", 100, 10, 50, host_bytes=5))
    ledger.enter("c#1", Holding("cpu:0", 3, 2, 1))
    assert [ledger.taken_bytes(device) for device in ("cpu:0", "cuda:0", "cuda:1")] == [18, 160, 160]
    assert ledger.taken_bytes("cpu:0", besides=["a#1"]) == 11
    assert ledger.view()["a#1"]["host"] == 7
    ledger.leave("b#1")
    assert ledger.taken_bytes("cpu:0") == 13
