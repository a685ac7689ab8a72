"""A replacement that has room only after the old pool shrank, or on another device; and everything that fails."""

import os
import signal
from dataclasses import replace

import pytest
from support.played.stage import WARMUP
from support.played.world import GIB, content, document, failure_of, reached, until

from halogend.control import admission, shrink
from halogend.control.planning import Given
from halogend.control.receipts import Milestone

ROOM = 608 << 20  # two generations, and less beside them than the pool below
POOL = {"kv_cache_bytes": "90MiB", "max_batch": 4096}
REFUSED = {"code": "HRT-1015", "message": "no memory"}
SPARE = [{"id": "cpu:0", "cores": "0", "memory": "520MiB"}, {"id": "cpu:1", "cores": "1", "spare": True}]


@pytest.fixture
async def tight(serving):
    """`a` serves, and its pool leaves too little for another generation."""
    there = await serving(ROOM, **POOL)
    assert there.unit("a").active.holding.kv_bytes == 90 << 20
    assert not there.house.fits(there.unit("a").active)
    return there


def replaced(there, **fields):
    return document(there.model("a", "b", **{**POOL, **fields}))


async def test_the_old_pool_gives_what_is_missing_and_the_new_one_grows_when_it_is_gone(tight):
    text = replaced(tight)
    plan = await tight.reconciler.plan(Given(content(text), ""))
    (planned,) = plan["models"]
    assert (planned["strategy"], planned["device"], planned["landing"]) == ("shrink", "cpu:0", "home")
    most = []
    enter = tight.house.ledger.enter
    tight.house.ledger.enter = lambda *args: (enter(*args), most.append(tight.house.ledger.taken_bytes("cpu:0")))
    receipt = await reached(tight.edit(text))
    assert receipt.outcome == "applied"
    steps = receipt.models["a"].steps
    assert [step.name for step in steps] == planned["steps"] == ["shrink", "load", "switch", "drain", "reclaim"]
    detail = steps[0].detail
    assert {key: detail[key] for key in ("from_bytes", "to_bytes")} == planned["shrink"]
    assert max(most) <= plan["devices"][0]["peak"]["total_bytes"] <= ROOM
    target = tight.unit("a").active
    await until(lambda: tight.house.ledger.holding("a#2") == target.holding, "the new pool has grown")
    assert failure_of(await tight.ask("a")) is None


async def test_what_another_load_took_meanwhile_is_given_too(tight, monkeypatch):
    """The pool had given what was missing, and somebody entered before the newcomer did."""
    other, give = (
        replace(tight.unit("a").active.holding, kv_bytes=0, weights_bytes=0, working_bytes=3 << 20),
        admission.shrink,
    )
    gave = []

    async def gives(*args):
        await give(*args)
        gave.append(tight.house.ledger.holding("a#1").kv_bytes)
        tight.house.ledger.enter("other#1", other)

    monkeypatch.setattr(admission, "shrink", gives)
    most = []
    enter = tight.house.ledger.enter
    tight.house.ledger.enter = lambda *args: (
        enter(*args),
        most.append((args[0], tight.house.ledger.taken_bytes("cpu:0"))),
    )
    receipt = await reached(tight.edit(replaced(tight)))
    assert receipt.outcome == "applied", receipt.view()
    assert [step.name for step in receipt.models["a"].steps][:3] == ["shrink", "shrink", "load"]
    assert gave[0] - gave[1] == 3 << 20
    assert max(taken for name, taken in most if name == "a#2") <= ROOM


FAILURES = {
    "the old engine refuses": ("prepare", {"do": "fail", **REFUSED}, {"role": "engine"}),
    "the new engine refuses": ("load", {"do": "fail", **REFUSED}, {"role": "engine", "model": "b"}),
    "the new engine is killed": ("load", {"do": "die", "signal": signal.SIGKILL}, {"role": "engine", "model": "b"}),
    "the first token fails": ("generate", {"do": "fail", **REFUSED}, {"role": "engine", "prompt": WARMUP}),
}


@pytest.mark.parametrize("how", FAILURES)
async def test_l3_whatever_fails_the_old_pool_is_as_it_was(tight, how):
    point, order, where = FAILURES[how]
    before = tight.dump()
    tight.stage.order(point, where=where, times=1, **order)
    receipt = await reached(tight.edit(replaced(tight)))
    assert receipt.outcome == "failed"
    assert [step.name for step in receipt.models["a"].steps][-1] == "grow"
    await tight.comes_back_to(before)
    assert failure_of(await tight.ask("a")) is None


async def test_a_pool_that_its_engine_will_not_grow_again_is_asked_again_by_itself(tight, monkeypatch):
    monkeypatch.setattr("halogend.control.unit.REFUSED_S", (0.0, 0.01))
    before = tight.dump()
    tight.stage.order("load", "fail", where={"role": "engine", "model": "b"}, **REFUSED)
    shrunk = tight.stage.hold("prepare", role="engine", model="a", times=1)
    receipt = tight.edit(replaced(tight))
    call = await shrunk.reached()
    refused = tight.stage.order("prepare", "fail", times=2, where={"role": "engine", "model": "a"}, **REFUSED)
    call.say()
    await reached(receipt)
    await until(lambda: len(refused.calls) == 2, "it is refused twice")
    await tight.comes_back_to(before)


async def test_an_edit_that_wants_something_else_gives_the_pool_back(tight):
    before = tight.dump()
    load = tight.stage.hold("load", role="engine", model="b")
    first = tight.edit(replaced(tight))
    await load.reached()
    assert tight.house.ledger.holding("a#1").kv_bytes < 90 << 20
    second = await reached(tight.edit(document(tight.model("a", **POOL))))
    assert ((await reached(first)).outcome, second.outcome) == ("superseded", "applied")
    await tight.comes_back_to(before, "active")


async def test_a_new_model_does_not_take_what_is_shrunk_for(serving):
    """`c` would fit at once, and then nothing that `a` can give would do."""
    there = await serving(628 << 20, **POOL)
    small = {"kv_cache_bytes": "80KiB", "max_batch": 8}
    text = document(there.model("c", **small), there.model("a", "b", **POOL))
    plan = await there.reconciler.plan(Given(content(text), ""))
    assert [each["strategy"] for each in plan["models"]] == [None, "shrink"], plan["problems"]
    receipt = await reached(there.edit(text))
    assert receipt.outcome == "applied", receipt.view()


async def test_what_requests_hold_is_waited_for_and_never_taken(tight):
    slow = tight.stage.hold("generate", prompt="slow")
    answer = await tight.submit("a", "slow", 5)
    (await slow.reached()).say("token", blocks=89 << 20)
    await until(lambda: answer.has_token, "a token has come")
    receipt = await reached(tight.edit(replaced(tight)), Milestone.ACCEPTED)
    await until(lambda: any(s.name == "shrink" for s in receipt.models["a"].steps), "it wants to shrink")
    assert tight.house.ledger.holding("a#1").kv_bytes == 90 << 20
    assert tight.stage.loads("b") == 0
    slow.release("finish", blocks=0)
    assert (await reached(receipt)).outcome == "applied"


async def test_requests_that_do_not_end_end_the_wait(tight, monkeypatch):
    monkeypatch.setattr(shrink, "SHRINK_LIMIT_S", 0.3)
    slow = tight.stage.hold("generate", prompt="slow")
    answer = await tight.submit("a", "slow", 5)
    (await slow.reached()).say("token", blocks=89 << 20)
    await until(lambda: answer.has_token, "a token has come")
    before = tight.dump()
    receipt = await reached(tight.edit(replaced(tight)))
    assert receipt.outcome == "failed"
    assert "requests of the old one hold more" in receipt.models["a"].error
    await tight.comes_back_to(before)
    slow.release("finish")


async def test_a_model_that_does_not_fit_either_way_is_refused_before_anything_is_touched(tight):
    before = tight.dump()
    receipt = await reached(tight.edit(replaced(tight, max_batch=4096 * 8, prefill_chunk=1 << 15)))
    assert receipt.outcome == "rejected"
    await tight.comes_back_to(before)


@pytest.mark.skipif(os.sched_getaffinity(0) < {0, 1}, reason="needs the cores 0 and 1")
async def test_a_spare_device_takes_the_newcomer_and_the_next_one_goes_home(world):
    there = await world(4 * GIB)
    await there.apply(there.model("a", **POOL), devices=SPARE)
    await until(lambda: not there.unit("a").reclaims, "all is quiet")
    text = document(there.model("a", "b", **POOL), devices=SPARE)
    (planned,) = (await there.reconciler.plan(Given(content(text), "")))["models"]
    assert (planned["strategy"], planned["device"], planned["landing"]) == ("overlap", "cpu:1", "spare")
    assert (await reached(there.edit(text))).outcome == "applied"
    serving = there.status()["models"]["a"]["serving"]
    assert (serving["generation"], serving["device"]) == (2, "cpu:1")
    assert os.sched_getaffinity(serving["pids"]["engine"]) == {1}
    assert (await reached(there.edit(text))).outcome == "unchanged"
    live = await reached(there.edit(document(there.model("a", "b", **{**POOL, "max_queue": 7}), devices=SPARE)))
    assert (live.models["a"].action, there.status()["models"]["a"]["serving"]["device"]) == ("update", "cpu:1")
    assert (await reached(there.edit(document(there.model("a", **POOL), devices=SPARE)))).outcome == "applied"
    assert there.status()["models"]["a"]["serving"]["device"] == "cpu:0"
    assert there.house.ledger.taken_bytes("cpu:1") == 0


async def test_l15_two_engines_that_start_at_once_share_what_there_is(world):
    """Both begin while neither has touched its memory: the ledger alone keeps them apart."""
    there = await world(ROOM)
    both = document(
        *(there.model(name, kv_cache_bytes="30MiB", max_batch=4096) for name in "ab"), reload={"max_parallel_loads": 2}
    )
    load = there.stage.hold("load", role="engine")
    receipt = there.edit(both)
    await load.reached(2)
    assert there.house.ledger.taken_bytes("cpu:0") <= ROOM
    pools = sorted(call.detail["pool_bytes"] for call in load.calls)
    assert pools[0] < pools[1] == 30 << 20
    load.release()
    assert (await reached(receipt, Milestone.SERVING)).outcome == "applied"
    assert there.house.ledger.taken_bytes("cpu:0") <= ROOM


@pytest.mark.skipif(os.sched_getaffinity(0) < {0, 1}, reason="needs the cores 0 and 1")
async def test_l3_a_newcomer_that_fails_on_the_spare_device_leaves_all_as_it_was(world):
    there = await world(4 * GIB)
    await there.apply(there.model("a", **POOL), devices=SPARE)
    await until(lambda: not there.unit("a").reclaims, "all is quiet")
    before = there.dump()
    there.stage.order("load", "fail", where={"role": "engine", "model": "b"}, times=1, **REFUSED)
    receipt = await there.apply(there.model("a", "b", **POOL), devices=SPARE)
    assert (receipt.outcome, [step.name for step in receipt.models["a"].steps]) == ("failed", ["load"])
    await there.comes_back_to(before)


@pytest.mark.skipif(os.sched_getaffinity(0) < {0, 1}, reason="needs the cores 0 and 1")
async def test_one_that_dies_on_the_spare_device_is_started_again_there(world):
    there = await world(4 * GIB)
    await there.apply(there.model("a", **POOL), devices=SPARE)
    await there.apply(there.model("a", "b", **POOL), devices=SPARE)
    first = there.unit("a").serving
    os.kill(first.pids["engine"], signal.SIGKILL)
    await until(lambda: there.unit("a").serving not in (None, first), "another serves")
    assert there.status()["models"]["a"]["serving"]["device"] == "cpu:1"
    assert there.house.ledger.taken_bytes("cpu:0") == 0
