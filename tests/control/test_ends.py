"""What ends, whatever goes wrong while it does: its processes, its bytes, and the wait for it."""

import os
import signal

import pytest
from structlog.testing import capture_logs
from support.played.moments import Moments
from support.played.world import document, reached, until

from halogend.config.codes import Code
from halogend.control import recover, replica, replica_changes
from halogend.control.ledger import Holding
from halogend.control.process import Child
from halogend.control.receipts import Milestone
from halogend.control.standing import standing

PARTS = {"devices": [{"id": "cpu:0", "cores": "0"}, {"id": "cpu:1", "cores": "1"}]}
BOTH = {"exec_mode": "data_parallel", "device": ["cpu:0", "cpu:1"]}
ONE = {"exec_mode": "data_parallel", "device": ["cpu:1"]}


@pytest.fixture
def moments(monkeypatch):
    return Moments(monkeypatch)


def _fails():
    raise RuntimeError("a fault of our own")


@pytest.mark.parametrize("step", ["drain", "reclaim"])
async def test_a_fault_while_an_old_generation_ends_leaves_nothing_of_it_and_closes_the_change(serving, moments, step):
    there = await serving()
    moments.on(step, "began", _fails)
    receipt = await there.apply(there.model("a", "b"))
    assert receipt.outcome == "applied"
    assert Code.INTERNAL in receipt.models["a"].error
    await until(lambda: set(there.house.ledger.view()) == {"a#2"}, "its bytes are back")
    await until(lambda: len(there.children()) == 2, "its processes are gone")
    assert not there.unit("a").retired
    assert (await there.apply(there.model("a"))).outcome == "applied"


@pytest.mark.skipif(os.sched_getaffinity(0) < {0, 1}, reason="needs two cores")
@pytest.mark.parametrize("step", ["drain", "reclaim"])
async def test_a_fault_while_a_replica_is_taken_away_leaves_nothing_of_it_and_closes_the_change(serving, moments, step):
    there = await serving()
    await there.apply(there.model("a", **BOTH), **PARTS)
    moments.on(step, "began", _fails)
    receipt = await there.apply(there.model("a", **ONE), **PARTS)
    assert (receipt.outcome, receipt.has(Milestone.CLOSED)) == ("applied", True)
    assert "a fault of our own" in receipt.models["a"].error
    await until(lambda: len(there.house.ledger.view()) == 1, "its bytes are back")
    await until(lambda: len(there.children()) == 2, "its processes are gone")


@pytest.fixture
def unkillable(monkeypatch):
    """A process that waits for a disk that never answers, as far as that can be had: stopped, and no kill reaches
    it. `let_go` is the disk's answer."""
    monkeypatch.setattr(replica, "_STOP_GRACE_S", 0.05)
    monkeypatch.setattr(replica, "_KILLED_S", 0.5)  # all others are gone by then
    stuck = set()
    kill = Child.kill

    def killed(child):
        if child.pid not in stuck:
            kill(child)

    monkeypatch.setattr(Child, "kill", killed)

    def let_go():
        for pid in list(stuck):
            stuck.discard(pid)
            os.kill(pid, signal.SIGKILL)

    def stick(pid):
        os.kill(pid, signal.SIGSTOP)
        stuck.add(pid)
        return let_go

    yield stick
    let_go()


async def test_a_process_that_no_kill_ends_keeps_its_bytes_and_holds_nobody_up(serving, unkillable):
    there = await serving()
    pid = there.unit("a").serving.pids["engine"]
    let_go = unkillable(pid)
    receipt = await there.apply(there.model("a", "b"))
    assert receipt.outcome == "applied"
    name = f"a#1 (pid {pid})"
    assert set(there.house.ledger.view()) == {name, "a#2"}
    (said,) = there.status()["lingering"]
    assert (said["replica"], said["pids"]) == ("a#1", {"engine": pid})
    assert f"engine {pid}" in standing(there.reconciler)
    assert (await there.apply(there.model("a", "c"))).outcome == "applied"
    assert set(there.house.ledger.view()) == {name, "a#3"}
    let_go()
    await until(lambda: set(there.house.ledger.view()) == {"a#3"}, "its bytes are back")
    assert there.status()["lingering"] == []


async def test_what_died_and_is_not_gone_is_started_again_when_there_is_room(serving, unkillable, monkeypatch):
    """No crash loop: nobody tries before it fits."""
    there = await serving(544 << 20, kv_cache_bytes="90MiB", max_batch=4096)
    await until(there.is_quiet, "the pool has its size")
    monkeypatch.setattr(recover, "BACKOFF_S", (0.0,))
    pids = there.unit("a").serving.pids
    there.house.ledger.enter("other", Holding("cpu:0", 200 << 20, 0, 0))
    let_go = unkillable(pids["engine"])
    os.kill(pids["text"], signal.SIGKILL)
    await until(lambda: "do not end" in (there.unit("a").trouble or ""), "it waits for the room")
    assert (there.stage.loads("a"), there.unit("a").deaths[1:]) == (1, [])
    let_go()
    await until(lambda: there.unit("a").alive() is not None, "it serves again")
    assert (there.stage.loads("a"), there.unit("a").trouble) == (2, None)


async def test_the_daemon_ends_beside_a_process_that_no_kill_ends(serving, unkillable):
    there = await serving()
    let_go = unkillable(there.unit("a").serving.pids["engine"])
    await there.reconciler.stop()
    assert len(there.children()) == 1
    let_go()


async def test_it_ends_although_a_change_is_on_its_way(serving, unkillable):
    there = await serving()
    load = there.stage.hold("load", role="engine", model="b")
    first = there.edit(document(there.model("a", "b")))
    let_go = unkillable((await load.reached()).pid)
    back = await reached(there.edit(document(there.model("a"))))
    await reached(first)
    assert (first.outcome, back.outcome) == ("superseded", "applied")
    assert len(there.status()["lingering"]) == 1
    let_go()
    await until(lambda: set(there.house.ledger.view()) == {"a#1"}, "its bytes are back")


async def test_a_change_that_the_engine_never_confirms_ends_and_its_bytes_stay_counted(serving, monkeypatch):
    monkeypatch.setattr(replica_changes, "_CONFIRM_LIMIT_S", 0.01)
    there = await serving(kv_cache_bytes="4MiB", max_batch=4096)
    await until(there.is_quiet, "the pool has its size")
    pools = [there.house.ledger.holding("a#1").kv_bytes]
    silent = there.stage.hold("commit", role="engine")
    with capture_logs() as logs:
        smaller = await there.apply(there.model("a", kv_cache_bytes="2MiB", max_batch=4096))
        await until(lambda: [each for each in logs if each["event"] == "change_not_confirmed"], "it is told")
    pools.append(there.house.ledger.holding("a#1").kv_bytes)
    silent.release("stick")
    smallest = await there.apply(there.model("a", kv_cache_bytes="1MiB", max_batch=4096))
    assert (smaller.outcome, smallest.outcome) == ("applied", "applied")
    assert pools == [4 << 20] * 2
    await until(lambda: there.house.ledger.holding("a#1").kv_bytes == 1 << 20, "a later one is confirmed for both")
