"""What a process and a thread that loads beside those that serve do about themselves."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from halogend.wire.process import hand_over_soon, import_nicely, nice_thread


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


def test_what_is_imported_nicely_is_there_and_whoever_wanted_it_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "heavy_import.py").write_text(
        "import os, threading\nNICENESS = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())\n"
    )
    (tmp_path / "broken_import.py").write_text("raise ValueError('in the middle')\n")
    before = _niceness()
    import_nicely("heavy_import", 19)
    assert sys.modules["heavy_import"].NICENESS == 19
    with pytest.raises(ValueError, match="in the middle"):
        import_nicely("broken_import", 19)
    assert _niceness() == before
    del sys.modules["heavy_import"]


def test_who_wants_the_interpreter_has_it_before_a_small_model_has_made_a_token() -> None:
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)  # Python's own; a daemon that ran in this process has set another
        hand_over_soon()
        assert sys.getswitchinterval() < 0.001
    finally:
        sys.setswitchinterval(before)
