"""A new generation on probation: the one before stands by, and one assignment brings it back."""

import os
import signal

import pytest
from support.played.world import collect, content, document, failure_of, reached, until

from halogend.config.schema import ProbationConfig
from halogend.control.planning import Given
from halogend.control.probation import Probation
from halogend.control.receipts import Milestone

PROBATION = {"probation": {"s": 600, "max_error_rate": 0.5, "min_requests": 2}}


async def _on_probation(serving, **fields):
    """`a` serves another checkpoint, and what served before stands by."""
    world = await serving(**fields)
    before = world.dump()
    receipt = await world.apply(world.model("a", "b", **PROBATION), until=Milestone.SERVING)
    assert receipt.outcome == "applied"
    await until(lambda: world.status()["models"]["a"]["parked"], "the old one stands by")
    return world, before, receipt


def _end(world, *errors):
    for is_error in errors:
        world.router.record_end("a", world.unit("a").serving.number, is_error=is_error)


# --- the count --------------------------------------------------------------------------------------------


def test_a_share_of_errors_counts_only_once_enough_requests_have_ended():
    probation = Probation(ProbationConfig(s=10, max_error_rate=0.25, min_requests=4), 2, lambda: 0.0)
    for is_error in (True, True, False):
        probation.record(2, is_error=is_error)
    assert not probation.failed
    probation.record(1, is_error=True)  # of another generation
    assert (probation.requests, probation.errors) == (3, 2)
    probation.record(2, is_error=False)
    assert probation.decided.is_set()
    assert probation.failed == "2 of 4 requests of generation 2 failed, over max_error_rate 0.25"


def test_errors_up_to_the_rate_are_allowed_and_the_first_reason_stays():
    now = [100.0]
    probation = Probation(ProbationConfig(s=10, max_error_rate=0.25, min_requests=1), 2, lambda: now[0])
    for is_error in (False, False, False, True):
        probation.record(2, is_error=is_error)
    assert (probation.failed, probation.decided.is_set()) == ("", False)
    now[0] += 4.0
    assert probation.left_s == 6.0
    probation.fail("it died")
    probation.record(2, is_error=True)
    assert probation.view() == {"generation": 2, "left_s": 6.0, "requests": 5, "errors": 2, "failed": "it died"}


# --- what comes of it ---------------------------------------------------------------------------------------


async def test_the_old_generation_stands_by_with_its_bytes_in_the_ledger_and_no_request(serving):
    world, _, receipt = await _on_probation(serving)
    assert set(world.house.ledger.view()) == {"a#1", "a#2"}
    assert failure_of(await world.ask("a")) is None
    shown = world.status()["models"]["a"]
    assert (shown["serving"]["generation"], shown["parked"]["generation"], shown["draining"]) == (2, 1, [])
    assert shown["probation"]["generation"] == 2
    assert not receipt.has(Milestone.CLOSED)
    assert world.status()["settled"]
    assert 'halogen_generation_state{generation="1",model="a",state="parked"} 1.0' in world.series("generation_state")


@pytest.mark.parametrize("role", ["text", "engine"])
async def test_a_death_on_probation_brings_the_old_one_back_by_one_assignment(serving, role):
    world, before, receipt = await _on_probation(serving)
    waits = world.stage.hold("generate", prompt="waits", times=1)
    answer = await world.submit("a", "waits")
    await waits.reached()
    os.kill(world.unit("a").serving.pids[role], signal.SIGKILL)
    assert failure_of(await collect(answer)) is None
    assert answer.generation == 1
    await reached(receipt)
    assert receipt.outcome == "rolled_back"
    assert receipt.models["a"].error.startswith("generation 2 died: the ")
    assert [world.stage.loads(each) for each in "ab"] == [1, 1]
    await world.comes_back_to(before, "units", "metrics", "routes", "served")
    assert world.unit("a").degraded.startswith("RolledBack: generation 2 died")


async def test_too_many_errors_bring_the_old_one_back_and_streams_end_where_they_began(serving):
    world, before, receipt = await _on_probation(serving)
    slow = world.stage.hold("generate", prompt="slow")
    answer = await world.submit("a", "slow", 5)
    (await slow.reached()).say("token")
    await until(lambda: answer.has_token, "a token has come")
    _end(world, False, True)
    assert world.unit("a").probation.failed == ""
    _end(world, True)
    await until(lambda: receipt.outcome == "rolled_back", "the old one is back")
    assert world.unit("a").serving.number == 1
    assert receipt.models["a"].error == "2 of 3 requests of generation 2 failed, over max_error_rate 0.5"
    assert [each.number for each in world.unit("a").draining] == [2]
    assert not receipt.has(Milestone.CLOSED)
    slow.release("finish")
    assert failure_of(await collect(answer)) is None
    assert answer.generation == 2
    await reached(receipt)
    assert [each.name for each in receipt.models["a"].steps][-4:] == ["probation", "switch", "drain", "reclaim"]
    await world.comes_back_to(before, "units", "metrics", "routes", "served")


async def test_what_was_rolled_back_is_loaded_again_by_an_explicit_reload_only(serving):
    world, before, receipt = await _on_probation(serving)
    active = world.reconciler.active
    _end(world, True, True)
    await reached(receipt)
    shown = world.status()
    assert not shown["settled"]
    assert shown["revision"]["desired"] == receipt.revision[:12]
    assert shown["revision"]["active"] == before["active"].revision[:12]
    assert world.reconciler.active is before["active"] is not active
    assert world.reconciler.history.active[-1].revision == before["active"].revision
    other = await world.apply(world.model("a"), until=Milestone.CLOSED)
    assert other.outcome == "unchanged"
    assert world.stage.loads("b") == 1
    again = await reached(world.edit(document(world.model("a", "b", **PROBATION))), Milestone.SERVING)
    assert again.outcome == "applied"
    assert world.stage.loads("b") == 2


async def test_the_end_of_the_probation_takes_the_memory_back(serving):
    world = await serving()
    receipt = await world.apply(world.model("a", "b", probation={"s": 0.2}))
    assert receipt.outcome == "applied"
    assert set(world.house.ledger.view()) == {"a#2"}
    step = next(each for each in receipt.models["a"].steps if each.name == "probation")
    assert (step.detail["parked"], step.detail["failed"]) == (1, None)
    assert world.status()["models"]["a"]["probation"] is None


@pytest.mark.parametrize("edit", ["of the model", "of another", "removal"])
async def test_a_newer_document_ends_it(serving, edit):
    world, _, receipt = await _on_probation(serving)
    models = {
        "of the model": [world.model("a", "b", max_batch=7, **PROBATION)],
        "of another": [world.model("a", "b", **PROBATION), world.model("c")],
        "removal": [],
    }[edit]
    await world.apply(*models)
    await reached(receipt)
    assert receipt.outcome == "applied"
    assert "a#1" not in world.house.ledger.view()
    assert "a" not in world.house.units or world.unit("a").probation is None


async def test_the_same_document_again_leaves_it_as_it_is(serving):
    world, _, receipt = await _on_probation(serving)
    again = await reached(world.reconciler.reload("signal", "SIGHUP"), Milestone.SERVING)
    assert again.outcome == "unchanged"
    assert world.unit("a").parked is not None
    _end(world, True, True)
    await reached(receipt)
    await reached(again)
    assert (receipt.outcome, again.outcome) == ("rolled_back", "rolled_back")


async def test_a_revert_on_probation_takes_the_parked_one_back_and_nothing_stands_by_then(serving):
    world, before, receipt = await _on_probation(serving)
    back = await world.apply(world.model("a"))
    await reached(receipt)
    assert (receipt.outcome, back.outcome) == ("applied", "applied")
    assert [world.stage.loads(each) for each in "ab"] == [1, 1]
    await world.comes_back_to(before, "active", "metrics", "routes", "served")


async def test_where_the_parked_one_died_as_well_the_engine_is_started_again(serving):
    world, _, receipt = await _on_probation(serving)
    os.kill(world.unit("a").parked.pids["engine"], signal.SIGKILL)
    await until(lambda: set(world.house.ledger.view()) == {"a#2"}, "nothing of it is left")
    await reached(receipt)
    assert receipt.outcome == "applied"
    os.kill(world.unit("a").serving.pids["engine"], signal.SIGKILL)
    await until(lambda: world.unit("a").alive() and world.unit("a").serving.number == 3, "it serves again")
    assert world.stage.loads("b") == 2


async def test_a_plan_keeps_the_parked_generations_bytes_for_the_probation(serving):
    """What stands by gives nothing to another load of the same change, and all to a newer document."""
    world = await serving()
    text = document(world.model("a", "b", **PROBATION))
    plan = await world.steering.plan(Given(content(text), "new.yaml"))
    (device,) = plan["devices"]
    receipt = await world.apply(world.model("a", "b", **PROBATION), until=Milestone.SERVING)
    assert device["peak"]["total_bytes"] == sum(each.total_bytes for each in world.house.ledger.held().values())
    assert not receipt.has(Milestone.CLOSED)


@pytest.mark.parametrize("fields", [{}, {"max_batch": 7}])
async def test_a_newer_document_that_asks_for_what_serves_again_ends_the_word_of_the_roll_back(serving, fields):
    world, _, receipt = await _on_probation(serving)
    _end(world, True, True)
    await reached(receipt)
    assert world.unit("a").degraded.startswith("RolledBack")
    newer = await world.apply(world.model("a", **fields))
    assert newer.outcome == ("applied" if fields else "unchanged")
    assert world.unit("a").degraded is None
    assert world.status()["settled"]
