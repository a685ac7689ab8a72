"""Memory that is on its way: a load waits for it as long as it comes, and nobody waits for what will not."""

import os
import signal

import pytest
from support.played.world import collect, content, document, failure_of, reached, until

from halogend.control import admission
from halogend.control.ledger import Holding
from halogend.control.planning import Given
from halogend.control.receipts import Milestone

ROOM = 604 << 20  # two generations of the played models, not three
POOL = {"kv_cache_bytes": "90MiB", "max_batch": 4096}
TIGHT = 608 << 20  # two generations, and less beside them than this pool
PARTS = [{"id": f"cpu:{number}", "cores": str(number)} for number in (0, 1)]
BOTH = {"exec_mode": "data_parallel", "device": ["cpu:0", "cpu:1"]}
REFUSED = {"do": "fail", "code": "HRT-1016", "message": "no memory"}
needs_cores = pytest.mark.skipif(os.sched_getaffinity(0) < {0, 1}, reason="needs the cores 0 and 1")


@pytest.fixture
def hasty(monkeypatch):
    """Who may not wait gives up at once."""
    monkeypatch.setattr(admission, "_ROOM_PATIENCE_S", 0.0)
    monkeypatch.setattr(admission, "_LOOK_S", 0.01)


def _divided(memory):
    return [{**each, "memory": memory} for each in PARTS]


async def _streams(world, model="a", count=1):
    """So many requests that have a token and go on until they are told to finish."""
    slow = world.stage.hold("generate", prompt="slow", times=count)
    answers = [await world.submit(model, "slow", 5) for _ in range(count)]
    await slow.reached(count)
    for call in slow.calls:
        call.say("token")
    await until(lambda: all(each.has_token for each in answers), "tokens have come")
    return answers, slow


async def _looks_again(world, model, monkeypatch):
    """Returns when its load has looked for room several times."""
    looks, real = [], world.house.misfit

    def misfit(parts, besides=""):
        parts = list(parts)
        looks.extend(part.name for part in parts)
        return real(parts, besides)

    monkeypatch.setattr(type(world.house), "misfit", lambda _, *args: misfit(*args))
    await until(lambda: looks.count(model) > 4, f"{model} has looked again")


async def test_a_load_waits_for_what_another_ones_switch_gives_back(serving, hasty, monkeypatch):
    world = await serving(ROOM)
    load = world.stage.hold("load", role="engine", model="x")
    first = world.edit(document(world.model("a", "x")))
    await load.reached()
    second = world.edit(document(world.model("a", "x"), world.model("b")))
    await _looks_again(world, "b", monkeypatch)
    assert second.models["b"].outcome is None
    load.release()
    await reached(second)
    assert (first.outcome, second.outcome) == ("applied", "applied")


async def test_an_old_one_that_died_while_the_new_one_loads_is_room_to_come(serving, hasty, monkeypatch):
    world = await serving(ROOM)
    load = world.stage.hold("load", role="engine", model="x")
    world.edit(document(world.model("a", "x")))
    await load.reached()
    old = world.unit("a").serving
    os.kill(old.pids["engine"], signal.SIGKILL)
    await until(old.died.is_set, "it is dead")
    second = world.edit(document(world.model("a", "x"), world.model("b")))
    await _looks_again(world, "b", monkeypatch)
    load.release()
    await reached(second)
    assert second.outcome == "applied"


@needs_cores
async def test_a_dead_one_that_nobody_buried_is_no_obstacle(world, hasty):
    there = await world()
    parts = [{**PARTS[0], "memory": "300MiB"}, {**PARTS[1], "spare": True}]
    await there.apply(there.model("a"), devices=parts)
    load = there.stage.hold("load", role="engine", model="x")
    first = there.edit(document(there.model("a", "x"), devices=parts))
    await load.reached()
    assert there.unit("a").loading.spec.device == "cpu:1"
    old = there.unit("a").serving
    os.kill(old.pids["engine"], signal.SIGKILL)
    await until(old.died.is_set, "it is dead")
    second = await reached(there.edit(document(there.model("a", "y"), devices=parts)))
    assert (first.outcome, second.outcome) == ("superseded", "applied")
    assert there.unit("a").serving.spec.device == "cpu:0"
    assert set(there.house.ledger.view()) == {"a#3"}
    assert failure_of(await there.ask("a")) is None


@needs_cores
async def test_a_new_model_waits_for_a_replica_that_leaves(world, hasty, monkeypatch):
    there = await world()
    parts = _divided("300MiB")
    await there.apply(there.model("a", **BOTH), devices=parts)
    answers, slow = await _streams(there, count=2)
    one = {**BOTH, "device": ["cpu:0"]}
    await there.apply(there.model("a", **one), devices=parts, until=Milestone.SERVING)
    receipt = there.edit(document(there.model("a", **one), there.model("b", device="cpu:1"), devices=parts))
    await _looks_again(there, "b", monkeypatch)
    slow.release("finish")
    await reached(receipt)
    assert receipt.outcome == "applied"
    assert [failure_of(await collect(each)) for each in answers] == [None, None]


async def test_together_what_a_way_back_retires_is_no_room_for_a_load(serving):
    world = await serving(ROOM)
    (answer,), slow = await _streams(world)
    await world.apply(world.model("a", "x"), until=Milestone.SERVING)
    refused = await world.apply(world.model("a"), world.model("b"), reload={"atomic": True})
    assert refused.outcome == "rejected"
    assert [each.code for each in refused.problems] == ["HRT-1004"]
    receipt = await world.apply(world.model("a"), world.model("b"), until=Milestone.SERVING)
    assert receipt.outcome == "applied"
    slow.release("finish")
    assert failure_of(await collect(answer)) is None


@needs_cores
async def test_a_replica_that_comes_back_keeps_no_place_while_an_atomic_change_waits_for_a_load(world):
    there = await world()
    await there.apply(there.model("a", **BOTH), devices=PARTS)
    again = there.stage.hold("load", role="engine", model="a")
    dead = there.unit("a").serving.replicas[1]
    os.kill(dead.pids["engine"], signal.SIGKILL)
    await again.reached()
    models = [there.model("a", max_batch=7, **BOTH), there.model("b", device="cpu:0")]
    receipt = there.edit(document(*models, devices=PARTS, reload={"atomic": True}))
    await until(lambda: "a" in getattr(there.reconciler._together.newest, "_turns", ()), "a is ready")
    again.release()
    await reached(receipt)
    assert receipt.outcome == "applied"
    await until(lambda: there.unit("a").serving.replicas[1].is_alive, "the replica is back")
    assert [each.engine_limits.max_batch for each in there.unit("a").serving.replicas] == [7, 7]


@needs_cores
async def test_one_of_several_replicas_shrinks_for_nobody(world):
    there = await world()
    parts = _divided("520MiB")
    receipt = await there.apply(there.model("a", **BOTH, **POOL), devices=parts)
    assert receipt.outcome == "applied"
    text = document(there.model("a", "b", device="cpu:0", **POOL), devices=parts)
    (problem,) = (await there.steering.plan(Given(content(text), "new.yaml")))["problems"]
    assert problem["code"] == "HRT-1004"
    assert "shrink" not in problem["message"] + problem["hint"]
    assert (await reached(there.edit(text))).outcome == "rejected"


async def test_a_pool_that_made_way_for_a_load_grows_when_nothing_comes_of_it(world):
    there = await world(TIGHT)
    await there.apply(there.model("c"), there.model("a", **POOL))
    await until(lambda: not there.unit("a").reclaims, "all is quiet")
    assert there.house.ledger.holding("a#1").kv_bytes < 90 << 20
    there.stage.order("load", where={"role": "engine", "model": "b"}, **REFUSED)
    receipt = await there.apply(there.model("a", **POOL), there.model("b"))
    assert receipt.models["b"].outcome == "failed"
    await until(lambda: there.house.ledger.holding("a#1").kv_bytes == 90 << 20, "the pool has grown")


async def test_what_an_old_pool_gives_in_two_steps_is_kept_whole(serving):
    world = await serving(TIGHT, **POOL)
    prepare = world.stage.hold("prepare", role="engine", model="a", times=1)
    load = world.stage.hold("load", role="engine", model="b")
    receipt = world.edit(document(world.model("a", "b", **POOL)))
    call = await prepare.reached()
    free = TIGHT - world.house.ledger.taken_bytes("cpu:0")
    world.house.ledger.enter("other", Holding("cpu:0", 0, min(free, 5 << 20), 0))
    kept, enter = [], world.house.ledger.enter
    world.house.ledger.enter = lambda name, held: (enter(name, held), kept.append((name, held.kv_bytes)))
    call.say()
    await load.reached()
    given = [kv_bytes for name, kv_bytes in kept if name == "a#room"]
    assert len(given) == 2
    assert given[-1] == (90 << 20) - world.unit("a").serving.engine_limits.pool_bytes
    assert world.house.ledger.taken_bytes("cpu:0") <= TIGHT
    load.release()
    await reached(receipt)
    assert receipt.outcome == "applied"
    world.house.ledger.leave("other")


async def test_with_replace_what_still_drains_is_taken_back_when_another_model_fails(serving):
    world = await serving()
    replace = {"reload": {"strategy": "replace", "drain_timeout_s": 50}}
    await world.apply(world.model("a", **replace))
    (answer,), slow = await _streams(world)
    load = world.stage.hold("load", role="engine", model="b")
    models = [world.model("a", "x", **replace), world.model("b")]
    receipt = world.edit(document(*models, reload={"atomic": True}))
    call = await load.reached()
    await until(lambda: world.unit("a").serving is None, "a drains")
    call.say(**REFUSED)
    await reached(receipt, Milestone.SERVING)
    assert receipt.outcome == "failed"
    await until(lambda: world.unit("a").serving is not None, "a serves again")
    assert (world.unit("a").serving.number, world.stage.loads("a")) == (1, 1)
    assert failure_of(await world.ask("a")) is None
    slow.release("finish")
    assert failure_of(await collect(answer)) is None


async def test_two_whose_old_pools_cannot_shrink_do_not_wait_for_each_other(world, hasty, monkeypatch):
    there = await world(988 << 20)
    how = {**POOL, "reload": {"strategy": "shrink"}}
    await there.apply(there.model("a", **how), there.model("c", **how))
    text = document(there.model("a", "x", **how), there.model("c", "y", **how))
    plan = await there.steering.plan(Given(content(text), "new.yaml"))
    assert [each["strategy"] for each in plan["models"]] == ["shrink", "shrink"]
    monkeypatch.setattr(admission, "may_shrink", lambda *_: False)  # requests came that need what there is
    receipt = await reached(there.edit(text))
    assert receipt.outcome == "failed"
    assert [failure_of(await there.ask(name)) for name in "ac"] == [None, None]
