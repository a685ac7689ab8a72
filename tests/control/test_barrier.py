"""Waiting for each other, without any model."""

import asyncio

import pytest

from halogend.control.barrier import Barrier, NotTogether
from halogend.control.replica_changes import UpdateError


class _Turn:
    """Ready to be taken; `relies_on` is what may die meanwhile."""

    def __init__(self, name, log):
        self.name, self.log, self.armed = name, log, None
        self.died = asyncio.Event()

    @property
    def relies_on(self):
        return self

    def rest(self):
        """Nothing was made ready."""

    async def arm(self):
        if self.armed is not None:
            await self.armed()

    def commit(self):
        self.log.append(self.name)

    async def undo(self):
        raise AssertionError("whoever joined undoes it")


def _open(barrier):
    if barrier.begin():
        barrier.commit()


async def _joined(barrier, log, *names):
    turns = {name: _Turn(name, log) for name in names}
    tasks = [asyncio.create_task(barrier.join(name, turn)) for name, turn in turns.items()]
    for _ in range(8):
        await asyncio.sleep(0)
    return turns, tasks


async def test_nobody_switches_before_all_have_come_and_then_all_do():
    log = []
    barrier = Barrier("abc", _open, lambda: log.append("broken"))
    _, first = await _joined(barrier, log, "a", "b")
    assert (log, barrier.is_settled) == ([], False)
    _, last = await _joined(barrier, log, "c")
    await asyncio.gather(*first, *last)
    assert log == ["a", "b", "c"]
    barrier.fail("too late")
    assert not barrier.is_broken


async def test_one_that_fails_is_the_reason_for_all():
    log = []
    barrier = Barrier("abc", _open, lambda: log.append("broken"))
    _, tasks = await _joined(barrier, log, "a", "b")
    barrier.fail("c: no memory")
    barrier.fail("another reason")
    for task in tasks:
        with pytest.raises(NotTogether, match="c: no memory"):
            await task
    with pytest.raises(NotTogether, match="c: no memory"):
        await barrier.join("c", _Turn("c", log))
    assert log == ["broken"]


async def test_what_dies_while_it_waits_breaks_it():
    log = []
    barrier = Barrier("ab", _open, lambda: None)
    turns, (waits,) = await _joined(barrier, log, "a")
    turns["a"].died.set()
    with pytest.raises(NotTogether, match="a: what was ready died"):
        await waits


async def test_from_when_it_opens_only_whoever_opens_it_may_break_it():
    log = []
    barrier = Barrier("ab", lambda barrier: barrier.begin(), lambda: None)
    turns, tasks = await _joined(barrier, log, "a", "b")
    turns["a"].died.set()
    barrier.abandon()
    assert not barrier.is_settled
    barrier.fail("the port is taken", while_opening=True)
    for task in tasks:
        with pytest.raises(NotTogether, match="the port is taken"):
            await task
    assert log == []


async def _no():
    raise UpdateError("no memory")


async def test_one_that_cannot_be_armed_is_the_reason_for_all():
    log = []
    barrier = Barrier("ab", _open, lambda: log.append("broken"))
    turns, (first,) = await _joined(barrier, log, "a")
    turns["a"].armed = _no
    _, (last,) = await _joined(barrier, log, "b")
    for task in (first, last):
        with pytest.raises(NotTogether, match="a: no memory"):
            await task
    assert log == ["broken"]


async def _faulty():
    raise RuntimeError("a fault of ours")


async def test_a_fault_as_one_is_armed_is_heard_of():
    """Whoever joined hears of it, and breaks the barrier for the others."""
    log = []
    barrier = Barrier("ab", _open, lambda: log.append("broken"))
    turns, (first,) = await _joined(barrier, log, "a")
    turns["a"].armed = _faulty
    _, (last,) = await _joined(barrier, log, "b")
    with pytest.raises(RuntimeError, match="a fault of ours"):
        async with asyncio.timeout(5):
            await first
    barrier.fail("a: a fault of ours")
    with pytest.raises(NotTogether, match="a: a fault of ours"):
        await last
    assert log == ["broken"]


async def test_nobody_is_armed_before_all_have_come_and_what_is_armed_too_late_is_given_up():
    log, forever = [], asyncio.Event()
    barrier = Barrier("ab", _open, lambda: log.append("broken"))
    turns, (first,) = await _joined(barrier, log, "a")

    async def arms():
        log.append("arms")
        try:
            await forever.wait()
        finally:
            log.append("given up")

    turns["a"].armed = arms
    assert log == []
    _, (last,) = await _joined(barrier, log, "b")
    assert log == ["arms"]
    barrier.abandon()
    for task in (first, last):
        with pytest.raises(NotTogether):
            await task
    assert log == ["arms", "broken", "given up"]


async def test_one_that_was_abandoned_is_not_begun():
    barrier = Barrier("a", _open, lambda: None)
    barrier.abandon()
    assert (barrier.begin(), barrier.is_broken, barrier.failure) == (False, True, "")
