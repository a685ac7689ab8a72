"""A spare engine process: who takes it, what ends it, and that nobody else notices."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.live import alive
from support.played.world import GIB, document, failure_of, reached, until

from halogend.control import spare
from halogend.control.process import hold_to
from halogend.control.spare import NAME, SPARE

MIB = 1 << 20
TRITON = {"kernels": {"backend": "triton"}}


@pytest.fixture
async def spared(serving, monkeypatch):
    """A world in which `a` serves, and a spare worker is kept: `at_once` until it is ready."""
    monkeypatch.setattr(spare, "_LOOK_S", 0.02)
    tasks = []

    async def make(memory_bytes=64 * GIB, *, at_once=True, **fields):
        there = await serving(memory_bytes, **fields)
        tasks.append(asyncio.create_task(there.house.spare.keep(there.house.is_quiet)))
        if at_once:
            await _ready(there)
        return there

    yield make
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _ready(there, besides=None):
    """The process that stands by, once it is another than that one."""

    def pid():
        view = there.status()["spare_worker"]
        return view["pid"] if view["state"] == "ready" and view["pid"] != besides else None

    return await until(pid, "a spare worker is ready")


async def _gone(there, pid):
    """Why there is none any more."""
    await until(lambda: not alive(pid) and NAME not in there.house.ledger.view(), "it is gone")
    return there.status()["spare_worker"]["reason"]


def _load(receipt, model="a"):
    (step,) = [each for each in receipt.models[model].steps if each.name == "load"]
    return step.detail


def _engine(there, model="a"):
    return there.unit(model).serving.pids["engine"]


async def _alone(serving, **fields):
    """What `a` is, in a world of its own that is over."""
    there = await serving(**fields)
    await there.stop()
    return there.unit("a").active


async def test_a_swap_takes_it_and_the_next_one_stands_by_after_the_change(spared):
    there = await spared()
    pid = await _ready(there)
    loading = there.stage.hold("load", role="engine", model="b")
    receipt = there.edit(document(there.model("a", "b")))
    await loading.reached()
    view = there.status()["spare_worker"]
    assert (view["state"], view["reason"], view["pid"]) == ("none", "a change is on its way", None)
    loading.release()
    await reached(receipt)
    assert _load(receipt)["spare_worker"] == "a#2"
    assert _engine(there) == pid
    assert failure_of(await there.ask("a")) is None
    assert await _ready(there, besides=pid)
    assert there.series("spare_worker") == {"halogen_spare_worker 1.0", "halogen_spare_worker_loads_total 1.0"}


async def test_its_bytes_are_in_the_ledger_and_the_plan_and_count_against_nobody(spared):
    there = await spared()
    ledger, (device,) = there.house.ledger, (await there.reconciler.plan())["devices"]
    assert ledger.view()[NAME]["working"] == SPARE.working_bytes
    assert there.status()["memory"][NAME]["device"] == "cpu:0"
    assert ledger.by_use("cpu:0")["spare"] == device["spare_bytes"] == SPARE.total_bytes
    assert there.steering.ledger()["devices"]["cpu:0"]["held_bytes"] == device["now"]["total_bytes"] + SPARE.total_bytes
    assert ledger.taken_bytes("cpu:0") == device["now"]["total_bytes"] == device["after"]["total_bytes"]
    assert any('use="spare"' in line for line in there.series("memory_bytes"))


async def test_a_new_model_that_fits_only_without_it_takes_it(spared, serving):
    needs = (await _alone(serving)).needs_bytes
    there = await spared(2 * needs + SPARE.total_bytes // 2)
    pid = await _ready(there)
    receipt = await there.apply(there.model("a"), there.model("b"))
    assert receipt.outcome == "applied"
    assert (_load(receipt, "b")["spare_worker"], _engine(there, "b")) == ("b#1", pid)
    await until(lambda: "not left" in (there.status()["spare_worker"]["reason"] or ""), "there is no room for another")


async def test_a_load_that_cannot_use_it_and_fits_only_without_it_ends_it(spared, serving):
    needs = (await _alone(serving, **TRITON)).needs_bytes
    there = await spared(2 * needs + SPARE.total_bytes // 2)
    pid = await _ready(there)
    receipt = await there.apply(there.model("a", **TRITON))
    assert receipt.outcome == "applied"
    assert "spare_worker" not in _load(receipt)
    await _gone(there, pid)
    assert await _ready(there, besides=pid), "the old generation gave its memory back"


async def test_a_pool_that_grows_ends_it_and_one_that_shrinks_brings_it_back(spared, serving):
    needs = (await _alone(serving, max_batch=4096)).holding.total_bytes
    there = await spared(needs + SPARE.total_bytes + 20 * MIB, max_batch=4096)
    pid = await _ready(there)
    receipt = await there.apply(there.model("a", max_batch=4096, kv_cache_bytes="100MiB"))
    assert receipt.outcome == "applied"
    assert there.unit("a").serving.engine_limits.pool_bytes > 90 * MIB
    assert "not left" in await _gone(there, pid)
    await there.apply(there.model("a", max_batch=4096))
    assert await _ready(there)


async def test_its_death_is_noticed_by_nobody_and_the_next_change_goes_without_it(spared):
    there = await spared()
    engine, pid = _engine(there), await _ready(there)
    os.kill(pid, signal.SIGKILL)
    assert "was ended by SIGKILL" in await _gone(there, pid)
    await until(lambda: "tried again in" in there.status()["spare_worker"]["reason"], "it says why there is none")
    assert (there.status()["settled"], _engine(there)) == (True, engine)
    receipt = await there.apply(there.model("a", "b"))
    assert receipt.outcome == "applied"
    assert "spare_worker" not in _load(receipt)
    there.house.spare._not_before = 0.0
    assert await _ready(there, besides=pid)


async def test_one_that_died_this_moment_goes_to_nobody(spared):
    there = await spared()
    pid = await _ready(there)
    os.kill(pid, signal.SIGKILL)
    while alive(pid):
        pass  # nobody has heard of it: the loop has not turned
    assert there.house.spare.give_to(there.house.make([there.unit("a").serving.spec], 9).replicas) is None


async def test_one_that_is_silent_goes_to_nobody_and_ends(spared):
    there = await spared()
    pid = await _ready(there)
    os.kill(pid, signal.SIGSTOP)
    there.house.spare._clock = lambda: time.monotonic() + 5.0
    receipt = await there.apply(there.model("a", "b"))
    assert "spare_worker" not in _load(receipt)
    assert alive(pid)
    there.house.spare._clock = lambda: time.monotonic() + 20.0
    assert "said nothing for" in await _gone(there, pid)


async def test_one_of_another_version_goes_to_nobody_and_ends(spared):
    there = await spared(at_once=False)
    there.house.host.more["PLAYED_VERSION"] = "99"
    await until(lambda: "spoke version 99" in (there.status()["spare_worker"]["reason"] or ""), "it is ended")


async def test_one_with_another_environment_is_left_alone_and_then_made_anew(spared):
    there = await spared()
    pid = await _ready(there)
    receipt = await there.apply(there.model("a", **TRITON))
    assert "spare_worker" not in _load(receipt)
    second = await _ready(there, besides=pid)
    assert not alive(pid)
    receipt = await there.apply(there.model("a", "b", **TRITON))
    assert (_load(receipt)["spare_worker"], _engine(there)) == ("a#3", second)


async def test_a_restart_takes_it_whatever_number_of_threads_it_was_started_with(spared):
    there = await spared()
    pid = await _ready(there)
    os.kill(_engine(there), signal.SIGKILL)
    await until(lambda: there.unit("a").alive() is not None and _engine(there) == pid, "it serves in its place")


async def test_a_load_that_fails_with_it_leaves_all_as_it_was(spared):
    there = await spared()
    engine, pid = _engine(there), await _ready(there)
    there.stage.order("load", "fail", where={"role": "engine", "model": "b"}, code="HRT-1016", message="no memory")
    receipt = await there.apply(there.model("a", "b"))
    assert (receipt.outcome, _load(receipt)["spare_worker"]) == ("failed", "a#2")
    assert _engine(there) == engine
    await _ready(there, besides=pid)
    assert not alive(pid)
    assert failure_of(await there.ask("a")) is None


async def test_a_load_that_is_superseded_ends_it(spared):
    there = await spared()
    pid = await _ready(there)
    loading = there.stage.hold("load", role="engine", model="b")
    there.edit(document(there.model("a", "b")))
    assert (await loading.reached()).pid == pid
    receipt = await there.apply(there.model("a", "c"))
    assert receipt.outcome == "applied"
    assert not alive(pid)


async def test_it_is_switched_off_and_on_in_place(spared):
    there = await spared()
    pid = await _ready(there)
    receipt = await there.apply(there.model("a"), reload={"spare_worker": "off"})
    assert [each["field"] for each in receipt.server_changes] == ["reload.spare_worker"]
    assert await _gone(there, pid) == "reload.spare_worker is off"
    await there.apply(there.model("a"))
    assert await _ready(there)


async def test_a_change_that_switches_it_off_does_not_take_it(spared):
    there = await spared()
    pid = await _ready(there)
    receipt = await there.apply(there.model("a", "b"), reload={"spare_worker": "off"})
    assert "spare_worker" not in _load(receipt)
    await _gone(there, pid)


async def test_one_that_cannot_be_started_is_no_trouble(spared, monkeypatch):
    there = await spared(at_once=False)
    there.house.spare._last = None
    await until(lambda: there.status()["spare_worker"]["reason"] == "nothing was loaded yet", "it waits")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    there.house.spare._last = there.unit("a").serving.spec
    await until(lambda: "could not be started" in (there.status()["spare_worker"]["reason"] or ""), "it was tried")
    assert there.status()["settled"]


async def test_several_replicas_that_load_at_once_share_no_process(spared):
    there = await spared()
    pid = await _ready(there)
    devices = [{"id": "cpu:0", "cores": "0"}, {"id": "cpu:1", "cores": "1"}]
    copied = there.model("a", exec_mode="data_parallel", device=["cpu:0", "cpu:1"])
    receipt = await there.apply(copied, devices=devices)
    assert receipt.outcome == "applied"
    assert _load(receipt)["spare_worker"] == "a#2"
    engines = {replica.pids["engine"]: replica.spec.cores for replica in there.unit("a").serving.replicas}
    assert len(engines) == 2
    assert engines[pid] == (0,)
    for engine, cores in engines.items():
        assert {tuple(os.sched_getaffinity(thread)) for thread in _threads(engine)} == {cores}


def _threads(pid):
    return [int(each.name) for each in Path(f"/proc/{pid}/task").iterdir()]


def test_every_thread_of_a_process_is_held_to_the_cores():
    code = "import threading; e = threading.Event(); [threading.Thread(target=e.wait).start() for _ in range(3)]; "
    code += "print(flush=True); e.wait()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            before = os.sched_getaffinity(process.pid)
            hold_to(process.pid, ())
            assert os.sched_getaffinity(process.pid) == before
            hold_to(process.pid, {min(before)})
            threads = _threads(process.pid)
            assert len(threads) == 4
            assert all(os.sched_getaffinity(each) == {min(before)} for each in threads)
            with pytest.raises(OSError, match="Invalid argument"):
                hold_to(process.pid, {4000})
        finally:
            process.kill()
    with pytest.raises(FileNotFoundError):
        hold_to(process.pid, {0})
