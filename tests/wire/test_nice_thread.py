"""What a thread that loads beside those that serve does about itself."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from halogend.wire.process import nice_thread


def _mine() -> tuple[int, int]:
    """Niceness and policy of the calling thread."""
    thread = threading.get_native_id()
    return os.getpriority(os.PRIO_PROCESS, thread), os.sched_getscheduler(thread)


@pytest.mark.parametrize("level", [10, 19])
def test_it_gives_way_to_all_others_and_so_does_what_it_starts(level: int) -> None:
    def load() -> list[tuple[int, int]]:
        nice_thread(level)
        with ThreadPoolExecutor(1) as helpers:
            return [_mine(), helpers.submit(_mine).result()]

    before = _mine()
    with ThreadPoolExecutor(1) as loader:
        seen = loader.submit(load).result()
    assert seen == [(max(level, before[0]), os.SCHED_IDLE)] * 2
    assert _mine() == before


def test_alone_it_loads_as_any_thread_does() -> None:
    before = _mine()
    with ThreadPoolExecutor(1) as loader:
        loader.submit(nice_thread, 0).result()
        assert loader.submit(_mine).result() == before
