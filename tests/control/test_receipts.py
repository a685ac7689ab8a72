"""Receipts: milestones in order, a bounded history, one JSON shape."""

import asyncio
import json

from halogend.control.receipts import Milestone, Outcome, Receipts


async def test_a_later_milestone_reaches_the_earlier_ones():
    receipt = Receipts().open("file", "file")
    waiter = asyncio.create_task(receipt.wait(Milestone.SERVING))
    await asyncio.sleep(0)
    assert not waiter.done()
    receipt.reach(Milestone.CLOSED, 5.0)
    await waiter
    assert receipt.milestones == {"accepted": 5.0, "serving": 5.0, "closed": 5.0}


async def test_a_milestone_keeps_the_time_it_was_first_reached():
    receipt = Receipts().open("file", "file")
    receipt.reach(Milestone.ACCEPTED, 1.0)
    receipt.reach(Milestone.CLOSED, 9.0)
    assert receipt.milestones["accepted"] == 1.0


async def test_the_history_is_bounded_and_open_receipts_stay():
    receipts = Receipts(keep=5)
    still_open = receipts.open("file", "file")
    for _ in range(20):
        receipts.open("api", "uid 0").reach(Milestone.CLOSED, 1.0)
    kept = receipts.all()
    assert len(kept) == 5
    assert kept[0] is still_open
    assert receipts.get("r1") is still_open
    assert receipts.get("r2") is None


async def test_the_view_is_json():
    receipt = Receipts(clock=lambda: 7.0).open("signal", "SIGHUP")
    receipt.outcome = Outcome.UNCHANGED
    view = json.loads(json.dumps(receipt.view()))
    assert (view["id"], view["outcome"], view["trigger"], view["asked_at"]) == ("r1", "unchanged", "signal", 7.0)
