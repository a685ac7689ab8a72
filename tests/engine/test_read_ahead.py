"""What a load will look at is read before it is asked for: in windows, in turns, and ended with the load."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from halogend.checkpoint import errors
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.tensor_table import TensorInfo
from halogend.engine import read_ahead
from halogend.engine.bench.page_cache import cached_share, drop
from halogend.engine.mapping import WeightMap
from halogend.engine.passing import Passing
from halogend.engine.read_ahead import ReadAhead, Span, turn

PATIENCE_S = 60.0


class Reading:
    """A file of zeros, mapped, and one tensor over all of it."""

    def __init__(self, path: Path, nbytes: int = 1 << 20) -> None:
        path.write_bytes(bytes(nbytes))
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY)
        self.tensor = TensorInfo("w", (nbytes,), None, 0, nbytes)  # type: ignore[arg-type]  # nobody looks
        self.map = WeightMap((path,), (self.descriptor,), [0])
        self.passing = Passing((path,), (self.descriptor,))
        self.told: list[int] = []

    def ahead(self, *, yields: bool = False, stays: bool = True, count: int = 1) -> ReadAhead:
        """Of all of it, `count` times."""
        spans = [Span(self.tensor, stays=stays)] * count
        return ReadAhead(spans, self.map, self.passing, self.told.append, yields=yields)

    def watched(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[int, int]]]:
        """What is read and what is mapped from now on, in order: first byte, bytes."""
        told: dict[str, list[tuple[int, int]]] = {"read": [], "mapped": []}
        read, populate = self.passing.read, self.map.populate

        def reading(tensor: TensorInfo, start: int, nbytes: int) -> None:
            told["read"].append((start, nbytes))
            read(tensor, start, nbytes)

        def mapping(tensor: TensorInfo, start: int, nbytes: int) -> None:
            told["mapped"].append((start, nbytes))
            populate(tensor, start, nbytes)

        monkeypatch.setattr(self.passing, "read", reading)
        monkeypatch.setattr(self.map, "populate", mapping)
        return told


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


@pytest.mark.parametrize("yields", [False, True])
def test_what_does_not_stay_is_not_mapped_and_told_by_whoever_takes_it(
    reading: Reading, monkeypatch: pytest.MonkeyPatch, yields: bool
) -> None:
    """Beside others who takes it is slow enough without."""
    seen = reading.watched(monkeypatch)
    with reading.ahead(stays=False, yields=yields) as ahead:
        ahead.finish()
    windows = [(start, 64 << 10) for start in range(0, 1 << 20, 64 << 10)]
    assert (reading.told, seen) == ([], {"read": [] if yields else windows, "mapped": []})


def test_what_is_read_is_mapped_at_once_but_for_a_while(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, rest = reading.watched(monkeypatch), threading.Event()
    read = reading.passing.read

    def waiting(tensor: TensorInfo, start: int, nbytes: int) -> None:
        if len(seen["read"]) >= 16:
            assert rest.wait(PATIENCE_S)
        read(tensor, start, nbytes)

    monkeypatch.setattr(reading.passing, "read", waiting)
    with reading.ahead(count=3) as ahead:
        ahead.begin()
        ahead.until(1)
        with ahead.apart():
            assert len(seen["mapped"]) == 16
            rest.set()
            ahead.until(3)
            assert (len(seen["read"]), len(seen["mapped"])) == (48, 16)
        ahead.finish()
    assert seen["mapped"] == seen["read"]


@pytest.mark.parametrize("waits_for", ["until", "finish"])
def test_who_waits_for_what_cannot_be_read_learns_why(reading: Reading, waits_for: str) -> None:
    os.truncate(reading.path, 200 << 10)
    with reading.ahead() as ahead:
        ahead.begin()
        with pytest.raises(CheckpointError, match="the file ends inside tensor 'w'") as caught:
            ahead.until(1) if waits_for == "until" else ahead.finish()
    assert caught.value.code == errors.TRUNCATED


def test_a_file_that_loses_what_was_read_before_it_is_mapped_is_refused(reading: Reading) -> None:
    with reading.ahead() as ahead:
        with ahead.apart():
            ahead.begin()
            ahead.until(1)
            os.truncate(reading.path, 200 << 10)
        with pytest.raises(CheckpointError, match="the file ends inside tensor 'w'"):
            ahead.finish()


@pytest.mark.parametrize("passes", [True, False])
def test_what_was_read_is_in_the_page_cache(reading: Reading, monkeypatch: pytest.MonkeyPatch, passes: bool) -> None:
    def refused(*_: int) -> int:
        raise OSError(22, "Invalid argument")

    if not passes:
        monkeypatch.setattr(os, "sendfile", refused)
    with reading.path.open("r+b") as file:
        os.fsync(file.fileno())
    drop(reading.path)
    if cached_share([reading.path]) > 0:
        pytest.skip("this file system keeps its pages")
    reading.passing.read(reading.tensor, 0, reading.tensor.nbytes)
    assert cached_share([reading.path]) == 1


def test_reading_ends_with_a_load_that_failed(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    began = threading.Event()
    monkeypatch.setattr(reading.map, "populate", lambda *_: began.set())

    def endless(_: int) -> None:
        began.wait()

    spans = [Span(reading.tensor, stays=True)] * 10_000
    with ReadAhead(spans, reading.map, reading.passing, endless, yields=False) as ahead:
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
