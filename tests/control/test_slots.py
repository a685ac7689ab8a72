"""Places for loads, without any load."""

import asyncio

import pytest

from halogend.control.slots import Slots


async def _turns():
    for _ in range(3):
        await asyncio.sleep(0)


async def test_places_go_out_in_the_order_of_asking():
    slots, came = Slots(2), []

    async def ask(name):
        await slots.acquire()
        came.append(name)

    tasks = [asyncio.create_task(ask(name)) for name in "abcd"]
    await _turns()
    assert (came, slots.taken) == (["a", "b"], 2)
    slots.release()
    await _turns()
    assert came == ["a", "b", "c"]
    slots.resize(3)
    await asyncio.gather(*tasks)
    assert (came, slots.taken) == (["a", "b", "c", "d"], 3)


async def test_with_fewer_places_nobody_follows_until_enough_have_left():
    slots = Slots(2)
    await slots.acquire()
    await slots.acquire()
    slots.resize(1)
    late = asyncio.create_task(slots.acquire())
    slots.release()
    await _turns()
    assert not late.done()
    slots.release()
    await late
    assert slots.taken == 1


@pytest.mark.parametrize("has_place", [False, True])
async def test_whoever_gives_up_leaves_the_place_to_the_next(has_place):
    slots = Slots(1)
    await slots.acquire()
    first = asyncio.create_task(slots.acquire())
    second = asyncio.create_task(slots.acquire())
    await _turns()
    if has_place:
        slots.release()  # the place is its own, and it has not run since
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    if not has_place:
        slots.release()
    await second
    assert slots.taken == 1
