"""A loading thread's processor time as a sign of life."""

import threading

from halogend.wire.process import ThreadClock


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
