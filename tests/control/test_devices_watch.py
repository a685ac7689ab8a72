"""Hot devices: their engines rest, and everybody hears of it."""

import asyncio
import contextlib
from dataclasses import replace

import pytest
from support.fake_devices import accelerator, host, nvidia, nvml, seen
from support.live import alive
from support.played.world import document, reached, until

from halogend.control.devices import Look
from halogend.control.devices_watch import DeviceWatch
from halogend.control.machine import Machine, probe

GIB = 1 << 30


class Watched:
    """A world whose devices are as hot as the test says."""

    def __init__(self, there, now=100.0):
        self.there, self.now = there, now
        self.watch = DeviceWatch(there.reconciler.machine, there.house, self._document, clock=lambda: self.now)

    def _document(self):
        accepted = self.there.reconciler.accepted
        return None if accepted is None else accepted.document

    def feel(self, temperature_c, seconds=1.0):
        self.now += seconds
        self.watch.take(Look(devices=(seen(temperature_c),)))
        return self.watch.view()["cuda:0"]["rest"]

    async def told(self, share):
        """The engine has heard it."""
        shares = await until(
            lambda: [call.detail["share"] for call in self.there.stage.at("rest", "engine")][-1:], "it is told"
        )
        await until(
            lambda: self.there.stage.at("rest", "engine")[-1].detail["share"] == pytest.approx(share), f"{shares}"
        )


@pytest.fixture
async def hot(world):
    """A factory: a world with one model on an accelerator, whose heat the test decides."""

    async def make(**device):
        there = await world(8 * GIB, accelerators=(accelerator(),))
        devices = [{"id": "h100:0", **device}] if device else []
        await reached(there.edit(document(there.model("a", device="cuda:0"), devices=devices)))
        assert there.unit("a").serving is not None
        return Watched(there)

    return make


async def test_over_the_limit_engines_rest_and_under_it_they_do_not(hot):
    """The vendor's slowdown temperature less 5 degrees."""
    it = await hot()
    assert it.feel(87.0) == 0.0
    assert it.feel(90.0) == pytest.approx(0.03)
    await it.told(0.03)
    assert it.feel(97.0, seconds=2.0) == pytest.approx(0.23)
    await it.told(0.23)
    for _ in range(30):
        it.feel(60.0)
    await it.told(0.0)


async def test_nothing_is_slowed_down_silently(hot):
    it = await hot()
    began = it.there.house.events.last_id
    it.feel(97.0)
    assert {
        'halogen_device_temperature_celsius{device="cuda:0"} 97.0',
        'halogen_device_temperature_limit_celsius{device="cuda:0"} 87.0',
        'halogen_device_rest_ratio{device="cuda:0"} 0.1',
        'halogen_device_clock_hertz{device="cuda:0"} 1.98e+09',
    } <= it.there.series("device_")
    assert it.there.house.events.last_id != began
    it.feel(None)
    assert not it.there.series("device_temperature_celsius"), "what is not told is no number"
    assert it.watch.view()["cuda:0"]["rest"] == 0.1, "and changes nothing"


async def test_the_limit_is_live_and_stated_by_any_of_the_device_s_names(hot):
    it = await hot(thermal=70)
    assert it.watch.view()["cuda:0"]["limit_c"] == 70.0
    assert it.feel(75.0) == pytest.approx(0.05)
    devices = [{"id": "cuda:0", "thermal": "off"}]
    receipt = await reached(it.there.edit(document(it.there.model("a", device="cuda:0"), devices=devices)))
    assert receipt.outcome in ("applied", "unchanged")
    assert it.there.stage.loads() == 1, "nothing is loaded anew for it"
    assert it.feel(110.0) == 0.0
    await it.told(0.0)


async def test_what_is_not_heard_of_any_more_is_not_shown_and_rests_on(hot):
    it = await hot()
    rest = it.feel(97.0)
    it.watch.take(Look(troubles=("the drivers say nothing",)))
    view = it.watch.view()["cuda:0"]
    assert (view["is_told"], view["temperature_c"], view["rest"]) == (False, None, rest)
    assert it.watch.troubles() == ["the drivers say nothing"]
    assert not it.there.series("device_temperature_celsius")


async def test_a_late_look_counts_for_no_more_than_a_few_seconds(hot):
    it = await hot()
    assert it.feel(90.0, seconds=600.0) == pytest.approx(0.15)


async def test_engines_of_other_devices_go_on(world):
    there = await world(8 * GIB, accelerators=(accelerator(),))
    await there.apply(there.model("a", device="cpu:0"), there.model("b", device="cuda:0"))
    Watched(there).feel(95.0, seconds=2.0)
    calls = await until(lambda: there.stage.at("rest", "engine"), "one is told")
    assert {call.model for call in calls} == {"b"}


async def test_an_engine_whose_process_is_not_there_yet_is_told_once_it_is(hot):
    """Its device is as hot as before: the share is the same."""
    it = await hot()
    share = it.feel(95.0, seconds=2.0)
    await it.told(share)
    serving = it.there.unit("a").serving
    newcomer = serving.make(serving.spec)
    newcomer.set_rest(share)
    await newcomer.start()
    told = len(it.there.stage.at("rest", "engine"))
    newcomer.set_rest(share)
    await until(lambda: len(it.there.stage.at("rest", "engine")) == told + 1, "it is told")
    newcomer.set_rest(share)
    await newcomer.stop()
    assert len(it.there.stage.at("rest", "engine")) == told + 1


async def test_where_there_is_no_accelerator_nothing_is_watched(world):
    there = await world()
    async with asyncio.timeout(20):
        await DeviceWatch(there.reconciler.machine, there.house, lambda: None).run()


async def test_the_drivers_are_followed_by_a_process_that_ends_with_the_watch(world, tmp_path):
    library, root = nvml(tmp_path / "nvml"), tmp_path / "root"
    (library.parent / "temperature").write_text("61")
    host(root)
    nvidia(root)
    there = await world()
    house = replace(there.house, host=replace(there.house.host, root=root))
    machine: Machine = probe(root, look=lambda _: Look(), builds=lambda: frozenset({"cuda"}))
    machine = replace(machine, devices=(*machine.devices, accelerator()))
    watch = DeviceWatch(machine, house, lambda: None, str(library))
    assert not watch.view()["cuda:0"]["is_told"]
    running = asyncio.create_task(watch.run())
    await until(lambda: watch.view()["cuda:0"]["temperature_c"] == 61.0, "it is told")
    (library.parent / "temperature").write_text("64")
    await until(lambda: watch.view()["cuda:0"]["temperature_c"] == 64.0, "it is told again")
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert not [pid for pid in there.children() if alive(pid)]
