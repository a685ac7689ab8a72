"""What a load will look at is read before it is asked for: in windows, in turns, and ended with the load."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from halogend.checkpoint.tensor_table import TensorInfo
from halogend.engine import read_ahead
from halogend.engine.mapping import WeightMap
from halogend.engine.read_ahead import ReadAhead, Span, turn


class Reading:
    """A file of zeros, mapped, and one tensor over all of it."""

    def __init__(self, path: Path, nbytes: int = 1 << 20) -> None:
        path.write_bytes(bytes(nbytes))
        self.descriptor = os.open(path, os.O_RDONLY)
        self.tensor = TensorInfo("w", (nbytes,), None, 0, nbytes)  # type: ignore[arg-type]  # nobody looks
        self.map = WeightMap((path,), (self.descriptor,), [0])
        self.told: list[int] = []

    def ahead(self, *, yields: bool = False, stays: bool = True) -> ReadAhead:
        spans = [Span(self.tensor, stays=stays)]
        return ReadAhead(spans, self.map, (self.descriptor,), self.told.append, yields=yields)


@pytest.fixture
def reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reading:
    monkeypatch.setattr(read_ahead, "WINDOW_BYTES", 64 << 10)
    return Reading(tmp_path / "w")


@pytest.mark.parametrize("yields", [False, True])
@pytest.mark.parametrize("own_thread", [False, True])
def test_all_is_read_once_in_windows(reading: Reading, yields: bool, own_thread: bool) -> None:
    with reading.ahead(yields=yields) as ahead:
        if own_thread:
            ahead.begin()
        ahead.finish()
        ahead.finish()
    assert reading.told == [64 << 10] * 16


def test_what_does_not_stay_is_asked_for_and_told_by_whoever_takes_it(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces of which the system reads all: of one of 16 MiB it reads 1.25 MiB from a usual disk."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(read_ahead, "WINDOW_BYTES", 300 << 10)
    monkeypatch.setattr(os, "posix_fadvise", lambda _, start, nbytes, advice: asked.append((start, nbytes)))
    with reading.ahead(stays=False) as ahead:
        ahead.finish()
    assert reading.told == []
    assert max(nbytes for _, nbytes in asked) <= 128 << 10
    starts, ends = zip(*((start, start + nbytes) for start, nbytes in asked), strict=True)
    assert (starts, ends[-1]) == ((0, *ends[:-1]), reading.tensor.nbytes)


def test_reading_ends_with_a_load_that_failed(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    began = threading.Event()
    monkeypatch.setattr(reading.map, "populate", lambda *_: began.set())

    def endless(_: int) -> None:
        began.wait()

    ahead = ReadAhead(
        [Span(reading.tensor, stays=True)] * 10_000, reading.map, (reading.descriptor,), endless, yields=False
    )
    with ahead:
        ahead.begin()
        began.wait()
    assert not any(thread.name == "read-ahead" for thread in threading.enumerate())


def test_a_kernel_that_cannot_read_ahead_is_done_without(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halogend.engine.mapping._POPULATE_READ", 9999)
    with reading.ahead() as ahead:
        ahead.finish()
    assert sum(reading.told) == reading.tensor.nbytes


def test_c5_one_at_a_time_reads_a_file_from_a_slow_disk(
    reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is the file's, not the process's: another load's own descriptor waits for it."""
    monkeypatch.setattr(read_ahead, "_PATIENCE_S", 0.02)
    other = os.open(tmp_path / "w", os.O_RDONLY)
    never = threading.Event()
    with turn(reading.descriptor, never), pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with turn(reading.descriptor, never):
        pass
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # given back
    with turn(reading.descriptor, never), pytest.raises(BlockingIOError):  # patience is over; what is held is not taken
        fcntl.flock(reading.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    monkeypatch.setattr(read_ahead, "_MEMORY_BYTES_PER_S", 1e15)  # so everything came from a disk
    with reading.ahead() as ahead:
        ahead.finish()
    assert sum(reading.told) == reading.tensor.nbytes, "a lock that is never given back stops no load"
    os.close(other)
