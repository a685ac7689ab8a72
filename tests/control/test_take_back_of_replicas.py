"""A generation of several replicas that drains and is asked for again: those that it has, had, and has yet to load."""

import os

import pytest
from support.played.world import collect, document, failure_of, reached, until

from halogend.control.receipts import Milestone
from halogend.control.to_come import about_to_load, awaited

PARTS = [{"id": "cpu:0", "cores": "0"}, {"id": "cpu:1", "cores": "1"}]
BOTH, ONE = ({"exec_mode": "data_parallel", "device": each} for each in (["cpu:0", "cpu:1"], ["cpu:1"]))
pytestmark = pytest.mark.skipif(os.sched_getaffinity(0) < {0, 1}, reason="needs the cores 0 and 1")


async def _apply(world, file=None, *, until=Milestone.SERVING, **fields):
    receipt = await world.apply(world.model("a", file, **fields), devices=PARTS, until=until)
    assert receipt.outcome == "applied", receipt.view()
    return receipt


async def _streams(world, count):
    """So many requests that have a token and go on until they are told to finish."""
    slow = world.stage.hold("generate", prompt="slow")
    answers = [await world.submit("a", "slow", 5) for _ in range(count)]
    for number in range(1, count + 1):
        (await slow.reached(number)).say("token")
    await until(lambda: all(each.has_token for each in answers), "tokens have come")

    async def end():
        slow.release("finish")
        assert [failure_of(await collect(each)) for each in answers] == [None] * count

    return end


async def _foretold(world, text):
    """What a plan says, and what the ledger holds now, by device."""
    world.text = text
    plan, held = await world.steering.plan(), {}
    for each in world.house.ledger.held().values():
        held[each.device] = held.get(each.device, 0) + each.total_bytes
    return plan, held


async def _two_generations(world):
    """`b` drains on cpu:1, and a replica that it went on without on cpu:0, and `a` serves on both: nothing was loaded
    for that. Ends their requests."""
    await _apply(world, **BOTH)
    first = await _streams(world, 2)
    await _apply(world, "b", **BOTH)
    second = await _streams(world, 2)
    await _apply(world, "b", **ONE)
    await _apply(world, **BOTH)
    assert world.stage.loads() == 4
    assert [each.name for each in world.unit("a").retired[0].generation.everybody] == ["a#2/1", "a#2"]

    async def end():
        await first()
        await second()

    return end


async def test_a_replica_that_it_was_to_go_on_without_comes_back_with_it(world):
    """Fewer devices, the file before, and all of this one again."""
    there = await world()
    end = await _two_generations(there)
    plan, held = await _foretold(there, document(there.model("a", "b", **BOTH), devices=PARTS))
    assert {each["device"]: each["peak"]["total_bytes"] for each in plan["devices"]} == held
    model = plan["models"][0]
    assert (model["strategy"], model["at_start"]) == ("take_back", None)
    assert model["steps"] == ["take_back", "take_back", "switch", "drain", "reclaim"]
    back = await reached(there.edit(there.text), Milestone.SERVING)
    assert (back.outcome, there.stage.loads()) == ("applied", 4)
    assert [each.name for each in there.unit("a").serving.replicas] == ["a#2/1", "a#2"]
    await end()
    await reached(back)
    assert [step.name for step in back.models["a"].steps] == model["steps"]
    after = {each["device"]: each["after"]["total_bytes"] for each in plan["devices"]}
    assert {device: there.house.ledger.taken_bytes(device) for device in after} == after


async def test_a_replica_does_not_come_back_without_its_generation(world):
    """What is asked for has no place in common with that: it is loaded, and the plan says so."""
    there = await world()
    end = await _two_generations(there)
    text = document(there.model("a", "b", exec_mode="data_parallel", device=["cpu:0"]), devices=PARTS)
    plan, _ = await _foretold(there, text)
    assert (plan["models"][0]["strategy"], plan["models"][0]["at_start"]["device"]) == ("overlap", "cpu:0")
    receipt = there.edit(text)
    await end()
    await reached(receipt)
    assert (receipt.outcome, there.stage.loads(), there.unit("a").serving.number) == ("applied", 5, 3)


async def test_what_comes_back_with_one_more_loads_that_one_alone(world):
    there = await world()
    await _apply(there, **ONE)
    end = await _streams(there, 1)
    await _apply(there, "b", **ONE)
    unit = there.unit("a")
    plan, held = await _foretold(there, document(there.model("a", **BOTH), devices=PARTS))
    peaks = {each["device"]: each["peak"]["total_bytes"] for each in plan["devices"]}
    assert peaks == held | {"cpu:0": plan["models"][0]["at_start"]["total_bytes"]}
    assert plan["models"][0]["steps"] == ["take_back", "load", "switch", "drain", "reclaim"]
    load = there.stage.hold("load", role="engine", model="a")
    places = there.house.loads
    await places.acquire()
    back = there.edit(there.text)
    await until(lambda: places._waiting, "the load waits for its turn")
    assert [each.device for each in awaited(unit)] == ["cpu:0"]
    assert about_to_load(unit) is None
    places.release()
    await load.reached()
    assert awaited(unit) == []
    load.release()
    await reached(back, Milestone.SERVING)
    await end()
    await reached(back)
    assert (back.outcome, there.stage.loads()) == ("applied", 3)
    assert [step.name for step in back.models["a"].steps] == plan["models"][0]["steps"]
