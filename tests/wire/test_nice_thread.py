"""What a thread that loads beside those that serve does about itself."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from halogend.wire.process import nice_thread


def _niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.parametrize("level", [10, 19])
def test_it_gives_way_to_all_others_and_so_does_what_it_starts(level: int) -> None:
    def load() -> list[int]:
        nice_thread(level)
        with ThreadPoolExecutor(1) as helpers:
            return [_niceness(), helpers.submit(_niceness).result()]

    before = _niceness()
    with ThreadPoolExecutor(1) as loader:
        seen = loader.submit(load).result()
    assert seen == [max(level, before)] * 2
    assert _niceness() == before


def test_alone_it_loads_as_any_thread_does() -> None:
    before = _niceness()
    with ThreadPoolExecutor(1) as loader:
        loader.submit(nice_thread, 0).result()
        assert loader.submit(_niceness).result() == before
