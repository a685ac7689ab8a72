"""A loading thread's processor time as a sign of life."""

import threading
import time

from halogend.wire.process import ThreadClock

_A_MOMENT_S = 0.2


def run(clock, work):
    def body():
        clock.follow()
        work()
        clock.leave()

    thread = threading.Thread(target=body)
    thread.start()
    return thread


def test_it_moves_while_the_thread_computes_and_rests_while_it_waits():
    clock, go, end = ThreadClock(), threading.Event(), threading.Event()
    assert clock.ticks() == 0
    thread = run(clock, lambda: (go.wait(), sum(range(5_000_000)), end.wait()))
    waiting = clock.ticks()
    assert clock.ticks() == waiting
    go.set()
    while clock.ticks() <= waiting:
        assert thread.is_alive()
    end.set()
    thread.join()
    last = clock.ticks()
    assert last > waiting
    assert clock.ticks() == last


def test_a_thread_that_ends_while_its_clock_is_read(monkeypatch):
    clock, here, end = ThreadClock(), threading.Event(), threading.Event()
    thread = run(clock, lambda: (here.set(), end.wait()))
    here.wait()
    read = time.clock_gettime

    def read_late(number):
        if threading.current_thread() is not thread:
            end.set()
            thread.join(_A_MOMENT_S)  # it ends now, unless it must wait for us
        return read(number)

    monkeypatch.setattr(time, "clock_gettime", read_late)
    assert clock.ticks() >= 0
    thread.join()


def test_a_thread_that_follows_another_goes_on_where_that_one_was():
    clock = ThreadClock()
    run(clock, lambda: sum(range(5_000_000))).join()
    first = clock.ticks()
    run(clock, lambda: sum(range(5_000_000))).join()
    assert first > 0
    assert clock.ticks() > first
