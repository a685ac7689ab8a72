"""Writing leaves the whole file or none (C7)."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.v2_files import SOURCE, TEXT, tiny_geometry, wanted_of, write_v2

from halogend.checkpoint.errors import NO_SPACE, TENSOR_MISSING, UNWRITABLE, CheckpointError
from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.v2.layout import ROW
from halogend.checkpoint.v2.reader import open_v2
from halogend.checkpoint.v2.verify import verify
from halogend.checkpoint.v2.writer import Wanted, Writer


def writer(path: Path, **options: Any) -> Writer:
    return Writer(path, model=tiny_geometry(), quantisation="bf16", **options)


def wanted() -> list[Wanted]:
    return wanted_of(tiny_geometry(), "bf16", TEXT)


def fill(one: Writer) -> None:
    for entry in one.entries.values():
        one.write(entry.name, 0, bytes(entry.nbytes))


def test_data_may_come_from_threads_in_any_order_and_in_pieces(tmp_path: Path):
    with writer(tmp_path / "m.hgn2") as one:
        entries = one.plan(wanted())
        pieces = [(entry, start) for entry in reversed(entries) for start in range(0, entry.nbytes, 1000)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda piece: one.write(piece[0].name, piece[1], _content(*piece)), pieces))
        told: list[int] = []
        one.finish("files", SOURCE, threads=2, advance=told.append)
    file = open_v2(tmp_path / "m.hgn2")
    assert verify(file) == ()
    assert sum(told) == sum(e.nbytes for e in entries) + file.header.file_bytes - file.header.data_start
    with file.path.open("rb") as opened:
        for entry in entries:
            opened.seek(entry.offset)
            assert opened.read(entry.nbytes) == b"".join(
                _content(entry, start) for start in range(0, entry.nbytes, 1000)
            )


def _content(entry: Any, start: int) -> bytes:
    return bytes([(start // 1000 + len(entry.name)) % 251]) * min(1000, entry.nbytes - start)


@pytest.mark.parametrize("part_bytes", [None, 100_000])
def test_until_it_is_finished_nothing_opens_and_afterwards_nothing_else_is_left(tmp_path: Path, part_bytes: int | None):
    one = writer(tmp_path / "m.hgn2", part_bytes=part_bytes)
    one.plan(wanted())
    fill(one)
    assert not (tmp_path / "m.hgn2").exists()
    for each in tmp_path.iterdir():
        assert each.name.startswith(".m")
        with pytest.raises(CheckpointError):
            open_v2(each)
    one.finish("files", SOURCE)
    one.abandon()
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]
    assert verify(open_v2(tmp_path / "m.hgn2")) == ()


@pytest.mark.parametrize("part_bytes", [None, 100_000])
def test_what_is_abandoned_leaves_nothing(tmp_path: Path, part_bytes: int | None):
    with writer(tmp_path / "m.hgn2", part_bytes=part_bytes) as one:
        one.plan(wanted())
        one.write("token_embd", 0, b"1")
    assert list(tmp_path.iterdir()) == []


def test_an_older_file_stays_until_the_new_one_is_whole(tmp_path: Path):
    path = write_v2(tmp_path / "m.hgn2", seed=1)
    before = open_v2(path).digest
    with writer(path) as one:
        one.plan(wanted())
        fill(one)
        assert open_v2(path).digest == before
        one.finish("files", SOURCE)
    assert open_v2(path).digest != before


@pytest.mark.parametrize("part_bytes", [150_000, None])
def test_a_set_of_another_size_leaves_none_of_its_parts(tmp_path: Path, part_bytes: int | None):
    path = write_v2(tmp_path / "m.hgn2", part_bytes=50_000)
    other, strange = write_v2(tmp_path / "m-2.hgn2", part_bytes=100_000), tmp_path / "m-00001-of-00099.hgn2"
    strange.write_bytes(b"what is no part stays")
    before = open_v2(path).files
    write_v2(path, part_bytes=part_bytes, seed=1)
    file = open_v2(path)
    assert len(file.files) < len(before)
    assert verify(file) == verify(open_v2(other)) == ()
    assert set(tmp_path.iterdir()) == {*file.all_files, *open_v2(other).all_files, strange}


def test_what_is_sealed_can_be_looked_at_before_it_takes_its_place(tmp_path: Path):
    path = write_v2(tmp_path / "m.hgn2", part_bytes=100_000, seed=1)
    before = open_v2(path).digest
    for part_bytes in (None, 100_000):
        with writer(path, part_bytes=part_bytes) as one:
            one.plan(wanted())
            fill(one)
            metadata = one.seal("files", SOURCE)
            sealed = one.sealed()
            assert (sealed.metadata, verify(sealed)) == (metadata, ())
            assert len(sealed.files) == len(metadata.chunks)
        assert open_v2(path).digest == before
        assert not list(tmp_path.glob(".*"))


def test_room_is_looked_for_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """C7."""
    there = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result([*there[:4], 10, *there[5:]]))
    with pytest.raises(CheckpointError, match=rf"\d+ bytes are wanted, {10 * there.f_frsize} are free") as caught:
        writer(tmp_path / "m.hgn2").plan(wanted())
    assert caught.value.code == NO_SPACE
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_in_the_middle_is_told_and_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """C7: somebody else took the room."""

    def full(*_: object) -> int:
        raise OSError(28, os.strerror(28))

    with writer(tmp_path / "m.hgn2") as one:
        one.plan(wanted())
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(CheckpointError, match="No space left") as caught:
            one.write("token_embd", 0, b"1")
        assert caught.value.code == NO_SPACE
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(CheckpointError, match="cannot be written: No such file") as caught:
        writer(tmp_path / "none/m.hgn2").plan(wanted())
    assert caught.value.code == UNWRITABLE


def test_weights_that_are_not_the_models_are_refused_before_anything_is_written(tmp_path: Path):
    with pytest.raises(CheckpointError) as caught:
        writer(tmp_path / "m.hgn2").plan(wanted()[1:])
    assert caught.value.code == TENSOR_MISSING
    assert list(tmp_path.iterdir()) == []


def test_what_its_caller_does_wrong_is_a_value_error(tmp_path: Path):
    with pytest.raises(ValueError, match="twice"):
        writer(tmp_path / "m.hgn2").plan([*wanted(), Wanted("token_embd", PlainType.F32, (1,), ROW)])
    with writer(tmp_path / "m.hgn2") as one:
        one.plan(wanted(), notes_bytes=0)
        with pytest.raises(ValueError, match="was not written whole"):
            one.finish("files", SOURCE)
        with pytest.raises(ValueError, match="are not in 'token_embd'"):
            one.write("token_embd", 60 * 96 * 2 - 1, b"ab")
        fill(one)
        with pytest.raises(ValueError, match="more than was put aside"):
            one.finish("files", SOURCE, ["x" * 5000])
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_is_removed_by_the_next_of_that_name(tmp_path: Path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    again = tmp_path / f".m.hgn2.tmp-{os.getpid()}-0123"  # whose number another process has since
    stale = [
        tmp_path / f".m.hgn2.tmp-{dead.pid}-abcd",
        tmp_path / f".m-00001-of-00003.hgn2.tmp-{dead.pid}-12ef",
        again,
    ]
    others = [
        tmp_path / f".m.hgn2.tmp-{os.getpid()}-abcd",  # whose writer lives
        tmp_path / f".n.hgn2.tmp-{dead.pid}-abcd",
        tmp_path / f".m.hgn2.tmp-{dead.pid}-mine",
        tmp_path / f".m.hgn2.tmp-{dead.pid}-beef",  # locked by somebody whom another name space hides
    ]
    for each in (*stale, *others):
        each.write_bytes(b"")
    os.utime(again, (0, 0))
    os.utime(others[3], (0, 0))
    with others[3].open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with writer(tmp_path / "m.hgn2") as one:
            one.plan(wanted())
            assert not any(each.exists() for each in stale)
            assert all(each.exists() for each in others)


def test_a_file_system_without_locks_is_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def none(*_: object) -> None:
        raise OSError(95, os.strerror(95))

    monkeypatch.setattr(fcntl, "flock", none)
    assert verify(open_v2(write_v2(tmp_path / "m.hgn2"))) == ()


KILLED = """
import os, signal, sys
from pathlib import Path
from support.v2_files import SOURCE, TEXT, tiny_geometry, wanted_of
from halogend.checkpoint.v2.writer import Writer

count, left = int(sys.argv[2]), int(sys.argv[2])
calls = ("pwrite", "fsync", "replace")
def counted(real):
    def call(*args, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **options)
    return call
for name in calls:
    setattr(os, name, counted(getattr(os, name)))
one = Writer(Path(sys.argv[1]), model=tiny_geometry(), quantisation="bf16", part_bytes=int(sys.argv[3]))
for entry in one.plan(wanted_of(tiny_geometry(), "bf16", TEXT)):
    one.write(entry.name, 0, bytes(entry.nbytes))
one.finish("files", SOURCE, threads=1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("part_bytes", [1 << 30, 200_000])
def test_a_writer_killed_at_any_call_leaves_no_file_that_opens_or_a_whole_one(tmp_path: Path, part_bytes: int):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for count in range(0, 200, 3):
        folder = tmp_path / str(count)
        folder.mkdir()
        command = [sys.executable, "-c", KILLED, str(folder / "m.hgn2"), str(count), str(part_bytes)]
        ended = subprocess.run(command, env=environment, check=False).returncode
        for each in folder.iterdir():
            try:
                file = open_v2(each)
            except CheckpointError:
                continue
            assert verify(file) == ()
        if ended == 0:
            break
    assert count > 20
