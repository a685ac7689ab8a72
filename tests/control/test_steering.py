"""The way back, the hold and the start, in a played world."""

import pytest
from support.played.world import content, document, reached, until

from halogend.control.planning import Given
from halogend.control.receipts import Milestone
from halogend.control.requests import RequestError


async def started(world, text, resume=False):
    world.text = text
    return await world.steering.start(resume=resume)


async def edited(world, *models):
    return await world.apply(*models)


def batch_of(world, name="a"):
    return world.unit(name).active.config.max_batch


# --- rollback -------------------------------------------------------------------------------------------


async def test_a_rollback_applies_the_document_before_and_a_second_one_comes_back(serving):
    there = await serving()
    await edited(there, there.model("a", max_batch=7))
    back = await reached(there.steering.rollback(None, "uid:0"))
    assert (back.outcome, back.trigger, back.actor, back.source) == ("applied", "rollback", "uid:0", "kept:r1")
    assert batch_of(there) == 64
    assert there.status()["drift"] == {"receipt": back.id, "source_revision": there.reconciler.source_revision[:12]}
    forth = await reached(there.steering.rollback(None, "uid:0"))
    assert (forth.outcome, batch_of(there)) == ("applied", 7)
    assert there.status()["drift"] is None  # what the source holds again
    assert there.stage.loads() == 1


async def test_a_rollback_by_receipt_finds_every_document_that_is_kept(serving):
    there = await serving()
    for size in (5, 6, 7):
        await edited(there, there.model("a", max_batch=size))
    unchanged = await edited(there, there.model("a", max_batch=7))
    await reached(there.steering.rollback("r2", "x"))
    assert batch_of(there) == 5
    await reached(there.steering.rollback(unchanged.id, "x"))
    assert batch_of(there) == 7


async def test_after_an_edit_that_failed_the_way_back_is_what_was_active(serving):
    there = await serving()
    there.stage.order("load", "fail", where={"role": "engine", "model": "b"}, code="HRT-1016", message="no memory")
    failed = await edited(there, there.model("a", "b"))
    assert failed.outcome == "failed"
    assert there.reconciler.accepted is not there.reconciler.active
    back = await reached(there.steering.rollback(None, "x"))
    assert back.source == "kept:r1"
    assert there.reconciler.accepted is there.reconciler.active
    assert there.stage.loads("a") == 1


async def test_where_there_is_no_way_back_it_is_said_and_nothing_happens(serving):
    there = await serving()
    rejected = there.edit("models: [")
    await reached(rejected)
    codes = []
    for receipt in (None, "r99", rejected.id):
        with pytest.raises(RequestError) as caught:
            there.steering.rollback(receipt, "x")
        codes.append(caught.value.code)
        with pytest.raises(RequestError):
            await there.steering.plan_rollback(receipt)
    assert codes == ["nothing_to_roll_back", "receipt_not_found", "document_not_kept"]
    assert "Kept are: r1" in str(caught.value.message)
    assert len(there.reconciler.receipts.all()) == 2


async def test_a_rollback_can_be_planned(serving):
    there = await serving()
    await edited(there, there.model("a", "b"))
    await until(there.is_quiet, "all is quiet")
    before = there.dump()
    plan = await there.steering.plan_rollback(None)
    assert (plan["source"], plan["outcome"], plan["models"][0]["action"]) == ("kept:r1", "changes", "replace")
    await there.comes_back_to(before)


async def test_an_edit_after_a_rollback_is_the_newest_event_and_wins(serving):
    there = await serving()
    await edited(there, there.model("a", max_batch=7))
    await reached(there.steering.rollback(None, "x"))
    await edited(there, there.model("a", max_batch=8))
    assert (batch_of(there), there.status()["drift"]) == (8, None)


# --- hold -------------------------------------------------------------------------------------------------


async def test_held_triggers_change_nothing_and_each_leaves_a_receipt_that_says_why(serving):
    there = await serving()
    there.steering.hold("uid:7")
    there.steering.hold("uid:8")
    before = there.dump()
    for trigger in ("file", "signal", "api"):
        receipt = await reached(there.edit(document(there.model("a", max_batch=7)), trigger))
        (problem,) = receipt.problems
        assert (receipt.outcome, problem.code) == ("rejected", "HRT-1018")
        assert "by uid:7" in problem.message
        assert "halogend resume" in problem.hint
    assert there.status()["hold"] == {"since": there.status()["hold"]["since"], "by": "uid:7", "put_off": True}
    assert not there.status()["settled"]
    await there.comes_back_to(before)
    plan = await there.steering.plan()
    assert (plan["outcome"], plan["hold"]["by"]) == ("changes", "uid:7")
    assert not there.series('reloads_total{outcome="rejected"')


async def test_resume_applies_what_was_put_off_once_as_the_source_is_by_then(serving):
    there = await serving()
    there.steering.hold("x")
    there.edit(document(there.model("a", max_batch=7)), "file")
    there.edit(document(there.model("a", max_batch=8)), "file")
    receipt = there.steering.resume("uid:9")
    await reached(receipt)
    assert (receipt.trigger, receipt.actor, receipt.outcome, batch_of(there)) == ("resume", "uid:9", "applied", 8)
    assert there.status()["hold"] is None
    assert there.steering.resume("uid:9") is None


async def test_resume_without_anything_put_off_changes_nothing_even_after_a_rollback(serving):
    there = await serving()
    await edited(there, there.model("a", max_batch=7))
    there.steering.hold("x")
    await reached(there.steering.rollback(None, "x"))
    assert there.steering.resume("x") is None
    assert (batch_of(there), there.status()["drift"] is not None) == (64, True)


async def test_force_goes_through_a_hold_and_leaves_it(serving):
    there = await serving()
    there.steering.hold("x")
    there.text = document(there.model("a", max_batch=7))
    receipt = await reached(there.reconciler.reload("api", "uid:0", force=True))
    assert (receipt.outcome, batch_of(there)) == ("applied", 7)
    assert there.status()["hold"] is not None


async def test_a_death_while_changes_are_held_is_mended(serving):
    there = await serving()
    there.steering.hold("x")
    there.stage.order("generate", "die", where={"prompt": "deadly"}, times=1)
    assert len(await there.asks("a", "deadly")) > 1
    assert there.stage.loads() == 2


# --- what outlives a run ------------------------------------------------------------------------------------


@pytest.fixture
async def second_run(world, tmp_path):
    """A run that serves `a`, ended; and what makes the next one, on the same folders."""

    async def make(hold=False, dropped=None):
        first = await world(state=tmp_path / "state")
        good = document(first.model("a"))
        (begun,) = await started(first, good)
        await reached(begun)
        await reached(first.edit(document(first.model("a", max_batch=7))))
        if hold:
            first.steering.hold("uid:7")
        await first.stop()
        if dropped is not None:
            (tmp_path / "state/receipts" / dropped).unlink()
        return await world(folder=first.folder, state=tmp_path / "state")

    return make


async def test_receipts_count_on_and_earlier_documents_are_a_way_back(second_run):
    there = await second_run()
    (receipt,) = await started(there, document(there.model("a", max_batch=7)))
    await reached(receipt)
    assert [each.id for each in there.reconciler.receipts.all()] == ["r1", "r2", "r3"]
    back = await reached(there.steering.rollback(None, "x"))
    assert (back.source, batch_of(there)) == ("kept:r1", 64)


async def test_a_kept_document_is_reached_by_the_receipt_it_is_shown_under_when_that_is_dropped(second_run):
    """There are more receipts than documents' worth of changes: 200 that changed nothing drop the first."""
    there = await second_run(dropped="r1")
    (receipt,) = await started(there, document(there.model("a", max_batch=7)))
    await reached(receipt)
    assert there.reconciler.receipts.get("r1") is None
    assert (await there.steering.plan_rollback("r1"))["problems"] == []
    back = await reached(there.steering.rollback("r1", "x"))
    assert (back.source, batch_of(there)) == ("kept:r1", 64)


async def test_a_bad_source_ends_the_start_unless_it_may_resume(second_run):
    there = await second_run()
    (only,) = await started(there, "models: [")
    assert only.outcome == "rejected"
    assert there.reconciler.accepted is None
    bad, good = await there.steering.start(resume=True)
    await reached(good)
    assert (bad.outcome, good.outcome, good.source) == ("rejected", "applied", "kept:r2")
    assert batch_of(there) == 7
    assert there.status()["drift"] == {"receipt": good.id, "source_revision": None}


async def test_a_good_source_needs_no_resuming(second_run):
    there = await second_run()
    (only,) = await started(there, document(there.model("a", max_batch=9)), resume=True)
    await reached(only)
    assert (only.source, batch_of(there)) == ("config.yaml", 9)


async def test_with_nothing_kept_resuming_ends_as_without(world):
    there = await world()
    (only,) = await started(there, "models: [", resume=True)
    assert only.outcome == "rejected"


async def test_a_hold_outlives_the_run_and_the_edit_that_was_made_meanwhile_stays_put_off(second_run):
    there = await second_run(hold=True)
    (receipt,) = await started(there, document(there.model("a", max_batch=9)))
    await reached(receipt)
    assert (receipt.source, receipt.outcome, batch_of(there)) == ("kept:r2", "applied", 7)
    assert there.status()["hold"]["put_off"]
    assert there.status()["drift"]["source_revision"] == there.reconciler.source_revision[:12]
    resumed = await reached(there.steering.resume("x"))
    assert (resumed.outcome, batch_of(there)) == ("applied", 9)


async def test_a_hold_over_an_unchanged_source_puts_nothing_off(second_run):
    there = await second_run(hold=True)
    await started(there, document(there.model("a", max_batch=7)))
    assert not there.status()["hold"]["put_off"]
    assert there.status()["drift"] is None


async def test_a_held_start_whose_document_is_bad_by_now_takes_the_source(second_run):
    there = await second_run(hold=True)
    (there.folder / "a.gguf").unlink()
    kept, source = await started(there, document(there.model("b")))
    assert (kept.outcome, kept.source, source.source) == ("rejected", "kept:r2", "config.yaml")
    await reached(source, Milestone.SERVING)
    assert there.status()["settled"]


async def test_the_ledger_shows_what_each_generation_holds(serving):
    there = await serving()
    ledger = there.steering.ledger()
    (device,) = ledger["devices"].values()
    (held,) = ledger["generations"].values()
    assert device["held_bytes"] == held["total_bytes"] == there.house.ledger.taken_bytes("cpu:0")
    assert device["budget_bytes"] == device["memory_bytes"] - device["reserve_bytes"] - device["foreign_bytes"]


async def test_a_document_given_from_elsewhere_is_applied_and_shown_as_drift(serving):
    there = await serving()
    given = Given(content(document(there.model("a", max_batch=5))), "handed in")
    receipt = await reached(there.reconciler.apply(given, "api", "uid:0"))
    assert (receipt.outcome, receipt.source, batch_of(there)) == ("applied", "handed in", 5)
    assert there.status()["drift"]["receipt"] == receipt.id
