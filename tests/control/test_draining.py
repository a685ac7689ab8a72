"""Asking what drains, and ending it, in a played world."""

import pytest
from support.played.world import collect, failure_of, until

from halogend.control.draining import draining
from halogend.control.receipts import Milestone
from halogend.control.requests import RequestError


async def _streaming(world, model="a"):
    """A request that has a token and will not end by itself."""
    slow = world.stage.hold("generate", prompt="slow")
    answer = await world.submit(model, "slow", 5)
    (await slow.reached()).say("token")
    await until(lambda: answer.has_token, "a token has come")
    return answer, slow


async def test_a_drain_is_told_and_ended_by_an_operator(serving):
    world = await serving()
    answer, _ = await _streaming(world)
    receipt = await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    asked = draining(world.house, "a")
    (one,) = asked.view()["generations"]
    assert (one["generation"], one["state"], one["requests"], one["ended"]) == (1, "draining", 1, 0)
    assert 0 < one["left_s"] <= one["limit_s"] == 30.0
    (shown,) = world.status()["models"]["a"]["draining"]
    assert (shown["generation"], shown["limit_s"]) == (1, 30.0)
    assert 0 < shown["left_s"] <= 30.0
    asked.end("uid:7")
    assert failure_of(await collect(answer)) == "draining"
    await asked.closed()
    (one,) = asked.view()["generations"]
    assert (one["state"], one["left_s"], one["ended"], one["by"]) == ("gone", 0.0, 1, "uid:7")
    assert world.unit("a").drains == {}
    step = next(step for step in receipt.models["a"].steps if step.name == "drain")
    assert (step.detail["ended"], step.detail["by"]) == (1, "uid:7")


async def test_a_drain_that_nobody_ends_closes_with_its_last_request(serving):
    world = await serving()
    answer, slow = await _streaming(world)
    await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    asked = draining(world.house, "a")
    waiting = world.spawned(asked.closed())
    slow.release("finish")
    assert failure_of(await collect(answer)) is None
    await waiting
    assert asked.view()["generations"][0]["ended"] == 0


async def test_a_removed_model_drains_under_its_name_and_is_unknown_afterwards(serving):
    world = await serving()
    answer, _ = await _streaming(world)
    await world.apply(until=Milestone.SERVING)
    asked = draining(world.house, "a")
    asked.end("uid:7")
    assert failure_of(await collect(answer)) == "draining"
    await asked.closed()
    await until(lambda: not world.house.units, "nothing is left of it")
    with pytest.raises(RequestError) as caught:
        draining(world.house, "a")
    assert (caught.value.code, "none" in caught.value.message) == ("model_not_found", True)


async def test_where_nothing_drains_it_is_said(serving):
    world = await serving()
    codes = []
    for name in ("a", "nobody"):
        with pytest.raises(RequestError) as caught:
            draining(world.house, name)
        codes.append(caught.value.code)
    assert codes == ["nothing_drains", "model_not_found"]
    assert "`a`" in caught.value.message


async def test_a_generation_that_is_taken_back_drains_no_more_and_whoever_waited_is_told(serving):
    world = await serving()
    answer, slow = await _streaming(world)
    await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    asked = draining(world.house, "a")
    waiting = world.spawned(asked.closed())
    await world.apply(world.model("a"), until=Milestone.SERVING)
    await waiting
    (one,) = asked.view()["generations"]
    assert (one["generation"], one["state"], one["requests"], one["ended"]) == (1, "serving", 1, 0)
    slow.release("finish")
    assert failure_of(await collect(answer)) is None
