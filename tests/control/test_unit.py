"""One model's wishes and wakings, without any process."""

import asyncio

from halogend.control.change import Change
from halogend.control.receipts import ModelAction, ModelRecord
from halogend.control.unit import Unit
from halogend.control.waits import first_of


def change():
    return Change(None, ModelRecord("a", ModelAction.REMOVE), lambda: None)


async def test_a_wish_between_the_look_and_the_wait_wakes():
    unit = Unit("a")
    waiting = unit.woken()
    unit.want(change())
    async with asyncio.timeout(20):
        await waiting


async def test_a_wish_wakes_all_who_wait():
    unit = Unit("a")
    waits = asyncio.gather(unit.woken(), unit.until_wanted(), unit.until_needed())
    asyncio.get_running_loop().call_soon(unit.want, change())
    async with asyncio.timeout(20):
        await waits


async def test_a_change_that_has_not_begun_gives_way_to_a_newer_one():
    unit = Unit("a")
    first, second = change(), change()
    unit.want(first)
    unit.want(second)
    assert (first.record.outcome, first.record.is_closed) == ("superseded", True)
    assert unit.begin() is second
    assert unit.newer is None


async def test_first_of_leaves_no_task_behind():
    async with asyncio.timeout(20):
        await first_of(asyncio.sleep(0), asyncio.Event().wait(), asyncio.sleep(1000))
    assert len(asyncio.all_tasks()) == 1
