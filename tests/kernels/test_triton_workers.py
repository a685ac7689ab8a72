"""Work spread over forks: all of it is done, and what dies or raises fails alone."""

import os
import signal

from halogen_kernels.triton.workers import Failure, in_processes


def made(make, items, jobs):
    return dict(in_processes(make, items, jobs))


def test_everything_is_made_once_by_other_processes():
    found = made(lambda item: (item * item, os.getpid()), list(range(20)), jobs=3)
    assert {number: square for number, (square, _) in found.items()} == {n: n * n for n in range(20)}
    assert os.getpid() not in {pid for _, pid in found.values()}
    assert len({pid for _, pid in found.values()}) <= 3


def test_more_jobs_than_items_and_none_at_all():
    assert made(str, [7], jobs=4) == {0: "7"}
    assert made(str, [], jobs=4) == {}


def test_what_raises_fails_alone():
    found = made(lambda item: 1 // item, [1, 0, 1], jobs=1)
    assert found == {0: 1, 1: Failure("ZeroDivisionError: integer division or modulo by zero"), 2: 1}


def test_what_dies_fails_alone():
    def die(item):
        if item == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    found = made(die, [0, 1, 2, 3], jobs=2)
    assert found.pop(1) == Failure("the compiler died with exit status -9")
    assert found == {0: 0, 2: 2, 3: 3}
