"""What a watcher hears of a change, a death and a hold, in a played world."""

import os
import signal

import pytest
from support.played.world import document, reached, until

from halogend.control.lookout import Lookout


class Heard:
    """Everything that was published since it was made."""

    def __init__(self, world):
        self.ring = world.house.events
        self.began = int(self.ring.last_id.partition("-")[2])

    def all(self):
        return [(event.kind, event.data) for event in self.ring.after(self.began)]

    def of(self, kind, *keys):
        return [tuple(data[key] for key in keys) for each, data in self.all() if each == kind]


async def test_a_change_is_heard_from_its_opening_to_its_close(serving):
    world = await serving()
    heard = Heard(world)
    receipt = await world.apply(world.model("a", "b"))
    assert heard.of("receipt", "receipt", "phase", "outcome") == [
        (receipt.id, "opened", None),
        (receipt.id, "accepted", None),
        (receipt.id, "serving", "applied"),
        (receipt.id, "closed", "applied"),
    ]
    steps = heard.of("step", "receipt", "model", "name", "phase")
    names = list(dict.fromkeys(step[2] for step in steps))
    assert names == ["load", "switch", "drain", "reclaim"]
    assert {(step[0], step[1]) for step in steps} == {(receipt.id, "a")}
    assert [step[3] for step in steps if step[2] == "load"][:2] == ["began", "ended"]
    states = heard.of("generation", "generation", "state")
    assert list(dict.fromkeys(states)) == [(2, "loading"), (2, "serving"), (1, "draining"), (1, "gone")]


async def test_what_a_step_tells_never_gets_in_the_way_of_what_it_is(serving):
    world = await serving()
    record = world.reconciler.receipts.all()[0].models["a"]
    heard = Heard(world)
    async with world.house.step(record, "load") as step:
        step.detail.update(kind="odd", model="other", phase="odd", seconds="odd")
    (_, ended) = [data for kind, data in heard.all() if kind == "step"]
    assert (ended["model"], ended["phase"], ended["kind"], ended["receipt"]) == ("a", "ended", "odd", "r1")


async def test_a_step_that_ended_says_how_long_it_took_and_what_came_of_it(serving):
    world = await serving()
    world.stage.order("load", "fail", where={"role": "engine", "model": "b"}, code="HRT-1016", message="no memory")
    heard = Heard(world)
    await world.apply(world.model("a", "b"))
    began, ended = [data for kind, data in heard.all() if kind == "step"]
    assert "seconds" not in began
    assert ended["seconds"] >= 0
    assert "no memory" in ended["error"]
    assert ended["generation"] == 2


async def test_a_rejected_edit_tells_its_first_problems_and_how_many_there_are(serving):
    world = await serving()
    heard = Heard(world)
    await reached(world.edit("nonsense: 1\n" + "".join(f"wrong{n}: 1\n" for n in range(9))))
    (_, closed) = [data for kind, data in heard.all() if kind == "receipt"]
    assert (closed["phase"], closed["outcome"]) == ("closed", "rejected")
    assert closed["problem_count"] > len(closed["problems"]) == 5
    assert closed["problems"][0]["line"] == 1


async def test_a_look_tells_what_is_new_and_nothing_twice(serving):
    world = await serving()
    lookout, heard = Lookout(world.reconciler, world.steering), Heard(world)
    lookout.tick()
    lookout.tick()
    assert heard.of("model", "model", "state", "trouble") == [("a", "serving", None)]
    load = world.stage.hold("load", role="engine", model="b")
    receipt = world.edit(document(world.model("a", "b")))
    await load.reached()
    lookout.tick()
    lookout.tick()
    (progress,) = heard.of("progress", "model", "generation")
    assert progress == ("a", 2)
    load.release()
    await reached(receipt)


@pytest.mark.parametrize("role", ["engine", "text"])
async def test_a_model_in_trouble_and_one_that_is_gone_are_heard_of(serving, role):
    world = await serving()
    lookout, heard = Lookout(world.reconciler, world.steering), Heard(world)
    world.stage.order("load", "fail", where={"role": "engine", "model": "a"}, code="HRT-1016", message="no memory")
    lookout.tick()
    os.kill(world.unit("a").serving.pids[role], signal.SIGKILL)
    await until(lambda: world.unit("a").trouble, "it is in trouble")
    lookout.tick()
    state, trouble = heard.of("model", "state", "trouble")[-1]
    assert state != "serving"
    assert trouble
    await world.apply()
    await until(lambda: not world.house.units, "nothing is left of it")
    lookout.tick()
    assert heard.of("model", "model", "state")[-1] == ("a", "gone")


async def test_a_source_that_cannot_be_watched_is_heard_of_once(serving):
    world = await serving()
    source = {"watch": "events", "reason": None}
    lookout, heard = Lookout(world.reconciler, world.steering, lambda: source), Heard(world)
    lookout.tick()
    source["reason"] = "no inotify"
    lookout.tick()
    lookout.tick()
    source["reason"], source["unread"] = None, "it is empty"
    lookout.tick()
    source["unread"] = None
    lookout.tick()
    assert heard.of("source_unread", "source_unread") == [("it is empty",), (None,)]
    assert heard.of("source_trouble", "source_trouble") == [("no inotify",), (None,)]


async def test_a_hold_and_drift_are_heard_of_when_they_come_and_go(serving):
    world = await serving()
    await world.apply(world.model("a", max_batch=7))
    lookout, heard = Lookout(world.reconciler, world.steering), Heard(world)
    world.steering.hold("uid:7")
    lookout.tick()
    await reached(world.steering.rollback(None, "uid:7"))
    lookout.tick()
    world.steering.resume("uid:7")
    lookout.tick()
    told = [(kind, data[kind]) for kind, data in heard.all() if kind in ("hold", "drift")]
    assert [kind for kind, _ in told] == ["hold", "drift", "hold"]
    assert (told[0][1]["by"], told[1][1]["receipt"], told[2][1]) == ("uid:7", "r3", None)
