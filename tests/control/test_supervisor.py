"""What the service manager hears at each point of the daemon's life, over a real datagram socket."""

import asyncio
import itertools
import os
import signal

import pytest
from support.played.world import document, reached, until
from support.service_manager import service_manager

from halogend.control.notify import Notifier
from halogend.control.receipts import Milestone
from halogend.control.supervisor import Supervisor


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def manager(tmp_path):
    with service_manager(tmp_path) as made:
        yield made


@pytest.fixture
def supervised(manager):
    """A factory: the supervisor of a world, with a clock of its own."""
    notifiers = []

    def make(world, watchdog_s=None):
        clock = Clock()
        notifiers.append(Notifier(manager.address, watchdog_s, clock))
        return Supervisor(world.reconciler, notifiers[-1], clock), clock

    yield make
    for each in notifiers:
        each.close()


def _statuses(manager):
    return [each["STATUS"] for each in manager.heard() if "STATUS" in each]


async def test_the_watchdog_is_fed_before_half_of_its_time_is_over(world, manager, supervised):
    supervisor, clock = supervised(await world(), watchdog_s=10.0)
    fed = []
    for _ in range(60):
        supervisor.tick()
        fed += [clock.now for each in manager.heard() if "WATCHDOG" in each]
        clock.now += supervisor.every_s
    gaps = [after - before for before, after in itertools.pairwise(fed)]
    assert gaps
    assert max(gaps) <= 5.0
    assert min(gaps) > 2.5, "it is not fed at every turn"


@pytest.mark.parametrize(("watchdog_s", "every_s"), [(0.5, 0.25), (60.0, 1.0), (None, 1.0)])
async def test_s11_a_short_watchdog_makes_the_loop_turn_faster(world, supervised, watchdog_s, every_s):
    assert supervised(await world(), watchdog_s)[0].every_s == every_s


async def test_without_a_watchdog_nothing_is_fed(world, manager, supervised):
    supervisor, _ = supervised(await world())
    supervisor.tick()
    assert not [each for each in manager.heard() if "WATCHDOG" in each]


async def test_s1_a_wedged_engine_does_not_starve_the_watchdog(serving, manager, supervised):
    world = await serving()
    supervisor, clock = supervised(world, watchdog_s=2.0)
    os.kill(world.unit("a").serving.pids["engine"], signal.SIGSTOP)
    for _ in range(3):
        clock.now += 1.0
        supervisor.tick()
    os.kill(world.unit("a").serving.pids["engine"], signal.SIGCONT)
    assert len([each for each in manager.heard() if "WATCHDOG" in each]) == 3


async def test_a_status_is_said_once_and_again_when_it_changes(world, manager, supervised):
    world = await world()
    supervisor, _ = supervised(world)
    supervisor.tick()
    supervisor.tick()
    assert _statuses(manager) == ["reading the document"]
    await world.apply(world.model("a"))
    supervisor.tick()
    assert _statuses(manager) == ["serving a"]


async def test_s6_a_load_that_moves_extends_the_time_and_one_that_stands_does_not(world, manager, supervised):
    world = await world()
    supervisor, _ = supervised(world)
    load = world.stage.hold("load", role="engine")
    receipt = world.edit(document(world.model("a", load={"progress_timeout_s": 7})))
    call = await load.reached()
    pulse = world.unit("a").loading.pulses()["engine"]
    await until(lambda: pulse.stage == "loading", "it is heard of")
    for _ in range(3):
        seen = pulse.counter
        supervisor.tick()
        await until(lambda seen=seen: pulse.counter > seen, "it moves")
    heard = [each["EXTEND_TIMEOUT_USEC"] for each in manager.heard() if "EXTEND_TIMEOUT_USEC" in each]
    assert heard == ["37000000"] * 3, "the model's own limit, and then some: the daemon's verdict comes first"
    call.say("stick")
    await until(lambda: pulse.still_s(asyncio.get_running_loop().time()) > 0.6, "it stands still")
    supervisor.tick()
    manager.heard()
    supervisor.tick()
    assert manager.heard() == []
    load.release()
    await reached(receipt)
    supervisor.tick()
    assert [each for each in manager.heard() if "EXTEND_TIMEOUT_USEC" in each] == []


async def test_the_status_of_a_load_says_how_far_it_is(world, manager, supervised):
    world = await world()
    supervisor, _ = supervised(world)
    load = world.stage.hold("load", role="engine")
    receipt = world.edit(document(world.model("a")))
    await load.reached()
    pulse = world.unit("a").loading.pulses()["engine"]
    await until(lambda: pulse.stage == "loading", "it is heard of")
    pulse.done, pulse.total = 430 << 20, 1000 << 20
    supervisor.tick()
    assert _statuses(manager) == ["serving 0 of 1 model; loading a: 43 % (430 MiB of 1,000 MiB)"]
    load.release()
    await reached(receipt)


# --- start ------------------------------------------------------------------------------------------


async def test_ready_comes_when_the_first_model_serves(world, manager, supervised):
    world = await world()
    supervisor, _ = supervised(world)
    load = world.stage.hold("load", role="engine", model="b")
    receipt = world.edit(document(world.model("a"), world.model("b")))
    assert await supervisor.until_started()
    (ready,) = manager.heard()
    assert ready["READY"] == "1"
    assert ready["STATUS"].startswith("serving 1 of 2 models")
    load.release()
    await reached(receipt)


async def test_ready_waits_for_all_where_the_document_says_so(world, manager, supervised):
    world = await world()
    supervisor, _ = supervised(world)
    load = world.stage.hold("load", role="engine", model="b")
    receipt = world.edit(document(world.model("a"), world.model("b"), server={"ready": "all"}))
    starting = asyncio.create_task(supervisor.until_started())
    await load.reached()
    await until(lambda: world.unit("a").alive(), "one serves")
    assert manager.words() == []
    load.release()
    assert await starting
    assert manager.words() == ["READY"]
    await reached(receipt)


async def test_what_could_be_had_counts_where_not_all_could(world, manager, supervised):
    world = await world()
    supervisor, _ = supervised(world)
    world.stage.order("load", "fail", where={"role": "engine", "model": "b"}, code="HRT-1016", message="no memory")
    world.edit(document(world.model("a"), world.model("b"), server={"ready": "all"}))
    assert await supervisor.until_started()
    (ready,) = manager.heard()
    assert ready["READY"] == "1"
    assert "b: " in ready["STATUS"]
    assert "no memory" in ready["STATUS"]


async def test_a_start_where_nothing_could_be_loaded_is_none(world, manager, supervised):
    world = await world()
    supervisor, _ = supervised(world)
    world.stage.order("load", "fail", where={"role": "engine"}, code="HRT-1016", message="no memory")
    world.edit(document(world.model("a"), world.model("b")))
    assert not await supervisor.until_started()
    assert manager.heard() == []


async def test_a_later_edit_may_save_the_start(world, manager, supervised):
    world = await world()
    supervisor, _ = supervised(world)
    load = world.stage.hold("load", role="engine", model="a")
    world.edit(document(world.model("a")))
    await load.reached()
    starting = asyncio.create_task(supervisor.until_started())
    await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    assert await starting
    assert manager.words() == ["READY"]


async def test_no_model_is_as_much_as_was_asked_for(world, manager, supervised):
    world = await world()
    supervisor, _ = supervised(world)
    await world.apply()
    assert await supervisor.until_started()
    (ready,) = manager.heard()
    assert ready == {"READY": "1", "STATUS": "no model is asked for"}


# --- reloads that the manager asked for ---------------------------------------------------------------


async def started(world, supervised, manager):
    supervisor, clock = supervised(world)
    assert await supervisor.until_started()
    manager.heard()
    return supervisor, clock


async def test_s5_a_good_reload_is_announced_with_its_time_and_closed(serving, manager, supervised):
    world = await serving()
    supervisor, clock = await started(world, supervised, manager)
    clock.now = 4321.5
    supervisor.hung_up(world.edit(document(world.model("a", "b")), "signal"))
    (first,) = manager.heard()
    assert (first["RELOADING"], first["MONOTONIC_USEC"]) == ("1", "4321500000")
    last = await until(manager.heard, "its end is told")
    assert last == [{"READY": "1", "STATUS": "serving a"}]


async def test_s5_a_refused_reload_is_closed_too_and_says_why(serving, manager, supervised):
    world = await serving()
    supervisor, _ = await started(world, supervised, manager)
    for _ in range(2):
        supervisor.hung_up(world.edit("models: [", "signal"))
        assert manager.words() == ["RELOADING"]
        (last,) = await until(manager.heard, "its end is told")
        assert last["READY"] == "1"
        assert last["STATUS"].startswith("serving a; last edit (r")
        assert "rejected: config.yaml:1:" in last["STATUS"]


async def test_a_failed_reload_is_closed_too(serving, manager, supervised):
    world = await serving()
    supervisor, _ = await started(world, supervised, manager)
    world.stage.order("load", "fail", where={"role": "engine", "model": "b"}, code="HRT-1016", message="no memory")
    supervisor.hung_up(world.edit(document(world.model("a", "b")), "signal"))
    assert manager.words() == ["RELOADING"]
    (last,) = await until(manager.heard, "its end is told")
    assert last["READY"] == "1"
    assert "failed: a: " in last["STATUS"]


async def test_a_storm_is_ready_once_the_last_is_decided(serving, manager, supervised):
    world = await serving()
    supervisor, _ = await started(world, supervised, manager)
    load = world.stage.hold("load", role="engine", model="b")
    receipts = [world.edit(document(world.model("a", "b")), "signal") for _ in range(5)]
    for receipt in receipts:
        supervisor.hung_up(receipt)
    await load.reached()
    assert manager.words() == ["RELOADING"] * 5
    load.release()
    await asyncio.gather(*(reached(receipt) for receipt in receipts))
    assert await until(manager.words, "the end is told") == ["READY"]


async def test_reloads_of_others_are_not_announced(serving, manager, supervised):
    world = await serving()
    supervisor, _ = await started(world, supervised, manager)
    await world.apply(world.model("a", "b"))
    supervisor.tick()
    assert manager.words() == []


async def test_whoever_hears_of_a_rejection_finds_it_in_the_status(serving, manager, supervised):
    world = await serving()
    supervisor, _ = await started(world, supervised, manager)
    receipt = world.edit("models: [")
    supervisor.follow(receipt)
    await reached(receipt)
    (told,) = await until(manager.heard, "it is told without a tick")
    assert "rejected: config.yaml:1:" in told["STATUS"]


async def test_a_hangup_before_the_start_is_over_does_not_end_it(world, manager, supervised):
    world = await world()
    supervisor, _ = supervised(world)
    load = world.stage.hold("load", role="engine")
    world.edit(document(world.model("a")))
    await load.reached()
    again = world.edit(document(world.model("a")), "signal")
    supervisor.hung_up(again)
    assert manager.words() == []
    load.release()
    await reached(again)
    assert manager.words() == []
    assert await supervisor.until_started()
    assert manager.words() == ["READY"]


# --- stop ---------------------------------------------------------------------------------------------


async def test_the_stop_is_told_with_what_it_waits_for(serving, manager, supervised):
    world = await serving()
    supervisor, _ = await started(world, supervised, manager)
    slow = world.stage.hold("generate", prompt="slow")
    answer = await world.submit("a", "slow", 5)
    await slow.reached()
    supervisor.ends(45.0)
    (told,) = manager.heard()
    assert told == {"STOPPING": "1", "EXTEND_TIMEOUT_USEC": "45000000", "STATUS": "stopping: 1 request is not done"}
    answer.close()
    supervisor.tick()
    assert _statuses(manager) == ["stopping: 0 requests are not done"]
    supervisor.hung_up(world.edit(document(world.model("a")), "signal"))
    assert manager.heard() == []


async def test_a_stop_of_its_own_keeps_its_reason(serving, manager, supervised):
    supervisor, _ = supervised(await serving())
    supervisor.ends(45.0, "a: no memory")
    supervisor.tick()
    assert _statuses(manager) == ["a: no memory", "a: no memory"]


async def test_a_fault_of_its_own_is_logged_and_the_loop_goes_on(world, manager, supervised, monkeypatch):
    supervisor, _ = supervised(await world(), watchdog_s=0.02)
    whole, supervisor._reconciler = supervisor._reconciler, None
    loop = asyncio.create_task(supervisor.run())
    await asyncio.sleep(0)
    supervisor._reconciler = whole
    await until(lambda: [each for each in manager.heard() if "STATUS" in each], "it goes on")
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
