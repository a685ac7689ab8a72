"""Replica by replica, where there is no room for a new generation beside the old one."""

import os
import signal

import pytest
from support.played.world import collect, document, failure_of, reached, until

from halogend.control.retired import Leaver
from halogend.control.to_come import awaited

PARTS = [{"id": f"cpu:{number}", "cores": str(number)} for number in (0, 1)]
BOTH = {"exec_mode": "data_parallel", "device": ["cpu:0", "cpu:1"]}
REFUSED = {"do": "fail", "code": "HRT-1016", "message": "no memory"}
pytestmark = pytest.mark.skipif(os.sched_getaffinity(0) < {0, 1}, reason="needs the cores 0 and 1")


@pytest.fixture
async def tight(world):
    """A world in which `a` serves on two devices, and neither has room for a second copy."""
    new = await world()
    new.text = document(new.model("a", **BOTH), devices=PARTS)
    planned = await new.steering.plan()
    new.memory = max(each["after"]["total_bytes"] for each in planned["devices"]) * 3 // 2
    receipt = await reached(new.edit(_text(new)))
    assert receipt.outcome == "applied", receipt.view()
    return new


def _text(world, file=None):
    return document(world.model("a", file, **BOTH), devices=[{**each, "memory": world.memory} for each in PARTS])


def _serve(world):
    """By device, which generation takes requests there."""
    route = world.router.route("a")
    there = [each for each in (route.serving, route.beside) if each is not None]
    return {replica.spec.device: each.number for each in there for replica in each.replicas if replica.is_alive}


async def test_both_generations_serve_until_the_last_replica_came(tight):
    tight.text = _text(tight, "b")
    planned = await tight.steering.plan()
    assert (planned["problems"], planned["models"][0]["strategy"]) == ([], "rolling")
    assert all(each["peak"]["total_bytes"] <= tight.memory for each in planned["devices"])
    second = tight.stage.hold("load", role="engine", model="b")
    slow = tight.stage.hold("generate", prompt="slow", times=2)
    answers = [await tight.submit("a", "slow", 5) for _ in range(2)]
    await slow.reached(2)
    receipt = tight.edit(tight.text)
    (await second.reached()).say()
    await second.reached(2)
    assert _serve(tight) == {"cpu:0": 2}
    assert failure_of(await tight.ask("a")) is None
    second.release()
    await reached(receipt)
    assert receipt.outcome == "applied"
    assert _serve(tight) == {"cpu:0": 2, "cpu:1": 2}
    assert [step.name for step in receipt.models["a"].steps] == planned["models"][0]["steps"]
    assert set(tight.house.ledger.view()) == {"a#2", "a#2/1"}
    slow.release("finish")
    assert [failure_of(await collect(answer)) for answer in answers] == [None, None]
    await until(lambda: len(tight.children()) == 4, "the old ones are gone")
    assert tight.status()["settled"]


async def test_a_request_with_a_token_ends_where_it_began(tight):
    slow = tight.stage.hold("generate", prompt="slow")
    answer = await tight.submit("a", "slow", 5)
    (await slow.reached()).say("token")
    await until(lambda: answer.has_token, "a token has come")
    receipt = tight.edit(_text(tight, "b"))
    await until(lambda: answer.holder in tight.unit("a").serving.leaving, "its replica drains")
    assert tight.stage.loads("b") == 0
    slow.release("finish")
    assert failure_of(await collect(answer)) is None
    assert answer.generation == 1
    assert (await reached(receipt)).outcome == "applied"


@pytest.mark.parametrize(("step", "how"), [(1, "refuses"), (2, "is killed")])
async def test_a_failure_at_either_device_walks_all_back(tight, step, how):
    before = tight.dump()
    loads = tight.stage.hold("load", role="engine", model="b")
    receipt = tight.edit(_text(tight, "b"))
    for number in range(1, step):
        (await loads.reached(number)).say()
    call = await loads.reached(step)
    call.say(**REFUSED) if how == "refuses" else os.kill(call.pid, signal.SIGKILL)
    await reached(receipt)
    assert receipt.outcome == "failed"
    await until(lambda: _serve(tight) == {"cpu:0": 1, "cpu:1": 1}, "the old ones serve again")
    assert failure_of(await tight.ask("a")) is None
    await tight.comes_back_to(before, "children")
    assert len(tight.children()) == 4


async def test_what_is_loaded_again_on_the_way_back_is_loaded_beside_others(tight):
    """Nobody served when it was loaded at first."""
    tight.stage.order("load", where={"role": "engine", "model": "b"}, times=1, **REFUSED)
    receipt = await reached(tight.edit(_text(tight, "b")))
    assert receipt.outcome == "failed"
    await until(lambda: _serve(tight) == {"cpu:0": 1, "cpu:1": 1}, "the old ones serve again")
    specs = {replica.spec.device: replica.spec for replica in tight.unit("a").serving.replicas}
    found = {device: (each.engine.loader_niceness, each.text.loader_niceness) for device, each in specs.items()}
    assert found == {"cpu:0": (19, 10), "cpu:1": (0, 0)}


async def test_a_revert_on_the_way_walks_back_and_loads_nothing_new(tight):
    loads = tight.stage.hold("load", role="engine", model="b")
    receipt = tight.edit(_text(tight, "b"))
    (await loads.reached()).say()
    await loads.reached(2)
    back = tight.edit(_text(tight))
    await reached(receipt)
    await reached(back)
    assert (receipt.outcome, back.outcome) == ("superseded", "applied")
    await until(lambda: _serve(tight) == {"cpu:0": 1, "cpu:1": 1}, "the old ones serve again")
    assert set(tight.house.ledger.view()) == {"a#1", "a#1/1"}


async def test_an_old_replica_that_does_not_come_back_is_mended_like_one_that_died(tight):
    loads = tight.stage.hold("load", role="engine", model="b")
    old = tight.stage.order("load", where={"role": "engine", "model": "a"}, times=1, **REFUSED)
    receipt = tight.edit(_text(tight, "b"))
    (await loads.reached()).say(**REFUSED)
    await reached(receipt)
    assert receipt.outcome == "failed"
    assert len(old.calls) == 1
    await until(lambda: _serve(tight) == {"cpu:0": 1, "cpu:1": 1}, "the old ones serve again")
    assert tight.unit("a").serving.number == 1


async def test_the_end_on_the_way_leaves_nothing(tight):
    loads = tight.stage.hold("load", role="engine", model="b")
    tight.edit(_text(tight, "b"))
    (await loads.reached()).say()
    await loads.reached(2)
    await tight.stop()


async def test_rolling_may_be_asked_for_and_is_overlap_where_one_replica_serves(world):
    new = await world()
    one = {"exec_mode": "data_parallel", "device": ["cpu:0"], "reload": {"strategy": "rolling"}}
    assert (await new.apply(new.model("a", **one), devices=PARTS)).outcome == "applied"
    for devices, strategy in ((["cpu:0"], "overlap"), (["cpu:0", "cpu:1"], None), (["cpu:0", "cpu:1"], "rolling")):
        file = None if strategy is None else "b"
        new.text = document(new.model("a", file, **{**one, "device": devices}), devices=PARTS)
        planned = await new.steering.plan()
        assert planned["models"][0]["strategy"] == strategy, planned["models"]
        if strategy is None:
            assert (await reached(new.edit(new.text))).outcome == "applied"


async def test_a_new_replica_that_dies_on_the_way_walks_all_back(tight):
    before = tight.dump()
    loads = tight.stage.hold("load", role="engine", model="b")
    receipt = tight.edit(_text(tight, "b"))
    (await loads.reached()).say()
    last = await loads.reached(2)
    os.kill(tight.router.route("a").beside.replicas[0].pids["engine"], signal.SIGKILL)
    await until(lambda: not _serve(tight), "nobody serves")
    asked = tight.asks("a")
    await until(lambda: tight.router.waiting("a") == 1, "a request waits")
    last.say()
    assert failure_of(await asked) is None
    await reached(receipt)
    assert receipt.outcome == "failed"
    await tight.comes_back_to(before, "children")


async def test_an_old_replica_that_dies_on_the_way_is_followed_by_the_new_one(tight):
    loads = tight.stage.hold("load", role="engine", model="b")
    receipt = tight.edit(_text(tight, "b"))
    first = await loads.reached()
    (left,) = tight.unit("a").serving.replicas
    os.kill(left.pids["engine"], signal.SIGKILL)
    await until(lambda: not _serve(tight), "nobody serves")
    first.say()
    await until(lambda: _serve(tight) == {"cpu:0": 2}, "the new one serves")
    assert failure_of(await tight.ask("a")) is None
    loads.release()
    await reached(receipt)
    assert receipt.outcome == "applied"
    assert set(tight.house.ledger.view()) == {"a#2", "a#2/1"}
    await until(lambda: len(tight.children()) == 4, "nothing is left of the old ones")


async def test_the_end_on_the_way_back_leaves_nothing(tight):
    loads = tight.stage.hold("load", role="engine", model="b")
    again = tight.stage.hold("load", role="engine", model="a")
    tight.edit(_text(tight, "b"))
    (await loads.reached()).say()
    (await loads.reached(2)).say(**REFUSED)
    await again.reached()
    await tight.stop()


async def test_what_is_removed_on_the_way_is_not_started_again(tight):
    loads = tight.stage.hold("load", role="engine", model="b")
    receipt = tight.edit(_text(tight, "b"))
    (await loads.reached()).say()
    await loads.reached(2)
    removed = await reached(tight.edit(document()))
    assert (receipt.outcome, removed.outcome) == ("superseded", "applied")
    assert tight.stage.loads("a") == 2
    assert tight.house.ledger.view() == {}
    await until(lambda: not tight.children(), "no process is left")


async def test_what_an_old_replica_gave_is_kept_for_the_new_one(tight):
    loads = tight.stage.hold("load", role="engine", model="b")
    slow = tight.stage.hold("generate", prompt="slow", times=2)
    answers = [await tight.submit("a", "slow", 5) for _ in range(2)]
    await slow.reached(2)
    receipt = tight.edit(_text(tight, "b"))
    await until(lambda: tight.unit("a").serving.leaving, "the first gives way")
    assert {part.device for part in awaited(tight.unit("a"))} == {"cpu:0", "cpu:1"}
    slow.release("finish")
    await loads.reached()
    assert {part.device for part in awaited(tight.unit("a"))} == {"cpu:1"}
    loads.release()
    await reached(receipt)
    assert awaited(tight.unit("a")) == []
    assert [failure_of(await collect(answer)) for answer in answers] == [None, None]


@pytest.mark.parametrize("second", [False, True])
async def test_a_revert_while_an_old_replica_drains_is_one_assignment_for_it(tight, second):
    slow = tight.stage.hold("generate", prompt="slow")
    answers = []
    for number in (1, 2):
        answers.append(await tight.submit("a", "slow", 5))
        (await slow.reached(number)).say("token")
        await until(lambda: answers[-1].has_token, "a token has come")
    receipt = tight.edit(_text(tight, "b"))
    await until(lambda: tight.unit("a").serving.leaving, "its first replica drains")
    first, *_ = answers
    if second:
        (of_the_first,) = [each for each in answers if each.holder in tight.unit("a").serving.leaving]
        first = answers[1 - answers.index(of_the_first)]
        slow.calls[answers.index(of_the_first)].say("finish")
        await until(lambda: first.holder in tight.unit("a").serving.leaving, "its second replica drains")
    loads = tight.stage.loads("a")
    back = await reached(tight.edit(_text(tight)))
    await reached(receipt)
    assert (receipt.outcome, back.outcome) == ("superseded", "applied")
    assert tight.stage.loads("a") == loads + second  # what has ended can only be loaded
    assert _serve(tight) == {"cpu:0": 1, "cpu:1": 1}
    assert [len(replica.leases) for replica in tight.unit("a").serving.replicas].count(1) == 2 - second
    taken_back = [step.detail.get("taken_back", False) for step in receipt.models["a"].steps if step.name == "drain"]
    assert taken_back[1 if second else 0] is True
    slow.release("finish")
    assert [failure_of(await collect(answer)) for answer in answers] == [None, None]
    await until(tight.is_quiet, "all is quiet")


async def test_a_fault_on_the_way_back_starts_nothing_in_the_place_of_what_still_drains(tight, monkeypatch):
    """Both would have their bytes under one name, and the end of one would take those of the other."""
    slow = tight.stage.hold("generate", prompt="slow")
    answer = await tight.submit("a", "slow", 5)
    (await slow.reached()).say("token")
    await until(lambda: answer.has_token, "a token has come")
    receipt = tight.edit(_text(tight, "b"))
    await until(lambda: answer.holder in tight.unit("a").serving.leaving, "its replica drains")
    faults = []

    def serve_again(leaver):
        faults.append(leaver)
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(Leaver, "serve_again", serve_again)
    tight.edit(_text(tight))
    await until(lambda: faults, "the way back has failed")
    assert set(tight.house.ledger.view()) == {"a#1", "a#1/1"}
    assert len(tight.children()) == 4
    slow.release("finish")
    assert failure_of(await collect(answer)) is None
    await reached(receipt)
    await until(lambda: _serve(tight) == {"cpu:0": 1, "cpu:1": 1}, "both serve again")
    assert set(tight.house.ledger.view()) == {"a#1", "a#1/1"}
    assert len(tight.children()) == 4
    assert failure_of(await tight.ask("a")) is None
