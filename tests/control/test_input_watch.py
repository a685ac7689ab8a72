"""The slow look at key and certificate files: told once, when the writer is done, whatever became of it."""

import asyncio
import os
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from halogend.control import input_watch
from halogend.control.input_files import Signature, signature
from halogend.control.input_watch import InputWatch


class Watched:
    """A watch over files that were read when this was made; `read_again` is what a reload does."""

    def __init__(self, *paths: Path) -> None:
        self.paths = paths
        self.told: list[Path] = []
        self.read_again()
        self.watch = InputWatch(lambda: self.read, self._tell, trailing_s=0.0, limit_s=0.05)

    def _tell(self, path: Path, silent: frozenset[Path]) -> None:
        self.told.append(path)
        self.silent = silent

    def read_again(self) -> None:
        self.read = {path: found for path in self.paths if (found := signature(path))}

    async def look(self) -> list[Path]:
        self.told.clear()
        await self.watch.look()
        return list(self.told)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("one")
    return path


def replace(path: Path, text: str) -> None:
    beside = path.with_name("new")
    beside.write_text(text)
    beside.rename(path)


async def test_nothing_new_is_not_told(file: Path) -> None:
    assert await Watched(file).look() == []


async def test_a_change_is_told_once_even_when_it_was_refused(file: Path) -> None:
    watched = Watched(file)
    replace(file, "two")
    assert await watched.look() == [file]
    assert await watched.look() == []
    replace(file, "three")
    assert await watched.look() == [file]


async def test_what_a_reload_has_read_meanwhile_is_not_told(file: Path) -> None:
    watched = Watched(file)
    replace(file, "two")
    watched.read_again()
    assert await watched.look() == []


async def test_a_missing_file_is_somebodys_middle(file: Path) -> None:
    watched = Watched(file)
    os.unlink(file)  # noqa: PTH108  a pathlib call in a coroutine is taken for a slow one
    assert await watched.look() == []
    replace(file, "two")
    assert await watched.look() == [file]


async def test_a_file_that_is_only_touched_is_looked_at(file: Path) -> None:
    watched = Watched(file)
    os.utime(file, ns=(1, 1))
    assert await watched.look() == [file]


async def test_files_that_changed_together_are_one_change(tmp_path: Path, file: Path) -> None:
    other = tmp_path / "cert"
    other.write_text("x")
    watched = Watched(file, other)
    replace(file, "two")
    replace(other, "y")
    assert len(await watched.look()) == 1
    assert await watched.look() == []


async def test_r1_a_secret_volumes_swap_is_seen_each_time(tmp_path: Path) -> None:
    """kubelet's layout: key -> ..data/key, ..data -> a folder of its own, swapped by rename."""
    for number in range(4):
        folder = tmp_path / f"..{number}"
        folder.mkdir()
        (folder / "key").write_text(f"value {number}")
    (tmp_path / "..data").symlink_to("..0")
    (tmp_path / "key").symlink_to("..data/key")
    watched = Watched(tmp_path / "key")
    for number in range(1, 4):
        (tmp_path / "..new").symlink_to(f"..{number}")
        (tmp_path / "..new").rename(tmp_path / "..data")
        assert await watched.look() == [tmp_path / "key"]
        watched.read_again()


async def test_a_writer_in_the_middle_is_waited_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(file)
    texts = iter(["t", "tw", "two"])
    looked = watched.watch._differing

    def writing() -> dict[Path, tuple[int, int, int, int]]:
        if (text := next(texts, None)) is not None:
            replace(file, text)
        return looked()

    monkeypatch.setattr(watched.watch, "_differing", writing)
    assert await watched.look() == [file]
    assert next(texts, None) is None
    assert await watched.look() == []


async def test_a_fault_of_one_look_does_not_end_the_watch(file: Path) -> None:
    read, faults, told = {file: signature(file)}, [ValueError("a bug")], asyncio.Event()

    def faulty() -> dict[Path, Signature]:
        if faults:
            raise faults.pop()
        return {path: found for path, found in read.items() if found}

    watch = InputWatch(faulty, lambda *_: told.set(), every_s=0.0, trailing_s=0.0)
    replace(file, "another")
    with capture_logs() as logs:
        running = asyncio.create_task(watch.run())
        async with asyncio.timeout(10):
            await told.wait()
        running.cancel()
    assert [each["event"] for each in logs] == ["input_look_failed"]


async def test_a_file_that_does_not_answer_is_told_once_and_holds_up_no_other(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = tmp_path / "dead"
    dead.write_text("one")
    watched = Watched(dead, file)
    answers, looks = threading.Event(), []

    def slow(path: Path) -> Signature | None:
        if path == dead:
            looks.append(path)
            answers.wait()
        return signature(path)

    monkeypatch.setattr(input_watch, "signature", slow)
    with capture_logs() as logs:
        replace(file, "two")
        assert await watched.look() == [file]
        assert watched.silent == {dead}
        replace(file, "three")
        assert await watched.look() == [file]
        assert len(looks) == 1
        replace(dead, "two")
        answers.set()
        while watched.watch._silent:
            await watched.look()
    assert [each["event"] for each in logs] == ["input_does_not_answer", "input_answers_again"]
    assert watched.told == [dead]
