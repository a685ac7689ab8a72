"""A copy of the model on each device: who takes a request, what a death means, how copies come and go."""

import os
import signal

import pytest
from support.played.world import collect, document, failure_of, reached, until

from halogend.control import mend
from halogend.control.draining import draining
from halogend.control.lookout import Lookout
from halogend.control.receipts import Milestone

PARTS = [{"id": "cpu:0", "cores": "0"}, {"id": "cpu:1", "cores": "1"}]
BOTH = {"exec_mode": "data_parallel", "device": ["cpu:0", "cpu:1"]}
ONE = {"exec_mode": "data_parallel", "device": ["cpu:1"]}
REFUSED = {"do": "fail", "code": "HRT-1016", "message": "no memory"}
pytestmark = pytest.mark.skipif(os.sched_getaffinity(0) < {0, 1}, reason="needs the cores 0 and 1")


@pytest.fixture
async def replicated(world):
    """A world in which `a` serves on two devices."""

    async def make(**fields):
        new = await world()
        receipt = await _apply(new, **{**BOTH, **fields})
        assert receipt.outcome == "applied", receipt.view()
        await until(lambda: not new.unit("a").reclaims, "all is quiet")
        return new

    return make


async def _apply(world, *, until=Milestone.CLOSED, file=None, **fields):
    return await world.apply(world.model("a", file, **fields), devices=PARTS, until=until)


def _replicas(world):
    return {replica.spec.device: replica for replica in world.unit("a").serving.replicas}


def _leases(world):
    return {device: len(replica.leases) for device, replica in _replicas(world).items()}


async def _kill(world, device, role="engine"):
    os.kill(_replicas(world)[device].pids[role], signal.SIGKILL)


async def _all_serve(world, count=2):
    await until(lambda: sum(each.is_alive for each in world.unit("a").serving.replicas) == count, "all serve")


async def test_a_replica_serves_on_each_device_and_holds_its_bytes_there(replicated):
    world = await replicated()
    assert set(world.house.ledger.view()) == {"a#1", "a#1/1"}
    assert {each["device"] for each in world.house.ledger.view().values()} == {"cpu:0", "cpu:1"}
    pids = world.unit("a").serving.pids
    assert set(pids) == {"text", "engine", "text/1", "engine/1"}
    assert [os.sched_getaffinity(pids[role]) for role in ("engine", "engine/1")] == [{0}, {1}]
    shown = world.status()["models"]["a"]["serving"]["replicas"]
    assert [(each["device"], each["state"]) for each in shown] == [("cpu:0", "ready"), ("cpu:1", "ready")]
    same = await _apply(world, exec_mode="data_parallel", device="cpu:1, cpu:0")
    assert (same.outcome, world.stage.loads()) == ("applied", 2)  # the order is a live change of nothing


async def test_a_request_goes_where_there_is_most_room_for_its_weight(replicated):
    world = await replicated(device=[{"id": "cpu:0", "weight": 2}, "cpu:1"])
    world.stage.hold("generate", prompt="slow")
    answers = [await world.submit("a", "slow", 5) for _ in range(6)]
    assert _leases(world) == {"cpu:0": 4, "cpu:1": 2}
    receipt = await _apply(world, exec_mode="data_parallel", device=["cpu:0", {"id": "cpu:1", "weight": 9}])
    (change,) = receipt.models["a"].changes
    assert (receipt.outcome, change["field"], change["class"], world.stage.loads()) == ("applied", "device", "live", 2)
    answers += [await world.submit("a", "slow", 5) for _ in range(6)]
    assert _leases(world) == {"cpu:0": 4, "cpu:1": 8}
    for answer in answers:
        answer.close()
    assert _leases(world) == {"cpu:0": 0, "cpu:1": 0}


@pytest.mark.parametrize("role", ["text", "engine"])
async def test_one_death_leaves_the_others_serving_and_is_mended_in_its_place(replicated, role):
    world = await replicated()
    slow = world.stage.hold("generate", prompt="slow", times=2)
    one, other = [await world.submit("a", "slow", 5) for _ in range(2)]
    (await slow.reached(2)).say("token")
    await until(lambda: one.has_token or other.has_token, "a token has come")
    begun, new = (one, other) if one.has_token else (other, one)
    back = world.stage.hold("load", role="engine")
    for device in _replicas(world):
        if _replicas(world)[device] is begun.holder:
            await _kill(world, device, role)
    assert failure_of(await collect(begun)) == "engine_died"
    assert world.state("a") == "serving"
    assert failure_of(await world.ask("a")) is None  # the one that is left answers
    await back.reached()
    assert "process" in world.status()["models"]["a"]["degraded"]
    assert {line.rpartition('state="')[2] for line in world.series("replicas")} == {'up"} 1.0', 'down"} 1.0'}
    assert not new.has_token
    back.release()
    await _all_serve(world)
    assert world.status()["models"]["a"]["degraded"] is None
    assert world.unit("a").serving.number == 1
    assert {line.rpartition('state="')[2] for line in world.series("replicas")} == {'up"} 2.0'}
    assert set(world.house.ledger.view()) == {"a#1", "a#1/1"}
    slow.release("finish")
    assert failure_of(await collect(new)) is None


async def test_a_request_without_a_token_goes_over_when_its_replica_dies(replicated):
    world = await replicated()
    slow = world.stage.hold("generate", prompt="slow", times=1)
    answer = await world.submit("a", "slow")
    await slow.reached()
    (device,) = [each for each, replica in _replicas(world).items() if replica is answer.holder]
    await _kill(world, device)
    assert failure_of(await collect(answer)) is None
    assert (answer.generation, answer.deaths) == (1, 1)


async def test_a_live_change_reaches_a_replica_that_is_being_mended(replicated):
    world = await replicated()
    back = world.stage.hold("load", role="engine")
    await _kill(world, "cpu:1")
    await back.reached()
    receipt = await _apply(world, **BOTH, max_batch=7)
    assert receipt.outcome == "applied"
    back.release()
    await _all_serve(world)
    assert [each.engine_limits.max_batch for each in world.unit("a").serving.replicas] == [7, 7]
    assert [call.detail["pool_bytes"] for call in world.stage.at("commit", "engine")][-1] > 0


async def test_a_replica_is_tried_again_and_again_and_never_from_other_files(replicated, monkeypatch):
    monkeypatch.setattr(mend, "BACKOFF_S", (0.0,))
    world = await replicated()
    stat = (world.folder / "a.gguf").stat()
    refuse = world.stage.order("load", where={"role": "engine"}, **REFUSED)
    await _kill(world, "cpu:0")
    await until(lambda: len(refuse.calls) > 2, "it was tried more often than there are waits")
    assert "no memory" in world.status()["models"]["a"]["degraded"]
    os.utime(world.folder / "a.gguf", ns=(1, 1))
    refuse.release()
    await until(lambda: "changed" in (world.status()["models"]["a"]["degraded"] or ""), "the files are others")
    os.utime(world.folder / "a.gguf", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    await _all_serve(world)


async def test_a_dead_replica_whose_device_is_taken_off_is_not_started_again(replicated):
    world = await replicated()
    back = world.stage.hold("load", role="engine")
    await _kill(world, "cpu:0")
    await back.reached()
    dropped = await _apply(world, **ONE)
    assert dropped.outcome == "applied"
    assert set(world.house.ledger.view()) == {"a#1/1"}
    assert world.children() == set(world.unit("a").serving.pids.values())
    back.release()
    added = await _apply(world, **BOTH)
    assert added.outcome == "applied"
    await _all_serve(world)
    assert set(world.house.ledger.view()) == {"a#1/1", "a#1/2"}


async def test_when_all_are_dead_the_generation_is_and_the_model_is_started_again(replicated):
    world = await replicated()
    back = world.stage.hold("load", role="engine", times=1)
    await _kill(world, "cpu:0")
    await back.reached()
    await _kill(world, "cpu:1")
    await until(lambda: world.unit("a").alive() is not None and world.unit("a").alive().number == 2, "another serves")
    assert set(world.house.ledger.view()) == {"a#2", "a#2/1"}
    await until(lambda: len(world.children()) == 4, "nothing is left of the dead")


async def test_a_dropped_replica_drains_and_one_that_is_added_is_loaded_alone(replicated):
    world = await replicated()
    stays = _replicas(world)["cpu:1"].pids
    slow = world.stage.hold("generate", prompt="slow")
    answers = [await world.submit("a", "slow", 5) for _ in range(4)]
    for number in range(1, 5):
        await slow.reached(number)
    gone = _replicas(world)["cpu:0"]
    calls = [call for call in slow.calls if call.pid == gone.pids["engine"]]
    calls[0].say("token")
    await until(lambda: any(answer.has_token for answer in answers), "a token has come")
    begun = next(answer for answer in answers if answer.has_token)
    receipt = await _apply(world, **ONE, until=Milestone.SERVING)
    assert (receipt.outcome, receipt.models["a"].action) == ("applied", "update")
    assert [answer.holder is gone for answer in answers if answer is not begun] == [False] * 3
    assert begun.holder is gone
    slow.release("finish")
    assert [failure_of(await collect(answer)) for answer in answers] == [None] * 4
    await reached(receipt)
    assert set(world.house.ledger.view()) == {"a#1/1"}
    assert [step.name for step in receipt.models["a"].steps] == ["update", "drain", "reclaim"]
    assert _replicas(world)["cpu:1"].pids == stays
    before = world.dump()
    receipt = await _apply(world, **BOTH)
    assert (receipt.outcome, world.stage.loads(), world.unit("a").serving.number) == ("applied", 3, 1)
    assert set(world.house.ledger.view()) == {"a#1/1", "a#1/2"}
    assert [step.name for step in receipt.models["a"].steps][:2] == ["update", "load"]
    receipt = await _apply(world, **ONE)
    assert receipt.outcome == "applied"
    await world.comes_back_to(before, "active")


async def _streams_on(world, device):
    """A request on that device that has a token and goes on until it is told to finish."""
    slow = world.stage.hold("generate", prompt="slow")
    answers = [await world.submit("a", "slow", 5) for _ in range(2)]
    (answer,) = [each for each in answers if each.holder is _replicas(world)[device]]
    for number in (1, 2):
        (await slow.reached(number)).say("token")
    await until(lambda: all(each.has_token for each in answers), "tokens have come")
    return answer, answers, slow


async def test_a_replica_that_still_drains_is_taken_back_and_not_loaded(replicated):
    world = await replicated()
    answer, answers, slow = await _streams_on(world, "cpu:0")
    before = world.unit("a").serving.pids
    dropped = await _apply(world, **ONE, until=Milestone.SERVING)
    added = await _apply(world, **BOTH)
    await reached(dropped)
    assert (dropped.outcome, added.outcome, world.stage.loads()) == ("applied", "applied", 2)
    assert set(world.house.ledger.view()) == {"a#1", "a#1/1"}
    assert set(world.unit("a").serving.pids.values()) == set(before.values())
    (drain,) = [step for step in dropped.models["a"].steps if step.name == "drain"]
    assert drain.detail["taken_back"] is True
    assert [step.name for step in added.models["a"].steps] == ["update", "take_back"]
    assert added.models["a"].steps[1].detail["replicas"] == ["a#1"]
    assert (world.unit("a").leavers, world.unit("a").serving.leaving) == ([], [])
    assert answer.holder is _replicas(world)["cpu:0"]
    slow.release("finish")
    assert [failure_of(await collect(each)) for each in answers] == [None, None]
    assert failure_of(await world.ask("a")) is None
    assert world.status()["settled"]


async def test_what_is_taken_back_has_every_live_change_that_came_meanwhile(replicated):
    world = await replicated()
    _, answers, slow = await _streams_on(world, "cpu:0")
    await _apply(world, **ONE, until=Milestone.SERVING)
    await _apply(world, **ONE, max_batch=7, max_prompt_len=9, until=Milestone.SERVING)
    back = await _apply(world, **BOTH, max_batch=7, max_prompt_len=9)
    assert (back.outcome, world.stage.loads()) == ("applied", 2)
    replicas = _replicas(world).values()
    assert [each.engine_limits.max_batch for each in replicas] == [7, 7]
    assert [each.changes.text.limits.max_prompt_len for each in replicas] == [9, 9]
    slow.release("finish")
    assert [failure_of(await collect(each)) for each in answers] == [None, None]


@pytest.mark.parametrize("role", ["text", "engine"])
async def test_l3_a_replica_that_cannot_be_taken_back_drains_on(replicated, role):
    world = await replicated()
    _, answers, slow = await _streams_on(world, "cpu:0")
    dropped = await _apply(world, **ONE, until=Milestone.SERVING)
    before = world.dump()
    refusal = world.stage.order("prepare", where={"role": role}, **REFUSED)
    back = await _apply(world, **BOTH, max_batch=7, max_prompt_len=9)
    assert back.outcome == "failed"
    await world.comes_back_to(before, "tasks")  # the drain may just have begun to wait
    assert not dropped.has(Milestone.CLOSED)
    refusal.release()
    slow.release("finish")
    assert [failure_of(await collect(each)) for each in answers] == [None, None]
    await reached(dropped)
    assert set(world.house.ledger.view()) == {"a#1/1"}


async def test_a_plan_says_that_a_replica_is_taken_back(replicated):
    world = await replicated()
    _, answers, slow = await _streams_on(world, "cpu:0")
    await _apply(world, **ONE, until=Milestone.SERVING)
    world.text = document(world.model("a", **BOTH), devices=PARTS)
    planned = await world.steering.plan()
    held = {each.device: each.total_bytes for each in world.house.ledger.held().values()}
    assert {each["device"]: each["peak"]["total_bytes"] for each in planned["devices"]} == held
    back = await reached(world.edit(world.text))
    assert [step.name for step in back.models["a"].steps] == planned["models"][0]["steps"]
    assert planned["models"][0]["steps"] == ["update", "take_back"]
    slow.release("finish")
    assert [failure_of(await collect(each)) for each in answers] == [None, None]


async def test_a_replica_that_died_as_it_drained_is_loaded_again(replicated):
    world = await replicated()
    answer, answers, slow = await _streams_on(world, "cpu:0")
    dropped = await _apply(world, **{**ONE, "reload": {"drain_timeout_s": 600}}, until=Milestone.SERVING)
    (leaver,) = world.unit("a").departing
    os.kill(leaver.replica.pids["engine"], signal.SIGKILL)
    assert failure_of(await collect(answer)) == "engine_died"
    await reached(dropped)
    back = await _apply(world, **BOTH)
    assert (back.outcome, world.stage.loads()) == ("applied", 3)
    slow.release("finish")
    assert [failure_of(await collect(each)) for each in answers if each is not answer] == [None]


async def test_a_replica_that_drains_is_told_of_and_ended_by_an_operator(replicated):
    world = await replicated()
    answer, answers, slow = await _streams_on(world, "cpu:0")
    dropped = await _apply(world, **ONE, until=Milestone.SERVING)
    states = {each["replica"]: each["state"] for each in world.status()["models"]["a"]["serving"]["replicas"]}
    assert states == {"a#1": "draining", "a#1/1": "ready"}
    asked = draining(world.house, "a")
    (one,) = asked.view()["replicas"]
    assert (one["replica"], one["device"], one["state"], one["requests"]) == ("a#1", "cpu:0", "draining", 1)
    assert 0 < one["left_s"] <= one["limit_s"] == 30.0
    asked.end("uid:7")
    assert failure_of(await collect(answer)) == "draining"
    await asked.closed()
    (one,) = asked.view()["replicas"]
    assert (one["state"], one["left_s"], one["ended"], one["by"]) == ("gone", 0.0, 1, "uid:7")
    (drain,) = [step for step in (await reached(dropped)).models["a"].steps if step.name == "drain"]
    assert (drain.detail["ended"], drain.detail["by"]) == (1, "uid:7")
    slow.release("finish")
    assert [failure_of(await collect(each)) for each in answers if each is not answer] == [None]


async def test_whoever_waits_for_a_replica_that_is_taken_back_is_told(replicated):
    world = await replicated()
    _, answers, slow = await _streams_on(world, "cpu:0")
    await _apply(world, **ONE, until=Milestone.SERVING)
    asked = draining(world.house, "a")
    waiting = world.spawned(asked.closed())
    await _apply(world, **BOTH)
    await waiting
    (one,) = asked.view()["replicas"]
    assert (one["state"], one["ended"]) == ("serving", 0)
    slow.release("finish")
    assert [failure_of(await collect(each)) for each in answers] == [None, None]


async def test_a_replica_that_cannot_be_added_changes_nothing(replicated):
    world = await replicated(**ONE)
    before = world.dump()
    world.stage.order("load", where={"role": "engine"}, **REFUSED)
    receipt = await _apply(world, **BOTH)
    assert receipt.outcome == "failed"
    await world.comes_back_to(before)
    await _all_serve(world, 1)


async def test_a_replica_that_dies_before_its_change_is_taken_is_mended_after_it(replicated):
    world = await replicated(**ONE)
    prepare = world.stage.hold("prepare", role="engine", times=1)
    receipt = world.edit(document(world.model("a", **BOTH, max_batch=7), devices=PARTS))
    call = await prepare.reached()
    (newcomer,) = [each for each in world.stage.at("ready", "engine") if each.pid != call.pid]
    os.kill(newcomer.pid, signal.SIGKILL)
    await until(lambda: newcomer.pid not in world.children(), "it is dead")
    prepare.release()
    await reached(receipt)
    assert receipt.outcome == "applied"
    await _all_serve(world)
    assert [each.engine_limits.max_batch for each in world.unit("a").serving.replicas] == [7, 7]


async def test_a_change_that_the_stayers_refuse_ends_the_replica_that_was_loaded_for_it(replicated):
    world = await replicated(**ONE)
    before = world.dump()
    world.stage.order("prepare", where={"role": "engine"}, **REFUSED)
    receipt = await _apply(world, **BOTH, max_batch=7)
    assert receipt.outcome == "failed"
    await world.comes_back_to(before)


async def test_another_file_is_another_generation_on_every_device(replicated):
    world = await replicated()
    receipt = await _apply(world, **BOTH, file="b")
    assert (receipt.outcome, receipt.models["a"].action) == ("applied", "replace")
    assert set(world.house.ledger.view()) == {"a#2", "a#2/1"}
    await until(lambda: len(world.children()) == 4, "the old ones are gone")


async def test_where_one_replica_does_not_load_none_stays(replicated):
    world = await replicated()
    before = world.dump()
    world.stage.order("load", where={"role": "engine", "model": "b"}, times=1, **REFUSED)
    receipt = await _apply(world, **BOTH, file="b")
    assert receipt.outcome == "failed"
    await world.comes_back_to(before)


async def test_the_plan_has_the_bytes_of_each_device(world):
    new = await world()
    new.text = document(new.model("a", **BOTH), devices=PARTS)
    planned = await new.steering.plan()
    assert planned["outcome"] == "changes", planned
    after = {each["device"]: each["after"]["total_bytes"] for each in planned["devices"]}
    receipt = await reached(new.edit(new.text))
    assert receipt.outcome == "applied"
    held = new.house.ledger.held()
    assert after == {"cpu:0": held["a#1"].total_bytes, "cpu:1": held["a#1/1"].total_bytes}
    assert planned["models"][0]["after"]["total_bytes"] == sum(after.values())
    replaced = {**BOTH, "reload": {"strategy": "replace"}, "precision": "int8"}
    for wanted, action in (
        (ONE, "update"),
        (BOTH, "update"),
        ({**BOTH, "precision": "fp32"}, "replace"),
        (replaced, "replace"),
    ):
        new.text = document(new.model("a", **wanted), devices=PARTS)
        planned = await new.steering.plan()
        assert planned["models"][0]["action"] == action
        receipt = await reached(new.edit(new.text))
        assert receipt.outcome == "applied"
        assert [step.name for step in receipt.models["a"].steps] == planned["models"][0]["steps"]
        held = list(new.house.ledger.held().values())
        if wanted is replaced:
            assert {each["peak"]["total_bytes"] - each["now"]["total_bytes"] for each in planned["devices"]} == {0}
        assert {each["device"]: each["after"]["total_bytes"] for each in planned["devices"]} == {
            device: sum(each.total_bytes for each in held if each.device == device) for device in ("cpu:0", "cpu:1")
        }


async def test_a_host_that_comes_to_a_model_with_one_device_grows_it_to_two(serving):
    """From single to a copy on each device is another generation, which follows the old one."""
    world = await serving()
    receipt = await world.apply(world.model("a", **BOTH), devices=PARTS)
    assert (receipt.outcome, receipt.models["a"].action) == ("applied", "replace")
    assert set(world.house.ledger.view()) == {"a#2", "a#2/1"}


async def test_a_death_and_the_return_of_a_replica_are_heard_of(replicated):
    world = await replicated()
    lookout, began = Lookout(world.reconciler, world.steering), world.house.events.last_id
    lookout.tick()
    await _kill(world, "cpu:1")
    await until(lambda: not _replicas(world)["cpu:1"].is_alive, "it is dead")
    lookout.tick()
    await _all_serve(world)
    lookout.tick()
    heard = world.house.events.after(int(began.partition("-")[2]))
    states = [event.data["state"] for event in heard if event.kind == "replica" and event.data["device"] == "cpu:1"]
    assert states[0] == states[-1] == "ready"
    assert states[1:-1]


async def test_of_two_replicas_only_the_one_that_goes_is_told_to_be_gone(replicated):
    world = await replicated()
    lookout, began = Lookout(world.reconciler, world.steering), world.house.events.last_id
    _, answers, slow = await _streams_on(world, "cpu:0")
    lookout.tick()
    dropped = await _apply(world, **ONE, until=Milestone.SERVING)
    lookout.tick()
    slow.release("finish")
    assert [failure_of(await collect(each)) for each in answers] == [None, None]
    await reached(dropped)
    lookout.tick()
    told = [each for each in world.house.events.after(int(began.partition("-")[2])) if each.kind == "replica"]
    states = {name: [each.data["state"] for each in told if each.data["replica"] == name] for name in ("a#1", "a#1/1")}
    assert states == {"a#1": ["ready", "draining", "gone"], "a#1/1": ["ready"]}


async def test_a_fault_of_one_try_does_not_end_the_tries(replicated, monkeypatch):
    world = await replicated()
    monkeypatch.setattr(mend, "BACKOFF_S", (0.0,))
    faults, check = [OSError("a file went away between two looks")], mend.check_unchanged

    async def checked(spec):
        if faults:
            raise faults.pop()
        await check(spec)

    monkeypatch.setattr(mend, "check_unchanged", checked)
    await _kill(world, "cpu:1")
    await until(lambda: not faults, "the first try")
    await _all_serve(world)


async def test_what_comes_in_the_place_of_a_dead_replica_is_measured_anew(replicated):
    world = await replicated()
    world.stage.order("ready", "go", where={"role": "engine"}, transient_bytes=1 << 20)
    dead = _replicas(world)["cpu:0"]
    dead.memory.base_bytes = dead.memory.surplus_bytes = 512 << 20
    await _kill(world, "cpu:0", "engine")
    await until(lambda: _replicas(world)["cpu:0"] is not dead, "another is in its place")
    await _all_serve(world)
    memory = _replicas(world)["cpu:0"].memory
    assert memory.base_bytes == memory.measured_bytes - _replicas(world)["cpu:0"].pool_touched_bytes > 0
    assert memory.surplus_bytes < 0, "played processes hold no torch"
    assert memory.working_bytes > 0, "each later measure may raise it"


async def test_a_replica_that_nobody_wants_any_more_is_not_loaded_to_its_end(world):
    there = await world()
    await _apply(there, **ONE)
    load = there.stage.hold("load", role="engine")
    first = there.edit(document(there.model("a", **BOTH), devices=PARTS))
    await load.reached()
    back = await _apply(there, **ONE)
    await reached(first)
    assert (first.outcome, back.outcome) == ("superseded", "applied")
    assert set(there.house.ledger.view()) == {"a#1"}
    assert len(there.children()) == 2


async def test_a_replica_that_is_still_wanted_counts_for_a_newer_change(world):
    there = await world()
    await _apply(there, **ONE)
    load = there.stage.hold("load", role="engine")
    there.edit(document(there.model("a", **BOTH), devices=PARTS))
    await load.reached()
    newer = there.edit(document(there.model("a", max_batch=7, **BOTH), devices=PARTS))
    await there.ask("a")
    load.release()
    assert (await reached(newer)).outcome == "applied"
    assert there.stage.loads("a") == 2
