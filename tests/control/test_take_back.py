"""A newer document that asks for what a draining generation still holds: one assignment, no load."""

import os
import signal

import pytest
from support.played.world import collect, content, document, failure_of, reached, until

from halogend.control.planning import Given
from halogend.control.receipts import Milestone

REFUSED = {"do": "fail", "code": "HRT-1016", "message": "no memory"}


async def _streams(world, model="a"):
    """A request that has a token and goes on until it is told to finish."""
    slow = world.stage.hold("generate", prompt="slow")
    answer = await world.submit(model, "slow", 5)
    (await slow.reached()).say("token")
    await until(lambda: answer.has_token, "a token has come")
    return answer, slow


async def test_a_revert_during_a_drain_is_one_assignment_and_no_load(serving):
    world = await serving()
    answer, slow = await _streams(world)
    first = await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    back = await world.apply(world.model("a"), until=Milestone.CLOSED)
    await reached(first)
    assert (first.outcome, back.outcome) == ("applied", "applied")
    assert [world.stage.loads(each) for each in "ab"] == [1, 1]
    assert world.unit("a").serving.number == answer.generation == 1
    assert set(world.house.ledger.view()) == {"a#1"}
    (drain,) = [each for each in first.models["a"].steps if each.name == "drain"]
    assert drain.detail["taken_back"] is True
    record = back.models["a"]
    assert [each.name for each in record.steps] == ["take_back", "switch", "drain", "reclaim"]
    assert (record.steps[0].detail["generation"], record.steps[2].detail["generation"]) == (1, 2)
    assert record.load is None
    slow.release("finish")
    assert failure_of(await collect(answer)) is None
    assert world.status()["settled"]


async def test_what_served_meanwhile_drains_and_may_be_taken_back_as_well(serving):
    world = await serving()
    first, slow = await _streams(world)
    await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    second = await world.submit("a", "slow", 5)
    (await slow.reached(2)).say("token")
    await until(lambda: second.has_token, "a token has come")
    await world.apply(world.model("a"), until=Milestone.SERVING)
    assert [each.number for each in world.unit("a").draining] == [2]
    last = await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    assert [each.number for each in world.unit("a").draining] == [1]
    slow.release("finish")
    assert [failure_of(await collect(each)) for each in (first, second)] == [None, None]
    assert (first.generation, second.generation) == (1, 2)
    await reached(last)
    assert [world.stage.loads(each) for each in "ab"] == [1, 1]
    assert set(world.house.ledger.view()) == {"a#2"}


async def test_requests_without_a_token_come_back_with_it(serving):
    world = await serving()
    answer, slow = await _streams(world)
    await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    waits = world.stage.hold("generate", prompt="waits", times=1)
    late = await world.submit("a", "waits")
    await waits.reached()
    await world.apply(world.model("a"), until=Milestone.SERVING)
    assert failure_of(await collect(late)) is None
    assert late.generation == 1
    slow.release("finish")
    await collect(answer)


async def test_live_differences_are_committed_with_it(serving):
    world = await serving()
    answer, slow = await _streams(world)
    await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    back = await world.apply(world.model("a", max_batch=7, max_prompt_len=9), until=Milestone.SERVING)
    assert back.outcome == "applied"
    serving = world.unit("a").serving
    assert (serving.number, serving.engine_limits.max_batch) == (1, 7)
    assert world.router.route("a").settings.limits.max_prompt_len == 9
    slow.release("finish")
    await collect(answer)


@pytest.mark.parametrize("role", ["text", "engine"])
async def test_l3_a_take_back_that_is_not_prepared_changes_nothing_and_the_drain_goes_on(serving, role):
    world = await serving()
    answer, slow = await _streams(world)
    first = await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    before = world.dump()
    refusal = world.stage.order("prepare", where={"role": role, "model": "a"}, **REFUSED)
    back = await world.apply(world.model("a", max_batch=7, max_prompt_len=9))
    assert back.outcome == "failed"
    await world.comes_back_to(before, "tasks")  # the drain may just have begun to wait
    assert not first.has(Milestone.CLOSED)
    refusal.release()
    slow.release("finish")
    assert failure_of(await collect(answer)) is None
    await reached(first)
    assert set(world.house.ledger.view()) == {"a#2"}


async def test_a_model_that_was_removed_and_still_drains_is_taken_back(serving):
    world = await serving()
    answer, slow = await _streams(world)
    removed = await world.apply(until=Milestone.SERVING)
    added = await world.apply(world.model("a"), until=Milestone.SERVING)
    assert (removed.outcome, added.outcome) == ("applied", "applied")
    assert (world.state("a"), world.unit("a").serving.number) == ("serving", 1)
    assert failure_of(await world.ask("a")) is None
    await reached(removed)
    await reached(added)
    assert world.stage.loads("a") == 1
    slow.release("finish")
    await collect(answer)


async def test_what_has_ended_or_died_is_loaded_again(serving):
    world = await serving(reload={"drain_timeout_s": 600})
    answer, _ = await _streams(world)
    await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    (old,) = world.unit("a").draining
    os.kill(old.pids["engine"], signal.SIGKILL)
    assert failure_of(await collect(answer)) == "engine_died"
    back = await world.apply(world.model("a"))
    assert back.outcome == "applied"
    assert world.stage.loads("a") == 2
    assert world.unit("a").serving.number == 3


async def test_a_plan_says_that_it_is_taken_back_and_that_nothing_is_loaded(serving):
    world = await serving()
    answer, slow = await _streams(world)
    await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    held = sum(each.total_bytes for each in world.house.ledger.held().values())
    plan = await world.steering.plan(Given(content(document(world.model("a"))), "new.yaml"))
    (model,) = plan["models"]
    assert (model["action"], model["strategy"], model["load"], model["at_start"]) == (
        "replace",
        "take_back",
        None,
        None,
    )
    (device,) = plan["devices"]
    assert device["peak"]["total_bytes"] == device["now"]["total_bytes"] == held
    await world.apply(world.model("a"))
    assert device["after"]["total_bytes"] == sum(each.total_bytes for each in world.house.ledger.held().values())
    slow.release("finish")
    await collect(answer)
