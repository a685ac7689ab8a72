"""The ring of events: order, places, what is lost, and the end."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halogend.control.events import Events, EventsLostError


def ring(keep=4):
    return Events(keep=keep, clock=lambda: 7.0, run="run")


def numbers(found):
    return [event.number for event in found]


async def test_a_reader_takes_what_comes_after_it_once_and_in_order():
    events = ring()
    events.publish("step", name="before")
    reader = events.follow()
    reading = asyncio.create_task(reader.next())
    await asyncio.sleep(0)
    assert not reading.done()
    events.publish("step", name="load", model="chat")
    events.publish("step", name="switch")
    (first, second) = await reading
    assert (first.id, first.kind, first.at, first.data) == ("run-2", "step", 7.0, {"name": "load", "model": "chat"})
    assert second.id == events.last_id == "run-3"
    events.publish("step")
    assert numbers(await reader.next()) == [4]


async def test_whoever_was_cut_off_goes_on_where_it_was():
    events = ring()
    for _ in range(3):
        events.publish("step")
    assert numbers(await events.follow("run-1").next()) == [2, 3]
    assert not events.follow("run-3").has_gap
    assert numbers(await events.follow("run-0").next()) == [1, 2, 3]


@pytest.mark.parametrize("after", ["", "-", "run-", "run-0", "run-7", "run--1", "run-²", "other-5", "run-" + "9" * 30])
async def test_a_place_that_is_gone_or_never_was_is_a_gap(after):
    events = ring()
    for _ in range(6):
        events.publish("step")
    reader = events.follow(after)
    events.publish("step")
    assert reader.has_gap
    assert numbers(await reader.next()) == [7]


async def test_a_slow_reader_is_told_so_and_a_quick_one_notices_nothing():
    events = ring(keep=4)
    slow, quick = events.follow(), events.follow()
    for _ in range(5):
        events.publish("step")
        assert len(await quick.next()) == 1
    with pytest.raises(EventsLostError):
        await slow.next()


async def test_a_reader_that_is_cancelled_has_taken_nothing():
    events = ring()
    reader = events.follow()
    reading = asyncio.create_task(reader.next())
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    events.publish("step")
    assert numbers(await reader.next()) == [1]


async def test_at_the_end_readers_take_what_is_left_and_stop():
    events = ring()
    reader, waiting = events.follow(), events.follow()
    events.publish("step")
    await waiting.next()
    reading = asyncio.create_task(waiting.next())
    await asyncio.sleep(0)
    events.close("shutting down")
    events.close("again")
    events.publish("step")
    assert await reading == ()
    assert numbers(await reader.next()) == [1]
    assert await reader.next() == ()
    assert events.ended == "shutting down"


@given(st.integers(1, 5), st.lists(st.booleans(), max_size=40))
async def test_no_event_is_seen_twice_out_of_order_or_missed_without_a_word(keep, turns):
    events = Events(keep=keep, run="run")
    reader, seen, made = events.follow(), [], 0
    for is_read in turns:
        if not is_read:
            events.publish("step")
            made += 1
        elif made - len(seen) > keep:
            with pytest.raises(EventsLostError):
                await reader.next()
            return
        elif made > len(seen):
            seen += numbers(await reader.next())
            assert seen == list(range(1, made + 1))
