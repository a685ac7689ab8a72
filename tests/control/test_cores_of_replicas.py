"""With how many threads a replica is loaded: its part of the cores, whoever serves or comes beside it."""

import os
import signal
from dataclasses import replace

import pytest
from support.fake_devices import accelerator
from support.played.world import document, reached, until

from halogend.control import mend

DEVICES = ["cuda:0", "cuda:1"]  # engines there run on all four cores of the played machine
REFUSED = {"do": "fail", "code": "HRT-1016", "message": "no memory"}


@pytest.fixture
async def pair(world):
    """A world in which `a` serves on two accelerators, which have room for so many generations of it."""

    async def make(room):
        there = await world(accelerators=tuple(replace(accelerator(), id=each) for each in DEVICES))
        there.text = _text(there)
        (device, *_) = [each for each in (await there.steering.plan())["devices"] if each["device"] in DEVICES]
        memory = int(device["after"]["total_bytes"] * room)
        devices = [{"id": each, "memory": memory, "reserve": "1MiB"} for each in DEVICES]
        receipt = await reached(there.edit(_text(there, devices=devices)))
        assert receipt.outcome == "applied", receipt.view()
        await until(there.is_quiet, "all is quiet")
        return there, devices

    return make


def _text(world, *others, file=None, **top):
    return document(world.model("a", file, exec_mode="data_parallel", device=DEVICES), *others, **top)


def _beside_b(world, devices, file=None):
    """A model on the host, which is on the same cores."""
    return _text(world, world.model("b", device="cpu:0"), file=file, devices=devices)


def _threads(world):
    return [each.spec.engine.threads for each in world.unit("a").serving.replicas]


async def test_those_that_are_loaded_together_share(pair):
    world, _ = await pair(3)
    assert _threads(world) == [2, 2]


async def test_one_that_is_mended_is_loaded_with_its_part(pair, monkeypatch):
    monkeypatch.setattr(mend, "BACKOFF_S", (0.0,))
    world, devices = await pair(3)
    assert (await reached(world.edit(_beside_b(world, devices)))).outcome == "applied"
    serving = world.unit("a").serving
    dead = serving.replicas[1]
    back = world.stage.hold("load", role="engine", model="a")
    os.kill(dead.pids["engine"], signal.SIGKILL)
    await back.reached()
    there = {serving.replicas[0], world.unit("b").serving.replicas[0]}
    assert set(world.house.cores._engines) == there  # the dead one takes no core of those that serve
    back.release()
    await until(lambda: serving.replicas[1] is not dead and serving.replicas[1].is_alive, "another is in its place")
    assert _threads(world) == [2, 1]


async def test_one_that_is_rolled_back_is_loaded_with_its_part(pair):
    world, devices = await pair(1.5)
    assert (await reached(world.edit(_beside_b(world, devices)))).outcome == "applied"
    world.stage.order("load", where={"role": "engine", "model": "x"}, times=1, **REFUSED)
    receipt = await reached(world.edit(_beside_b(world, devices, "x")))
    assert receipt.models["a"].outcome == "failed"
    assert "roll_back" in [step.name for step in receipt.models["a"].steps]
    await until(lambda: all(each.is_alive for each in world.unit("a").serving.replicas), "the old ones serve again")
    assert sorted(_threads(world)) == [1, 2]
