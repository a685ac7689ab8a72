"""What a plan says of the bytes where replicas come, go and return, device by device."""

import os
from dataclasses import replace

import pytest
from support.imagined import Imagined
from support.played.world import collect, document, failure_of, reached, until

from halogend.control.present import Returnable
from halogend.control.receipts import Milestone
from halogend.control.strategy import Now, decide

SIZES = {f"/m/{name}.gguf": {"weights": "4GiB", "working": "512MiB"} for name in ("old", "new")}
GENERATION = (4 << 30) + (512 << 20) + (1 << 30)


def _text(*devices, file="old", cores=("0", "1", "2")):
    parts = ", ".join(f"{{id: 'cpu:{index}', cores: '{each}', reserve: 1MiB}}" for index, each in enumerate(cores))
    on = ", ".join(f"'cpu:{each}'" for each in devices)
    model = f"{{name: m, model: /m/{file}.gguf, kv_cache_bytes: 1GiB, exec_mode: data_parallel, device: [{on}]}}"
    return f"apiVersion: halogen.dev/v1alpha1\ndevices: [{parts}]\nmodels: [{model}]\n"


class There:
    """`m` serves as a text says, on a machine with room for two generations on each of three devices, or for one."""

    def __init__(self, text, memory="60GiB"):
        self.world = Imagined(memory=memory, reserve=0, foreign=0, checkpoints=SIZES)
        self.document, targets = self.world.targets(text)
        standing = self.world.serving(targets)
        self.now = Now(standing.goals, standing.held, standing.present)

    def drains(self, name, text, device, *, of_what_serves):
        """A replica of what `text` asks for is on its way out."""
        target = self.world.targets(text)[1]["m"].seen_from(f"cpu:{device}")
        back = Returnable(name, target.alone if of_what_serves else target, target.holding.kv_bytes)
        there = self.now.present["m"]
        more = {"leaving": (*there.leaving, back)} if of_what_serves else {"returnable": (*there.returnable, back)}
        there = replace(there, draining=(*there.draining, name), **more)
        self.now = Now(self.now.goals, {**self.now.held, name: target.holding}, {"m": there})

    def decide(self, text):
        """The problems, what loads take as they begin, and by number of a device its bytes: now, at the most, after."""
        document, targets = self.world.targets(text)
        plan, bytes_ = decide(self.now, targets, (self.document, document))
        shown = {
            int(each.device[-1]): tuple(use.total_bytes // GENERATION for use in (each.now, each.peak, each.after))
            for each in bytes_.devices
        }
        return plan.problems, dict(bytes_.starts), shown


def test_a_replica_that_is_taken_back_is_not_loaded_where_another_goes():
    there = There(_text(1, 2))
    there.drains("m#1/9", _text(0, 1, 2), 0, of_what_serves=True)
    problems, starts, shown = there.decide(_text(0, 1))
    assert (problems, starts) == ((), {})
    assert shown == {0: (1, 1, 1), 1: (1, 1, 1), 2: (1, 1, 0)}


def test_what_is_loaded_beside_one_that_is_taken_back_is_counted():
    four = ("0", "1", "2", "3")
    there = There(_text(1, 2, cores=four), memory="80GiB")
    there.drains("m#1/9", _text(0, 1, 2, cores=four), 0, of_what_serves=True)
    problems, starts, shown = there.decide(_text(0, 1, 3, cores=four))
    assert (problems, starts["m"].holding.device) == ((), "cpu:3")
    assert shown == {0: (1, 1, 1), 1: (1, 1, 1), 2: (1, 1, 0), 3: (0, 1, 1)}


@pytest.mark.parametrize("devices", [(1, 2), (2, 1)])
def test_a_device_for_another_is_a_load_there_in_whatever_order(devices):
    problems, starts, shown = There(_text(0, 1)).decide(_text(*devices))
    assert (problems, starts["m"].holding.device) == ((), "cpu:2")
    assert shown == {0: (1, 1, 0), 1: (1, 1, 1), 2: (0, 1, 1)}


def test_where_one_replica_would_move_to_other_cores_all_are_loaded_anew():
    problems, starts, shown = There(_text(0, 1, 2)).decide(_text(0, 1, 2, cores=("0", "3", "2")))
    assert problems == ()
    assert starts["m"].holding.total_bytes == 3 * GENERATION
    assert shown == dict.fromkeys(range(3), (1, 2, 1))


def test_a_generation_that_is_taken_back_comes_with_all_its_replicas():
    """The document asked for another file on fewer devices, and is taken back: there is no room to load anything."""
    there = There(_text(0, file="new"), memory="40GiB")
    for number in (0, 1):
        there.drains(f"m#0/{number}", _text(0, 1), number, of_what_serves=False)
    problems, starts, shown = there.decide(_text(0, 1))
    assert (problems, starts) == ((), {})
    assert shown == {0: (2, 2, 1), 1: (1, 1, 1)}


def test_of_a_generation_that_is_taken_back_the_replica_stays_that_is_wanted():
    there = There(_text(2, file="new"))
    for number in (0, 1):
        there.drains(f"m#0/{number}", _text(0, 1), number, of_what_serves=False)
    problems, starts, shown = there.decide(_text(0))
    assert (problems, starts) == ((), {})
    assert shown == {0: (1, 1, 1), 1: (1, 1, 0), 2: (1, 1, 0)}


# --- and what comes of it ------------------------------------------------------------------------------

THREE = [{"id": "cpu:0", "cores": "0"}, {"id": "cpu:1", "cores": "1"}, {"id": "cpu:2"}]


async def _apply(world, *devices, **how):
    return await world.apply(_copied(world, *devices), devices=THREE, **how)


def _copied(world, *devices):
    return world.model("a", exec_mode="data_parallel", device=[f"cpu:{each}" for each in devices])


@pytest.mark.skipif(os.sched_getaffinity(0) < {0, 1}, reason="needs the cores 0 and 1")
async def test_a_swap_of_replicas_while_one_drains_takes_what_was_foretold(world):
    there = await world()
    assert (await _apply(there, 0, 1, 2)).outcome == "applied"
    slow = there.stage.hold("generate", prompt="slow")
    answers = [await there.submit("a", "slow", 5) for _ in range(3)]
    for number in (1, 2, 3):
        (await slow.reached(number)).say("token")
    await until(lambda: all(each.has_token for each in answers), "tokens have come")
    dropped = await _apply(there, 1, 2, until=Milestone.SERVING)
    there.text = document(_copied(there, 0, 1), devices=THREE)
    plan = await there.steering.plan()
    held = {each.device: each.total_bytes for each in there.house.ledger.held().values()}
    assert len(held) == 3
    assert {each["device"]: each["peak"]["total_bytes"] for each in plan["devices"]} == held
    swapped = there.edit(there.text)
    await until(lambda: swapped.has(Milestone.SERVING), "it is swapped")
    assert (swapped.outcome, there.stage.loads()) == ("applied", 3)
    slow.release("finish")
    assert [failure_of(await collect(each)) for each in answers] == [None] * 3
    await reached(dropped)
    await reached(swapped)
    after = {each["device"]: each["after"]["total_bytes"] for each in plan["devices"]}
    assert {device: there.house.ledger.taken_bytes(device) for device in after} == after
