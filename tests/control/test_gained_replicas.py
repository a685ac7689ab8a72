"""A generation that dies while a further replica of it is loaded."""

import asyncio
import os
import signal

import pytest
from support.played.world import document, failure_of, reached, until

from halogend.control import recover
from halogend.control.receipts import Milestone

PARTS = [{"id": "cpu:0", "cores": "0"}, {"id": "cpu:1", "cores": "1"}]
BOTH, ONE = ({"exec_mode": "data_parallel", "device": each} for each in (["cpu:0", "cpu:1"], ["cpu:1"]))
pytestmark = pytest.mark.skipif(os.sched_getaffinity(0) < {0, 1}, reason="needs the cores 0 and 1")


async def test_s10_what_dies_while_it_gains_a_replica_is_started_again_at_once(world, monkeypatch):
    monkeypatch.setattr(recover, "BACKOFF_S", (0.0,))
    there = await world()
    assert (await there.apply(there.model("a", **ONE), devices=PARTS)).outcome == "applied"
    load = there.stage.hold("load", role="engine", model="a", times=1)
    receipt = await there.apply(there.model("a", **BOTH), devices=PARTS, until=Milestone.ACCEPTED)
    await load.reached()
    os.kill(there.unit("a").serving.pids["engine"], signal.SIGKILL)
    await reached(receipt)
    assert (receipt.outcome, "died" in receipt.models["a"].error) == ("failed", True)
    await until(lambda: there.state("a") == "serving", "it serves again")
    assert failure_of(await there.ask("a")) is None
    assert set(there.house.ledger.view()) == {"a#2"}
    again = await there.apply(there.model("a", **BOTH), devices=PARTS)
    assert (again.outcome, set(there.house.ledger.view())) == ("applied", {"a#2", "a#2/1"})


async def test_an_end_that_is_cut_short_leaves_neither_processes_nor_bytes(world):
    there = await world()
    assert (await there.apply(there.model("a"))).outcome == "applied"
    house, serving = there.house, there.unit("a").serving
    replicas = [serving.make(serving.spec) for _ in range(2)]
    for replica in replicas:
        house.enter(replica, house.ledger.holding("a#1"))
        await replica.start()
        os.kill(replica.pids["engine"], signal.SIGSTOP)  # it does not hear that it is to end
    ending = asyncio.create_task(house.end(replicas))
    await until(lambda: all(each.state == "stopped" for each in replicas), "both are told to end")
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    await until(lambda: set(house.ledger.view()) == {"a#1"}, "their bytes are back")
    assert there.children() == set(serving.pids.values())


async def test_l7_a_replica_that_was_loaded_and_is_wanted_no_more_goes_when_its_generation_serves(world):
    """It was loaded for an atomic change that waited for another model, and the newer document has one device less."""
    there = await world()
    assert (await there.apply(there.model("a", **BOTH), devices=PARTS)).outcome == "applied"
    waits = there.stage.hold("load", role="engine", model="b")
    both = (there.model("a", "x", **BOTH), there.model("b", device="cpu:0"))
    first = there.edit(document(*both, devices=PARTS, reload={"atomic": True}))
    await waits.reached()
    assert len(there.unit("a").loading.replicas) == 2
    second = await reached(there.edit(document(there.model("a", "x", **ONE), devices=PARTS)))
    await reached(first)
    assert (first.outcome, second.outcome) == ("superseded", "applied")
    assert "adopt" in [step.name for step in second.models["a"].steps]
    serving = there.unit("a").serving
    assert [each.spec.device for each in serving.everybody] == ["cpu:1"]
    await until(lambda: set(there.house.ledger.view()) == {serving.replicas[0].name}, "its bytes are back")
    await until(lambda: there.children() == set(serving.replicas[0].pids.values()), "its processes are gone")
