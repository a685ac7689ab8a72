"""All models of a change switch at one moment, or none does and all is as it was."""

import asyncio
import os
import signal

import pytest
from support.played.world import collect, content, document, failure_of, reached, until

from halogend.config.problems import Problem
from halogend.control.planning import Given
from halogend.control.receipts import Milestone

REFUSED = {"do": "fail", "code": "HRT-1016", "message": "no memory"}
ATOMIC = {"reload": {"atomic": True, "max_parallel_loads": 4}}


@pytest.fixture
async def both(serving):
    """`a`, `b` and `c` serve, under a document that is atomic already."""

    async def make():
        world = await serving()
        receipt = await world.apply(*(world.model(name) for name in "abc"), **ATOMIC)
        assert receipt.outcome == "applied"
        await until(world.is_quiet, "all is quiet")
        return world

    return make


def _changed(world, **c):
    """Another checkpoint for `a`, a live change of `b`, `c` removed or changed, `d` added."""
    return [
        world.model("a", "x"),
        world.model("b", max_batch=7, max_prompt_len=9),
        *([world.model("c", **c)] if c else []),
        world.model("d"),
    ]


async def _until_ready(world, *names):
    """These are ready and wait for the others."""
    await until(lambda: all(name in world.reconciler._together.newest._turns for name in names), f"{names} are ready")


async def test_nothing_switches_before_all_are_ready_and_then_all_do(both):
    world = await both()
    before = world.dump()
    load = world.stage.hold("load", role="engine", model="x")
    receipt = world.edit(document(*_changed(world), server={"port": 9000}, **ATOMIC))
    await load.reached()
    await _until_ready(world, "b", "c", "d")
    assert world.dump()["routes"] == before["routes"]
    assert world.sockets.serving.port == 8000
    assert failure_of(await world.ask("c")) is None
    assert await world.asks("d") == "model_not_found"
    assert world.unit("b").serving.engine_limits.max_batch == 64
    assert receipt.outcome is None
    load.release()
    await reached(receipt)
    assert (receipt.outcome, world.sockets.serving.port) == ("applied", 9000)
    assert [world.state(name) for name in "abd"] == ["serving"] * 3
    assert (world.unit("a").serving.number, world.unit("b").serving.engine_limits.max_batch) == (2, 7)
    assert await world.asks("c") == "model_not_found"
    assert set(world.house.ledger.view()) == {"a#2", "b#1", "d#1"}
    await until(lambda: world.status()["settled"], "all is settled")


async def test_all_names_change_hands_without_a_turn_of_the_loop_between_them(both, monkeypatch):
    world = await both()
    seen, turns = [], 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def noted(method):
        def call(name, *args):
            if name in "acd" or args[-1].limits.max_prompt_len == 9:  # a pool that grows sets what is set already
                seen.append((name, turns))
            return method(name, *args)

        return call

    for name in ("switch", "close", "set_settings"):
        monkeypatch.setattr(world.router, name, noted(getattr(world.router, name)))
    counting = asyncio.create_task(count())
    receipt = await world.apply(*_changed(world), until=Milestone.SERVING, **ATOMIC)
    counting.cancel()
    await asyncio.gather(counting, return_exceptions=True)
    assert receipt.outcome == "applied"
    (together,) = {turn for name, turn in seen if name != "a"}
    assert sorted(name for name, turn in seen if turn == together) == ["a", "b", "c", "d"]


def _refuse(point, role, model):
    return lambda world: world.stage.order(point, where={"role": role, "model": model}, **REFUSED)


def _busy(world):
    world.sockets.refuse_commit = Problem("HRT-1008", "the port is taken", path="server.port")


FAULTS = {
    "a load": (_refuse("load", "engine", "x"), "no memory"),
    "a new model's load": (_refuse("load", "text", "d"), "no memory"),
    "a live change": (_refuse("prepare", "engine", "b"), "no memory"),
    "a first token": (_refuse("generate", "engine", "x"), "no memory"),
    "the listeners": (_busy, "the port is taken"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_l3_whatever_fails_nothing_is_changed_anywhere(both, fault):
    world = await both()
    inject, said = FAULTS[fault]
    before = world.dump()
    inject(world)
    receipt = await world.apply(*_changed(world), server={"port": 9000}, **ATOMIC)
    assert receipt.outcome == "failed"
    assert {each.outcome for each in receipt.models.values()} == {"failed"}
    assert all(said in each.error for each in receipt.models.values())
    await world.comes_back_to(before)
    assert not world.status()["settled"]
    assert [failure_of(await world.ask(name)) for name in "abc"] == [None] * 3
    assert await world.asks("d") == "model_not_found"


@pytest.mark.parametrize("name", ["a", "d"])
async def test_a_newcomer_that_dies_while_it_waits_for_the_others_undoes_all(both, name):
    world = await both()
    before = world.dump()
    load = world.stage.hold("load", role="engine", model="x" if name == "d" else "d")
    receipt = world.edit(document(*_changed(world), **ATOMIC))
    await load.reached()
    await _until_ready(world, name)
    os.kill(world.unit(name).loading.pids["engine"], signal.SIGKILL)
    await reached(receipt)
    assert receipt.outcome == "failed"
    assert f"{name}: what was ready died" in receipt.models["b"].error
    await world.comes_back_to(before)


async def test_a_change_that_failed_is_made_by_an_explicit_reload(both):
    world = await both()
    world.stage.order("load", times=1, where={"role": "engine", "model": "d"}, **REFUSED)
    text = document(*_changed(world), **ATOMIC)
    assert (await reached(world.edit(text))).outcome == "failed"
    again = await reached(world.reconciler.reload("signal", "SIGHUP"))
    assert again.outcome == "applied"
    await until(lambda: world.status()["settled"], "all is settled")


async def test_requests_end_where_they_began_and_go_over_as_ever(both):
    world = await both()
    slow = world.stage.hold("generate", prompt="slow")
    streams = await world.submit("a", "slow", 5)
    (await slow.reached()).say("token")
    await until(lambda: streams.has_token, "a token has come")
    waits = await world.submit("a", "slow", 5)
    await slow.reached(2)
    receipt = await world.apply(*_changed(world), until=Milestone.SERVING, **ATOMIC)
    assert receipt.outcome == "applied"
    slow.release("finish")
    assert [failure_of(await collect(each)) for each in (streams, waits)] == [None, None]
    assert (streams.generation, waits.generation) == (1, 2)


# --- a newer document -------------------------------------------------------------------------------------


@pytest.mark.parametrize("atomic", [True, False])
async def test_a_newer_document_takes_its_place_and_loads_that_are_still_wanted_count_for_it(both, atomic):
    world = await both()
    load = world.stage.hold("load", role="engine", model="x")
    first = world.edit(document(*_changed(world), server={"port": 9000}, **ATOMIC))
    await load.reached()
    await _until_ready(world, "b", "c", "d")
    models = [world.model("a", "x", max_batch=9), world.model("b"), world.model("c"), world.model("d", max_batch=5)]
    second = world.edit(document(*models, reload={"atomic": atomic, "max_parallel_loads": 4}))
    await reached(second, Milestone.ACCEPTED)
    load.release()
    await reached(first)
    await reached(second)
    assert (first.outcome, second.outcome) == ("superseded", "applied")
    assert [world.stage.loads(each) for each in "xd"] == [1, 1]
    assert world.unit("a").serving.engine_limits.max_batch == 9
    assert world.unit("d").serving.engine_limits.max_batch == 5
    assert world.unit("b").serving.engine_limits.max_batch == 64
    assert world.sockets.serving.port == 8000
    assert set(world.house.ledger.view()) == {"a#2", "b#1", "c#1", "d#1"}
    await until(lambda: world.status()["settled"], "all is settled")


async def test_the_way_back_undoes_what_is_ready(both):
    world = await both()
    before, text = world.dump(), world.text
    load = world.stage.hold("load", role="engine", model="x")
    first = world.edit(document(*_changed(world), **ATOMIC))
    await load.reached()
    await _until_ready(world, "b", "c", "d")
    back = await reached(world.edit(text))
    await reached(first)
    assert (first.outcome, back.outcome) == ("superseded", "unchanged")
    await world.comes_back_to(before, "active")
    await until(lambda: world.status()["settled"], "all is settled")


async def test_the_same_document_again_goes_along(both):
    world = await both()
    load = world.stage.hold("load", role="engine", model="x")
    first = world.edit(document(*_changed(world), **ATOMIC))
    await load.reached()
    again = world.reconciler.reload("signal", "SIGHUP")
    await reached(again, Milestone.ACCEPTED)
    load.release()
    await reached(first)
    await reached(again)
    assert (first.outcome, again.outcome) == ("applied", "applied")
    assert world.stage.loads("x") == 1


async def test_a_rejected_document_leaves_it_on_its_way(both):
    world = await both()
    load = world.stage.hold("load", role="engine", model="x")
    first = world.edit(document(*_changed(world), **ATOMIC))
    await load.reached()
    assert (await reached(world.edit("models: ["))).outcome == "rejected"
    load.release()
    await reached(first)
    assert first.outcome == "applied"


async def test_a_daemon_that_stops_while_they_wait_leaves_no_process(both):
    world = await both()
    load = world.stage.hold("load", role="engine", model="x")
    world.edit(document(*_changed(world), **ATOMIC))
    await load.reached()
    await _until_ready(world, "b", "c", "d")
    assert len(world.children()) == 10
    await world.stop()
    assert world.children() == set()


@pytest.mark.slow
async def test_with_replace_the_old_one_is_loaded_again_when_another_fails(both):
    world = await both()
    replace = {"reload": {"strategy": "replace", "drain_timeout_s": 5}}
    await world.apply(world.model("a", **replace), world.model("b"), world.model("c"), **ATOMIC)
    world.stage.order("load", where={"role": "text", "model": "d"}, **REFUSED)
    models = [world.model("a", "x", **replace), world.model("b"), world.model("c"), world.model("d")]
    receipt = await world.apply(*models, **ATOMIC)
    assert (receipt.outcome, receipt.models["a"].outcome) == ("failed", "failed")
    assert world.status()["models"]["a"]["path"].endswith("a.gguf")
    assert failure_of(await world.ask("a")) is None


# --- bytes ------------------------------------------------------------------------------------------------


async def test_a_plan_gives_no_memory_back_before_all_are_ready(both):
    world = await both()
    text = document(*_changed(world), **ATOMIC)
    plan = await world.steering.plan(Given(content(text), "new.yaml"))
    assert plan["together"]
    load = world.stage.hold("ready", role="engine", model="x")
    receipt = world.edit(text)
    await load.reached()
    await _until_ready(world, "b", "c", "d")
    held = sum(each.total_bytes for each in world.house.ledger.held().values())
    assert plan["devices"][0]["peak"]["total_bytes"] == held
    load.release()
    await reached(receipt)
    assert plan["devices"][0]["after"]["total_bytes"] == sum(
        each.total_bytes for each in world.house.ledger.held().values()
    )


async def test_an_engine_that_waits_for_the_others_takes_what_its_present_pool_holds(both):
    """A live change that is to come binds nobody before the moment at which it comes."""
    world = await both()
    load = world.stage.hold("load", role="engine", model="x")
    receipt = world.edit(document(*_changed(world), **ATOMIC))
    await load.reached()
    await _until_ready(world, "b", "d")
    said = [call for call in world.stage.calls if call.model == "b" and call.role == "engine"]
    assert [call.point for call in said if call.point in ("prepare", "discard", "commit")] == ["prepare", "discard"]
    load.release()
    assert (await reached(receipt)).outcome == "applied"
    assert [call.point for call in said if call.point in ("prepare", "commit")] == ["prepare"]
    said = [call for call in world.stage.calls if call.model == "b" and call.role == "engine"]
    points = [call.point for call in said if call.point in ("prepare", "discard", "commit")]
    assert points == ["prepare", "discard", "prepare", "commit"]


async def test_what_can_no_longer_be_done_at_the_moment_of_the_switch_fails_all(both):
    world = await both()
    before = world.dump()
    load = world.stage.hold("load", role="engine", model="x")
    receipt = world.edit(document(*_changed(world), **ATOMIC))
    await load.reached()
    await _until_ready(world, "b", "d")
    world.stage.order("prepare", times=1, where={"role": "engine", "model": "b"}, **REFUSED)
    load.release()
    await reached(receipt)
    assert receipt.outcome == "failed"
    assert "b: no memory" in receipt.models["a"].error
    await world.comes_back_to(before)
