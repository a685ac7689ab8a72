"""A spare engine process: who takes it, what ends it, and that nobody else notices."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from support.live import alive
from support.played.world import GIB, document, failure_of, reached, until

from halogend.control import planning, spare
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
    there.house.spare.expect(there.unit("a").serving.spec.engine_environ(there.house.host))
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
    there.house.spare._sought = None
    await until(lambda: there.status()["spare_worker"]["reason"] == "nothing was loaded yet", "it waits")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    there.house.spare._sought = there.unit("a").serving.spec.engine_environ(there.house.host)
    await until(lambda: "could not be started" in (there.status()["spare_worker"]["reason"] or ""), "it was tried")
    assert there.status()["settled"]


async def test_one_whose_cores_cannot_be_set_is_given_to_nobody_any_more(spared, monkeypatch):
    """It was killed half moved, and may not have ended when the next load asks."""
    there = await spared()
    pid = await _ready(there)
    answers = iter([OSError(errno.EINVAL, "Invalid argument"), None])

    def hold_once(pid, cores):
        if (error := next(answers)) is not None:
            raise error

    monkeypatch.setattr(spare, "hold_to", hold_once)
    give, given = there.house.spare.give_to, []

    def asked_twice(replicas):
        replicas = [*replicas]
        given.extend(give(replicas) for _ in range(2))

    monkeypatch.setattr(there.house.spare, "give_to", asked_twice)
    receipt = await there.apply(there.model("a", "b"))
    assert (receipt.outcome, given) == ("applied", [None, None])
    await _gone(there, pid)
    why = "could not be moved to the cores"
    await until(lambda: why in (there.status()["spare_worker"]["reason"] or ""), "the next one is tried later")


async def test_one_that_imports_yet_is_taken_and_told_before_its_hello(spared):
    there = await spared()
    importing = await _importing(there)
    pid = importing.calls[0].pid
    assert there.status()["spare_worker"]["state"] == "importing"
    receipt = there.edit(document(there.model("a", "b")))
    await until(lambda: "text" in (_loading(there) or {}), "the load has begun")
    assert _loading(there)["engine"] == pid
    assert not there.stage.at("load", "engine", "b"), "it waits for its Hello"
    importing.release()
    await reached(receipt)
    assert (receipt.outcome, _load(receipt)["spare_worker"], _engine(there)) == ("applied", "a#2", pid)


async def _importing(there):
    """The rule at which another one is held."""
    await _lose(there)
    rule = there.stage.hold("import")
    there.house.spare._not_before = 0.0
    await rule.reached()
    return rule


async def _lose(there):
    pid = await _ready(there)
    os.kill(pid, signal.SIGKILL)
    await _gone(there, pid)
    return pid


def _loading(there):
    generation = there.unit("a").loading
    return None if generation is None else generation.pids


async def test_one_that_imports_at_a_higher_niceness_than_a_load_goes_not_to_it(spared):
    there = await spared()
    importing = await _importing(there)
    assert importing.calls[0].detail["niceness"] == 19, "beside one that serves"
    spec = there.unit("a").serving.spec
    assert spec.engine.loader_niceness == 0, "it loaded when nobody served"
    assert not there.house.spare._fits(spec)
    assert there.house.spare._fits(_at(spec, 19))
    importing.release()
    await _ready(there)
    assert there.house.spare._fits(spec), "nothing of it is slow any more"


def _at(spec, niceness):
    return replace(spec, engine=msgspec.structs.replace(spec.engine, loader_niceness=niceness))


async def test_one_that_imports_may_be_silent_for_longer(spared):
    there = await spared()
    pid = (await _importing(there)).calls[0].pid
    os.kill(pid, signal.SIGSTOP)
    busy = _at(there.unit("a").serving.spec, 19)
    there.house.spare._clock = lambda: time.monotonic() + 9.0
    assert there.house.spare._fits(busy)
    there.house.spare._clock = lambda: time.monotonic() + 170.0
    assert not there.house.spare._fits(busy), "a load does not wait for it"
    await there.house.spare.look(is_quiet=True)
    assert alive(pid)
    there.house.spare._clock = lambda: time.monotonic() + 190.0
    assert "said nothing for" in await _gone(there, pid)


async def test_one_whose_imports_fail_says_why_and_the_next_load_goes_without_it(spared):
    there = await spared()
    pid = await _lose(there)
    there.stage.order("import", "fail", times=1, where={}, code="HRT-1010", message="torch is broken")
    there.house.spare._not_before = 0.0
    await until(lambda: "torch is broken" in (there.status()["spare_worker"]["reason"] or ""), "it says why")
    receipt = await there.apply(there.model("a", "b"))
    assert (receipt.outcome, "spare_worker" in _load(receipt)) == ("applied", False)
    there.house.spare._not_before = 0.0
    assert await _ready(there, besides=pid)


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


# --- the first of all --------------------------------------------------------------------------------


@pytest.fixture
async def starting(world, monkeypatch):
    """A factory: a world whose first document was read, and whose files do not answer until `looked` is set."""
    answers, tasks, gather = threading.Event(), [], planning.gather
    looks = threading.Event()

    def slow(*arguments):
        looks.set()
        answers.wait()
        return gather(*arguments)

    monkeypatch.setattr(planning, "gather", slow)

    async def make(*models, memory_bytes=64 * GIB, **top):
        there = await world(memory_bytes)
        there.looked = answers
        tasks.append(asyncio.create_task(there.house.spare.keep(there.house.is_quiet)))
        there.receipt = there.edit(document(*(there.model(**each) for each in models), **top))
        await until(looks.is_set, "its files are looked at")
        return there

    yield make
    answers.set()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_first_load_of_a_daemon_takes_one_that_imported_while_its_document_was_looked_at(starting):
    there = await starting({"name": "a"}, {"name": "b"})
    pid = await _ready(there)
    (call,) = there.stage.at("import", "engine")
    assert (call.pid, call.detail["niceness"]) == (pid, 0), "nobody serves who would come first"
    assert not there.receipt.models
    there.looked.set()
    await reached(there.receipt)
    taken = [_load(there.receipt, name).get("spare_worker") for name in ("a", "b")]
    assert sorted(filter(None, taken)) in (["a#1"], ["b#1"])
    assert pid in (_engine(there, "a"), _engine(there, "b"))


async def test_it_is_made_for_the_environment_of_the_first_model(starting):
    there = await starting({"name": "a", **TRITON})
    pid = await _ready(there)
    assert b"TRITON_INTERPRET=1" in _environ(pid)
    there.looked.set()
    await reached(there.receipt)
    assert (_load(there.receipt)["spare_worker"], _engine(there)) == ("a#1", pid)


DIVIDED = [{"id": "cpu:1", "cores": "0"}, {"id": "cpu:2", "cores": "1"}]
on_two_cores = pytest.mark.skipif(os.sched_getaffinity(0) < {0, 1}, reason="needs the cores 0 and 1")


@on_two_cores
async def test_of_a_host_that_is_divided_without_cpu_0_its_first_part_has_it(starting):
    there = await starting({"name": "a", "device": "cpu:2"}, devices=DIVIDED)
    pid = await _ready(there)
    ledger = there.house.ledger
    assert (ledger.view()[NAME]["device"], ledger.by_use("cpu:1")["spare"]) == ("cpu:1", SPARE.total_bytes)
    there.looked.set()
    await reached(there.receipt)
    assert (_load(there.receipt)["spare_worker"], _engine(there)) == ("a#1", pid)
    plan = await there.reconciler.plan()
    assert {each["device"] for each in plan["devices"] if each["spare_bytes"]} <= {"cpu:1"}


@on_two_cores
async def test_where_a_divided_host_has_no_room_the_part_is_named(starting):
    there = await starting({"name": "a", "device": "cpu:2"}, devices=[{**DIVIDED[0], "memory": "100MiB"}, DIVIDED[1]])
    await there.house.spare.look(is_quiet=True)
    assert "not left of what generations may take on cpu:1" in there.status()["spare_worker"]["reason"]


@on_two_cores
async def test_one_that_stands_by_is_counted_anew_where_the_host_is_divided(spared):
    there = await spared()
    pid = await _ready(there)
    for devices, first in ((DIVIDED, "cpu:1"), ([], "cpu:0")):
        assert (await there.apply(devices=devices)).outcome == "applied"
        assert (await _ready(there), there.house.ledger.view()[NAME]["device"]) == (pid, first)
        counted = {line.split(" ")[0]: line.split(" ")[1] for line in there.series("memory_bytes") if "spare" in line}
        assert [name for name, bytes_ in counted.items() if float(bytes_)] == [
            f'halogen_memory_bytes{{device="{first}",use="spare"}}'
        ]


def _environ(pid):
    return Path(f"/proc/{pid}/environ").read_bytes()


NONE = {
    "it is off": ([{"name": "a"}], {"reload": {"spare_worker": "off"}}, "is off"),
    "there is nothing to load": ([], {}, "nothing was loaded yet"),
    "there is no room": ([{"name": "a"}], {"memory_bytes": 100 * MIB}, "not left"),
}


@pytest.mark.parametrize(("models", "top", "why"), NONE.values(), ids=NONE)
async def test_a_first_document_that_has_no_use_or_no_room_for_one_starts_none(starting, models, top, why):
    there = await starting(*models, **top)
    await there.house.spare.look(is_quiet=True)
    there.looked.set()
    await reached(there.receipt)
    await there.house.spare.look(is_quiet=True)
    assert why in there.status()["spare_worker"]["reason"]
    assert not there.stage.at("import", "engine")[len(there.house.units) :], "each load started its own"


async def test_a_first_document_that_is_refused_leaves_one_that_stands_by(starting):
    there = await starting({"name": "a", "model": "/nowhere/a.gguf"})
    pid = await _ready(there)
    there.looked.set()
    assert (await reached(there.receipt)).outcome == "rejected"
    receipt = await there.apply(there.model("a"))
    assert (receipt.outcome, _load(receipt)["spare_worker"], _engine(there)) == ("applied", "a#1", pid)
