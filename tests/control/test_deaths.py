"""What a death means: for requests, for the model, for a change on its way."""

import asyncio
import os
import signal
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs
from support.played.world import collect, document, failure_of, reached, until

from halogend.control import health, recover, replica, watch_over
from halogend.control.receipts import Milestone
from halogend.control.replica_changes import UpdateError
from halogend.control.workers import culprit
from halogend.wire.control import PrepareEngine
from halogend.wire.process import EXIT_PEER_LOST

REFUSED = {"do": "fail", "code": "HRT-1016", "message": "no memory"}
ROLES = ["text", "engine"]


@pytest.fixture
def no_backoff(monkeypatch):
    monkeypatch.setattr(recover, "BACKOFF_S", (0.0,) * 5)


def _kill(world, role, model="a"):
    os.kill(world.unit(model).serving.pids[role], signal.SIGKILL)


async def _serves(world, number, model="a"):
    unit = world.unit(model)
    await until(lambda: unit.alive() is not None and unit.alive().number == number, f"generation {number} serves")


@pytest.mark.parametrize("role", ROLES)
async def test_s10_a_model_whose_process_died_is_started_again_and_nothing_is_left_of_the_dead(serving, role):
    world = await serving()
    before = world.dump()
    _kill(world, role)
    await _serves(world, 2)
    await until(lambda: len(world.children()) == 2, "the other half is gone too")
    assert set(world.house.ledger.view()) == {"a#2"}
    assert world.status()["models"]["a"]["trouble"] is None
    assert world.status()["settled"]
    await world.comes_back_to(before, "routes", "served", "units", "ledger", "metrics", "children")


@pytest.mark.usefixtures("no_backoff")
async def test_a_fault_of_one_look_at_the_workers_does_not_end_the_watch(serving, monkeypatch):
    world = await serving()
    found = [("engine", "it is wedged"), ValueError("a bug")]

    def verdict(*_, **__):
        each = found.pop() if found else None
        if isinstance(each, ValueError):
            raise each
        return each

    monkeypatch.setattr(watch_over, "_EVERY_S", 0.01)
    monkeypatch.setattr(replica, "verdict", verdict)
    with capture_logs() as logs:
        await _serves(world, 2)
    assert [each["event"] for each in logs].count("watch_failed") == 1


@pytest.mark.parametrize("role", ROLES)
async def test_a_request_without_a_token_survives_one_death(serving, role):
    world = await serving()
    slow = world.stage.hold("generate", prompt="slow", times=1)
    answer = await world.submit("a", "slow")
    await slow.reached()
    _kill(world, role)
    assert failure_of(await collect(answer)) is None
    assert answer.generation == 2


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize("role", ROLES)
async def test_a_request_without_a_token_does_not_survive_two(serving, role):
    world = await serving()
    slow = world.stage.hold("generate", prompt="slow", times=2)
    answer = await world.submit("a", "slow")
    events = world.spawned(collect(answer))
    await slow.reached()
    _kill(world, role)
    await slow.reached(2)
    _kill(world, role)
    assert failure_of(await events) == "engine_died"


@pytest.mark.parametrize("role", ROLES)
async def test_a_request_with_a_token_is_told(serving, role):
    world = await serving()
    slow = world.stage.hold("generate", prompt="slow")
    answer = await world.submit("a", "slow", 5)
    (await slow.reached()).say("token")
    await until(lambda: answer.has_token, "a token has come")
    _kill(world, role)
    assert failure_of(await collect(answer)) == "engine_died"
    await _serves(world, 2)


@pytest.mark.parametrize("role", ROLES)
async def test_s10_a_death_while_it_drains_ends_the_drain(serving, role):
    world = await serving()
    slow = world.stage.hold("generate", prompt="slow")
    answer = await world.submit("a", "slow", 5)
    (await slow.reached()).say("token")
    await until(lambda: answer.has_token, "a token has come")
    receipt = await world.apply(world.model("a", "b"), until=Milestone.SERVING)
    os.kill(world.unit("a").draining[0].pids[role], signal.SIGKILL)
    await reached(receipt)
    assert receipt.outcome == "applied"
    assert failure_of(await collect(answer)) == "engine_died"
    assert set(world.house.ledger.view()) == {"a#2"}
    assert world.state("a") == "serving"


@pytest.mark.parametrize("role", ROLES)
async def test_s10_requests_wait_where_the_serving_engine_dies_while_a_newcomer_loads(serving, role):
    world = await serving()
    load = world.stage.hold("load", role="engine", model="b")
    receipt = world.edit(document(world.model("a", "b")))
    await load.reached()
    _kill(world, role)
    await until(lambda: world.unit("a").alive() is None, "it is dead")
    asked = world.asks("a")
    await until(lambda: world.router.waiting("a") == 1, "the request waits")
    assert world.state("a") == "restarting"
    load.release()
    assert failure_of(await asked) is None
    await reached(receipt)
    assert receipt.outcome == "applied"
    assert set(world.house.ledger.view()) == {"a#2"}
    assert world.stage.loads("a") == 1


async def test_where_the_newcomer_fails_as_well_the_old_spec_is_started_again(serving):
    world = await serving()
    load = world.stage.hold("load", role="engine", model="b")
    receipt = world.edit(document(world.model("a", "b")))
    await load.reached()
    _kill(world, "engine")
    await until(lambda: world.unit("a").alive() is None, "it is dead")
    asked = world.asks("a")
    await until(lambda: world.router.waiting("a") == 1, "the request waits")
    load.release(**REFUSED)
    assert failure_of(await asked) is None
    await reached(receipt)
    assert receipt.outcome == "failed"
    assert world.status()["models"]["a"]["path"].endswith("a.gguf")


async def test_a_generation_that_ends_right_after_it_was_loaded_never_takes_over(serving, monkeypatch):
    """Between its last check and the switch lies the measuring of its memory."""
    from halogend.control.generation import Generation

    world = await serving()
    before = world.dump()
    measure = Generation.measure

    async def measure_and_die(self):
        await measure(self)
        if self.number == 2 and self.is_alive:
            os.kill(self.pids["engine"], signal.SIGKILL)
            await self.died.wait()

    monkeypatch.setattr(Generation, "measure", measure_and_die)
    receipt = await world.apply(world.model("a", "b"))
    assert receipt.outcome == "failed"
    await world.comes_back_to(before)


@pytest.mark.parametrize("roles", [["text"], ["engine"], ROLES], ids="-".join)
@pytest.mark.parametrize("beside", [False, True], ids=["first", "newcomer"])
async def test_s10_a_load_whose_processes_are_killed_fails_and_leaves_what_was(world, serving, roles, beside):
    world = await serving() if beside else await world()
    before = world.dump()
    load = world.stage.hold("load", role="engine", model="b")
    receipt = world.edit(document(world.model("a", "b")))
    await load.reached()
    for role in roles:
        os.kill(world.unit("a").loading.pids[role], signal.SIGKILL)
    await reached(receipt)
    assert receipt.outcome == "failed"
    assert "was ended by SIGKILL" in receipt.models["a"].error
    if beside:
        await world.comes_back_to(before)
    else:
        await until(lambda: not world.children(), "no process is left")
        assert world.house.ledger.view() == {}


@pytest.mark.parametrize("seen_first", ROLES)
@pytest.mark.parametrize(
    ("statuses", "reason"),
    [
        ({"text": -9, "engine": EXIT_PEER_LOST}, {"text"}),
        ({"text": EXIT_PEER_LOST, "engine": 1}, {"engine"}),
        ({"text": 0, "engine": None}, {"text", "engine"}),
        ({"text": -9, "engine": -9}, {"text", "engine"}),
    ],
)
def test_s10_who_only_followed_is_never_the_reason(seen_first, statuses, reason):
    workers = {role: SimpleNamespace(role=role, child=SimpleNamespace(status=statuses[role])) for role in ROLES}
    assert culprit(workers[seen_first], workers.values()).role in reason


async def test_s10_both_processes_killed_at_once_are_one_death(serving):
    world = await serving()
    for role in ROLES:
        _kill(world, role)
    await _serves(world, 2)
    assert len(world.unit("a").deaths) == 1
    await until(lambda: len(world.children()) == 2, "nothing is left of the dead")


async def test_s1_what_was_stopped_is_killed_and_started_again_and_the_reason_is_told(serving, monkeypatch):
    """Both at once: all are silent then, and it is no stalled host all the same."""
    monkeypatch.setattr(health, "SILENCE_S", 2.0)
    world = await serving()
    pids = world.unit("a").serving.pids
    with capture_logs() as logs:
        for role in ROLES:
            os.kill(pids[role], signal.SIGSTOP)
        await _serves(world, 2)
    (died,) = [each for each in logs if each["event"] == "engine_died"]
    assert died["reason"].endswith(": it is stopped by a signal or a debugger")
    await until(lambda: not world.children() & set(pids.values()), "nothing is left of the dead")


# --- again and again ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_backoff")
async def test_a_crash_loop_ends_in_failed_and_a_new_document_leaves_it(serving):
    world = await serving()
    loop = world.stage.order("load", "crash", where={"role": "engine"}, message="a bug of ours")
    _kill(world, "engine")
    await until(lambda: world.state("a") == "failed" and "HRT-1002" in world.unit("a").trouble, "it was given up")
    assert "RuntimeError: a bug of ours" in world.unit("a").trouble
    assert world.stage.loads() == 1 + len(recover.BACKOFF_S)
    assert await world.asks("a") == "not_serving"
    assert world.house.ledger.view() == {}
    assert not world.status()["settled"]
    loop.release()
    receipt = await reached(world.reconciler.reload("signal", "SIGHUP"))
    assert receipt.outcome == "applied"
    assert failure_of(await world.ask("a")) is None
    assert world.status()["settled"]


@pytest.mark.usefixtures("no_backoff")
async def test_a_model_in_a_crash_loop_can_be_removed(serving):
    world = await serving()
    world.stage.order("load", "exit", where={"role": "engine"}, status=1)
    _kill(world, "engine")
    await until(lambda: world.state("a") == "failed" and "HRT-1002" in world.unit("a").trouble, "it was given up")
    assert (await world.apply()).outcome == "applied"
    await until(lambda: not world.house.units, "nothing is left of it")
    assert not [line for line in world.series("") if 'model="a"' in line]
    assert world.status()["settled"]


@pytest.mark.slow
@pytest.mark.usefixtures("no_backoff")
async def test_an_applied_change_forgives_earlier_deaths(serving):
    world = await serving()
    for number in range(2, 6):
        _kill(world, "engine")
        await _serves(world, number)
    assert (await world.apply(world.model("a", "b"))).outcome == "applied"
    for number in range(7, 10):
        _kill(world, "engine")
        await _serves(world, number)
    assert world.state("a") == "serving"


async def test_a_new_document_does_not_wait_for_the_backoff(serving, monkeypatch):
    monkeypatch.setattr(recover, "BACKOFF_S", (0.0, 1000.0))
    world = await serving()
    world.stage.order("load", times=1, where={"role": "engine", "model": "a"}, **REFUSED)
    _kill(world, "engine")
    await until(lambda: len(world.unit("a").deaths) == 2, "it waits to try again")
    asked = world.asks("a")
    await until(lambda: world.router.waiting("a") == 1, "the request waits")
    assert "no memory" in world.status()["models"]["a"]["trouble"]
    assert (await world.apply(world.model("a", "b"))).outcome == "applied"
    assert failure_of(await asked) is None


async def test_a_removal_does_not_wait_for_the_backoff_and_answers_who_waits(serving, monkeypatch):
    monkeypatch.setattr(recover, "BACKOFF_S", (1000.0,))
    world = await serving()
    _kill(world, "engine")
    await until(lambda: world.unit("a").deaths, "it waits to try again")
    asked = world.asks("a")
    await until(lambda: world.router.waiting("a") == 1, "the request waits")
    assert (await world.apply()).outcome == "applied"
    assert await asked in ("not_serving", "model_not_found")
    await until(lambda: not world.house.units, "nothing is left of it")


async def test_a_live_change_reaches_a_model_that_restarts(serving, monkeypatch):
    world = await serving()
    load = world.stage.hold("load", role="engine", model="a", times=1)
    _kill(world, "engine")
    await load.reached()
    receipt = await world.apply(world.model("a", max_batch=7), until=Milestone.ACCEPTED)
    load.release()
    await reached(receipt)
    assert receipt.outcome == "applied"
    assert world.unit("a").serving.engine_limits.max_batch == 7
    assert world.stage.loads() == 2


async def test_a_restart_on_another_file_than_planned_is_degraded_until_a_reload(serving):
    world = await serving()
    path = world.folder / "a.gguf"
    os.utime(path, ns=(1, 1))
    _kill(world, "engine")
    await _serves(world, 2)
    await until(lambda: world.status()["models"]["a"]["degraded"], "it is told")
    assert world.status()["models"]["a"]["degraded"].startswith("InputsChanged")
    receipt = await reached(world.reconciler.reload("signal", "SIGHUP"))
    assert receipt.outcome == "applied"
    assert world.status()["models"]["a"]["degraded"] is None
    assert world.unit("a").serving.number == 3


@pytest.mark.parametrize("role", ROLES)
async def test_a_live_change_whose_process_is_gone_fails_at_once(serving, role):
    """It is not waited for an answer that nobody can give: the death is dealt with instead."""
    world = await serving()
    prepare = world.stage.hold("prepare", role=role)
    receipt = world.edit(document(world.model("a", max_batch=7, max_prompt_len=9)))
    call = await prepare.reached()
    call.say("exit", status=0)
    await reached(receipt)
    assert receipt.outcome == "failed"
    await _serves(world, 2)
    assert world.unit("a").serving.engine_limits.max_batch == 64


async def test_a_process_that_is_gone_is_not_asked(serving):
    """Its socket is closed a moment before its exit is seen: nobody waits for an answer meanwhile."""
    world = await serving()
    serving_generation = world.unit("a").serving
    (replica,) = serving_generation.replicas
    for worker in replica._workers.by_role.values():
        worker.close()
    change = PrepareEngine(update=1, limits=serving_generation.engine_limits)
    with pytest.raises(UpdateError):
        async with asyncio.timeout(5):
            await serving_generation.live.prepare(None, {replica: change})
