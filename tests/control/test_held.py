"""What processes hold, as a folder describes /proc, and what a generation gives back when it ends."""

import pytest
from support.played.world import content, document, reached, until
from support.tiny_models import tiny_llama

from halogend.config.facts import DeviceFacts
from halogend.config.parse import parse
from halogend.control.desired import make_targets
from halogend.control.facts import gather
from halogend.control.held import held_bytes, left_bytes
from halogend.control.machine import Machine
from halogend.control.planning import Given

MIB = 1 << 20


@pytest.fixture
def proc(tmp_path):
    """A factory: a process with its memory in KiB and its children."""

    def make(pid, anon, shared=0, children="", threads=1):
        folder = tmp_path / f"proc/{pid}"
        for thread in range(pid, pid + threads):
            (folder / f"task/{thread}").mkdir(parents=True)
            (folder / f"task/{thread}/children").write_text(children if thread == pid else "")
        text = f"Name:\tpython\nVmRSS:\t999999 kB\nRssAnon:\t{anon} kB\nRssFile:\t555 kB\nRssShmem:\t{shared} kB\n"
        (folder / "status").write_text(text)
        return tmp_path

    return make


def test_anonymous_and_shared_memory_of_a_process_and_all_that_came_from_it(proc):
    proc(10, 1000, shared=24, children="11 12 ", threads=3)
    proc(11, 100, children="13")
    proc(13, 7)
    root = proc(20, 50)
    assert held_bytes([10, 20], root) == {10: 1024 << 10, 11: 100 << 10, 13: 7 << 10, 12: 0, 20: 50 << 10}
    assert held_bytes([99], root) == {99: 0}


def test_what_is_left_counts_for_no_more_than_its_last_owner_held(proc):
    root = proc(10, 700)
    assert left_bytes({10: 300 << 10, 11: 50 << 10}, root) == 300 << 10
    assert left_bytes({10: 900 << 10}, root) == 700 << 10


async def test_l8_what_a_generation_holds_is_measured_and_what_comes_back_is_told(serving):
    there = await serving()
    before = there.unit("a").serving
    await before.measure()
    assert before.measured_bytes > 2 * MIB, "two processes of Python"
    receipt = await there.apply(there.model("a", "b"))
    (step,) = [each for each in receipt.models["a"].steps if each.name == "reclaim"]
    expected, returned = step.detail["expected_bytes"], step.detail["returned_bytes"]
    assert abs(expected - returned) <= max(0.02 * expected, 16 * MIB)
    assert returned > 2 * MIB
    shortfall = max(0.0, float(expected - returned))
    text = there.house.metrics.render().decode()
    assert f'halogen_reclaim_shortfall_bytes{{model="a"}} {shortfall}' in text


async def test_l8_memory_that_stays_behind_is_a_shortfall(serving):
    """What came back was less than what was expected: it is told and exported."""
    there = await serving()
    replica = there.unit("a").serving.replicas[0]
    replica.memory.base_bytes += 512 * MIB
    receipt = await there.apply(there.model("a", "b"))
    (step,) = [each for each in receipt.models["a"].steps if each.name == "reclaim"]
    assert step.detail["expected_bytes"] - step.detail["returned_bytes"] > 480 * MIB
    (line,) = [each for each in there.series("reclaim_shortfall_bytes") if 'model="a"' in each]
    assert float(line.split()[-1]) == step.detail["expected_bytes"] - step.detail["returned_bytes"]


async def measured(world, memory_bytes=64 << 30, **fields):
    """A world in which what engines take was measured: 40 MiB in the largest steps beside what they hold."""
    there = await world(memory_bytes)
    there.stage.order("ready", "go", where={"role": "engine"}, transient_bytes=40 * MIB)
    receipt = await there.apply(there.model("a", **fields))
    assert receipt.outcome == "applied"
    return there


async def test_working_memory_is_an_estimate_until_it_was_measured(world):
    there = await measured(world)
    replica, estimate = there.unit("a").serving.replicas[0], there.unit("a").active.holding
    held = there.house.ledger.holding("a#1")
    assert held.working_bytes == replica.memory.measured_bytes - estimate.weights_bytes + 40 * MIB
    assert held.working_bytes == estimate.working_bytes + replica.memory.surplus_bytes
    assert replica.memory.surplus_bytes < 0, "played processes hold no torch"
    view = there.steering.ledger()
    assert view["generations"]["a#1"]["measured"]["working_surplus_bytes"] == replica.memory.surplus_bytes
    assert view["devices"]["cpu:0"]["measured_bytes"] == replica.memory.measured_bytes > 0


async def test_where_the_system_does_not_say_the_estimate_stays(world, monkeypatch):
    monkeypatch.setattr("halogend.control.replica_memory.held_bytes", lambda pids, root: dict.fromkeys(pids, 0))
    there = await world()
    there.stage.order("ready", "go", where={"role": "engine"}, transient_bytes=40 * MIB)
    await there.apply(there.model("a"))
    assert there.house.ledger.holding("a#1") == there.unit("a").active.holding
    assert there.steering.ledger()["generations"]["a#1"]["measured"] is None
    receipt = await there.apply(there.model("a", "b"))
    (step,) = [each for each in receipt.models["a"].steps if each.name == "reclaim"]
    assert (step.detail["expected_bytes"], step.detail["returned_bytes"]) == (0, 0)


async def test_plans_and_live_changes_count_with_what_was_measured(world):
    there = await measured(world, kv_cache_bytes="16MiB", max_batch=4096)
    text = document(there.model("a", kv_cache_bytes="64MiB", max_batch=4096))
    plan = await there.reconciler.plan(Given(content(text), "config.yaml"))
    assert (await reached(there.edit(text))).outcome == "applied"
    (device,) = plan["devices"]
    await until(lambda: there.house.ledger.taken_bytes("cpu:0") == device["after"]["total_bytes"], "as was foretold")
    assert device["after"]["working_bytes"] == there.house.ledger.holding("a#1").working_bytes
    assert there.house.ledger.holding("a#1").kv_bytes == 64 * MIB


async def test_what_was_estimated_and_is_not_taken_lets_pools_grow(world):
    first = await measured(world, kv_cache_bytes="64MiB", max_batch=4096)
    estimate = first.unit("a").active.holding
    await first.stop()
    there = await measured(world, estimate.total_bytes - 40 * MIB, kv_cache_bytes="64MiB", max_batch=4096)
    await until(lambda: there.house.ledger.holding("a#1").kv_bytes == 64 * MIB, "the pool has grown to its target")


async def test_what_is_measured_later_is_never_less_in_the_ledger(world):
    there = await measured(world)
    replica, before = there.unit("a").serving.replicas[0], there.house.ledger.holding("a#1")
    replica.memory.measured_bytes += 500 * MIB
    replica.memory.base_bytes += 500 * MIB
    replica.memory.surplus_bytes += 500 * MIB
    await there.ask("a")
    await until(lambda: there.house.ledger.holding("a#1").working_bytes > before.working_bytes, "it is entered")
    assert there.house.ledger.holding("a#1").working_bytes == before.working_bytes + 500 * MIB
    await there.apply(there.model("a", max_queue=5))
    assert there.house.ledger.holding("a#1").working_bytes == before.working_bytes + 500 * MIB


def test_s8_what_a_model_takes_is_read_from_its_checkpoint(tmp_path):
    """Weights of each file as it is, working memory by its vocabulary and context: no constant stands for either."""
    small, wide = (targets_of_file(tmp_path / f"{layers}.gguf", layers=layers) for layers in (2, 6))
    a_layer = (wide.holding.weights_bytes - small.holding.weights_bytes) // 4
    assert a_layer > 0
    assert wide.holding.weights_bytes == small.holding.weights_bytes + 4 * a_layer
    assert wide.holding.working_bytes == small.holding.working_bytes
    longer = targets_of_file(tmp_path / "v.gguf", layers=2, extra_vocab=5000)
    logits, tokenizer = 64 * 5000 * 4, 5000 * 480
    assert longer.holding.working_bytes == small.holding.working_bytes + logits + tokenizer


def test_s8_the_pool_is_all_that_is_left_to_the_byte(tmp_path):
    """The largest that fits, not a half and a half again."""
    target = targets_of_file(tmp_path / "a.gguf", layers=2)
    holding = target.holding
    least = holding.weights_bytes + holding.working_bytes + target.floor_bytes
    for left in (0, 1, 12345):
        taken = target.budget_bytes - least - left
        assert target.fits_beside(taken)
        assert target.granted_beside(taken) == target.floor_bytes + left
    assert not target.fits_beside(target.budget_bytes - least + 1)


def targets_of_file(path, **shape):
    tiny_llama(path, **shape)
    device = DeviceFacts(id="cpu:0", memory_bytes=8 << 30, aliases=("cpu",))
    text = document({"name": "m", "model": str(path), "kv_cache_bytes": "1GiB", "max_batch": 64})
    given = parse(text.encode(), "c.yaml", {}).document
    return make_targets(given, gather(given, Machine(2, True, (device,))))["m"]
