"""Whose turn it is: never one twice at once, each when it is due, and back-off."""

from __future__ import annotations

import asyncio

from halogen_operator.queue import BackOff, Queue, Schedule
from hypothesis import given
from hypothesis import strategies as st

_UIDS = st.sampled_from(["a", "b", "c"])
_TIMES = st.integers(0, 20).map(float)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), _UIDS, _TIMES),
        st.tuples(st.just("take"), st.just(""), _TIMES),
        st.tuples(st.just("done"), _UIDS, st.one_of(st.none(), _TIMES)),
    ),
    max_size=40,
)


class _Naive:
    """The same, by searching through everything."""

    def __init__(self) -> None:
        self.due: dict[str, float] = {}
        self.running: dict[str, float | None] = {}

    def add(self, uid: str, when: float) -> None:
        if uid in self.running:
            asked = self.running[uid]
            self.running[uid] = when if asked is None else min(asked, when)
        else:
            self.due[uid] = min(self.due.get(uid, when), when)

    def done(self, uid: str, when: float | None) -> None:
        asked = self.running.pop(uid, None)
        for moment in (when, asked):
            if moment is not None:
                self.add(uid, moment)


@given(steps=_STEPS)
def test_a_schedule_does_what_a_search_through_everything_does(steps: list[tuple[str, str, float]]) -> None:
    schedule, naive = Schedule(), _Naive()
    for step, uid, when in steps:
        if step == "add":
            schedule.add(uid, when)
            naive.add(uid, when)
        elif step == "take":
            taken = schedule.take(when)
            due = {each: at for each, at in naive.due.items() if at <= when}
            if taken is None:
                assert not due
            else:
                assert taken not in naive.running
                assert due[taken] == min(due.values())
                del naive.due[taken]
                naive.running[taken] = None
        elif uid in naive.running:
            schedule.done(uid, when)
            naive.done(uid, when)
        assert schedule.due == naive.due
        assert schedule.next_at() == min(naive.due.values(), default=None)


def test_back_off_doubles_between_its_ends_and_chance_takes_up_to_half() -> None:
    full, half = BackOff(1.0, 300.0, lambda: 0.0), BackOff(1.0, 300.0, lambda: 0.999999)
    assert [full.seconds(count) for count in (1, 2, 3, 8, 9, 10, 5000)] == [1, 2, 4, 128, 256, 300, 300]
    assert 0.5 < half.seconds(1) < 0.51
    assert 150 < half.seconds(5000) < 151


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _queue(clock: _Clock) -> Queue:
    return Queue(clock, BackOff(1.0, 300.0, lambda: 0.0), settle_s=0.0)


async def test_events_during_a_look_are_one_look_after_it() -> None:
    queue = _queue(_Clock())
    queue.add("a")
    assert await queue.take() == "a"
    queue.add("a")
    queue.add("a")
    assert queue.depth == 0
    queue.done("a", 30.0)
    assert queue.depth == 1
    assert await queue.take() == "a"
    queue.done("a", 30.0)
    assert queue.depth == 0


async def test_failures_in_a_row_wait_longer_and_success_forgets_them() -> None:
    clock = _Clock()
    queue = _queue(clock)
    waits = []
    queue.add("a")
    for _ in range(3):
        assert await queue.take() == "a"
        waits.append(queue.failed("a"))
        clock.now += waits[-1]
    assert await queue.take() == "a"
    queue.done("a", 0.0)
    assert await queue.take() == "a"
    waits.append(queue.failed("a"))
    assert waits == [1.0, 2.0, 4.0, 1.0]


async def test_the_server_may_ask_for_a_longer_wait() -> None:
    queue = _queue(_Clock())
    queue.add("a")
    await queue.take()
    assert queue.failed("a", at_least_s=17.0) == 17.0


async def test_an_event_brings_a_failed_one_forward() -> None:
    queue = _queue(_Clock())
    queue.add("a")
    await queue.take()
    queue.failed("a")
    assert queue.depth == 0
    queue.add("a")
    assert await queue.take() == "a"


async def test_a_waiting_worker_is_woken_by_an_event_and_by_the_end() -> None:
    queue = _queue(_Clock())
    waiting = [asyncio.create_task(queue.take()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a")
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == ["a"]
    queue.close()
    assert sorted(await asyncio.gather(*waiting), key=str) == [None, "a"]
