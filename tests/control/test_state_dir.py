"""The state folder: whole files or none, whatever ends the process or lies there already."""

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest
from support.played.world import until

from halogend.control.state_dir import StateDir, StateError
from halogend.control.state_writer import StateWriter

WRITER = """
import sys
from pathlib import Path
from halogend.control.state_dir import StateDir
folder = StateDir.open(Path(sys.argv[1]))
print("begun", flush=True)
number = 0
while True:
    number += 1
    folder.write(f"receipts/r{number % 7}", (str(number % 10) * 70_000).encode())
    folder.write("state.json", (str(number % 10) * 9_000).encode())
"""


@pytest.fixture
def opened(tmp_path):
    """Opens a folder; every one is closed in the end."""
    made = []

    def open_(path=tmp_path / "state"):
        made.append(StateDir.open(path))
        return made[-1]

    yield open_
    for each in made:
        each.close()


def is_whole(data):
    return len(data) in (70_000, 9_000) and len(set(data)) == 1


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.03, 0.05, 0.08, 0.12])
def test_a_kill_in_the_middle_of_a_write_leaves_whole_files(tmp_path, opened, after_s):
    path = tmp_path / "state"
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"begun\n"
    killer = threading.Timer(after_s, process.send_signal, [signal.SIGKILL])
    killer.start()
    process.wait()
    process.stdout.close()
    folder = opened(path)
    left = [name for _, _, names in os.walk(path) for name in names]
    assert not [name for name in left if name.startswith(".unfinished-")]
    for name in [*folder.names("receipts"), "state.json"]:
        data = folder.read(name)
        assert data is None or is_whole(data), name
    folder.write("state.json", b"x")
    assert folder.read("state.json") == b"x"


def test_what_was_written_is_read_by_the_next(opened, tmp_path):
    first = StateDir.open(tmp_path / "deep" / "state")
    first.write("receipts/r1", b"one")
    first.write("receipts/r1", b"two")
    first.write("state.json", b"{}")
    first.close()
    second = opened(tmp_path / "deep" / "state")
    assert second.names("receipts") == ["receipts/r1"]
    assert (second.read("receipts/r1"), second.read("receipts/r2")) == (b"two", None)
    second.remove("receipts/r1")
    second.remove("receipts/r1")
    assert second.names("receipts") == []
    assert (tmp_path / "deep/state").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "deep/state/state.json").stat().st_mode & 0o777 == 0o600


def test_only_one_daemon_has_a_folder(opened, tmp_path):
    opened()
    with pytest.raises(StateError, match="another halogend uses it"):
        StateDir.open(tmp_path / "state")


def test_a_folder_that_cannot_be_is_an_error_with_its_reason(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StateError, match="Not a directory"):
        StateDir.open(tmp_path / "file" / "state")
    with pytest.raises(StateError, match="File exists"):
        StateDir.open(tmp_path / "file")


def test_what_is_no_file_or_too_large_is_set_aside(opened, tmp_path):
    folder = opened()
    (tmp_path / "state/state.json").mkdir()
    assert folder.read("state.json") is None
    assert (tmp_path / "state/state.json.bad").is_dir()
    with (tmp_path / "state/big").open("wb") as file:
        file.truncate((8 << 20) + 1)
    assert folder.read("big") is None
    assert not (tmp_path / "state/big").exists()


async def test_the_newest_of_several_writes_is_made_and_a_stop_waits_for_it(tmp_path):
    writer = StateWriter(StateDir.open(tmp_path / "state"))
    made = []
    write = writer.folder.write
    writer.folder.write = lambda name, data: (made.append((name, data)), write(name, data))
    for number in range(100):
        writer.write("a", str(number).encode())
        writer.write("b", b"b")
    writer.write("gone", b"x")
    writer.remove("gone")
    await writer.stop()
    assert (tmp_path / "state/a").read_bytes() == b"99"
    assert not (tmp_path / "state/gone").exists()
    assert len(made) < 10


async def test_a_full_disk_is_told_once_and_when_it_is_over(tmp_path, capsys):
    writer = StateWriter(StateDir.open(tmp_path / "state"))
    write, is_full = writer.folder.write, [True]

    def limited(name, data):
        if is_full[0]:
            raise OSError(28, "No space left on device")
        write(name, data)

    writer.folder.write = limited
    for name in ("a", "b", "c"):
        writer.write(name, b"1")
    await writer._idle.wait()
    assert writer.trouble == "No space left on device"
    is_full[0] = False
    writer.write("d", b"1")
    await writer._idle.wait()
    assert writer.trouble == "No space left on device"  # a, b and c are still owed
    await writer.stop()
    said = capsys.readouterr().out
    assert writer.trouble is None
    assert (said.count("state_not_written"), said.count("state_written_again")) == (1, 1)
    assert [(tmp_path / "state" / name).read_bytes() for name in "abcd"] == [b"1"] * 4


async def until_all_is_written(writer):
    await until(lambda: writer.trouble is None and writer._idle.is_set(), "all is written")


async def test_what_could_not_be_written_is_tried_again_by_itself(tmp_path, capsys):
    """One write fails; those after it go well. Nothing is well until the first is there too."""
    writer = StateWriter(StateDir.open(tmp_path / "state"), retry_s=0.02)
    write, fails = writer.folder.write, [3]

    def failing(name, data):
        if name == "documents/d" and fails[0] > 0:
            fails[0] -= 1
            raise OSError(28, "No space left on device")
        write(name, data)

    writer.folder.write = failing
    writer.write("documents/d", b"text")
    writer.write("state.json", b"{}")
    await writer._idle.wait()
    assert (tmp_path / "state/state.json").read_bytes() == b"{}"
    assert writer.trouble == "No space left on device"
    await until_all_is_written(writer)
    assert (tmp_path / "state/documents/d").read_bytes() == b"text"
    said = capsys.readouterr().out
    assert (said.count("state_not_written"), said.count("state_written_again")) == (1, 1)
    await writer.stop()


async def test_a_newer_wish_for_a_file_takes_the_place_of_what_is_owed(tmp_path):
    writer = StateWriter(StateDir.open(tmp_path / "state"), retry_s=0.02)
    write, is_full = writer.folder.write, [True]

    def limited(name, data):
        if is_full[0]:
            raise OSError(28, "No space left on device")
        write(name, data)

    writer.folder.write = limited
    for name in ("a", "gone"):
        writer.write(name, b"old")
    await writer._idle.wait()
    writer.remove("gone")
    await writer._idle.wait()
    is_full[0] = False
    writer.write("a", b"new")
    await until_all_is_written(writer)
    assert (tmp_path / "state/a").read_bytes() == b"new"
    assert not (tmp_path / "state/gone").exists()
    await writer.stop()


async def test_a_stop_does_not_wait_for_a_disk_that_stays_full(tmp_path):
    writer = StateWriter(StateDir.open(tmp_path / "state"))
    tried = []

    def full(name, data):
        tried.append(name)
        raise OSError(28, "No space left on device")

    writer.folder.write = full
    writer.write("a", b"1")
    await writer._idle.wait()
    async with asyncio.timeout(4):
        await writer.stop()
    assert tried == ["a", "a"]
    assert writer.trouble is not None


# --- whose folder it is -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777, 0o2775])
def test_a_folder_that_others_may_write_is_refused_with_what_to_do(tmp_path, opened, mode):
    path = tmp_path / "state"
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(StateError, match=rf"others may write there \(mode {mode:04o}\).*chmod 700"):
        StateDir.open(path)
    assert list(path.iterdir()) == []
    path.chmod(0o755)
    opened()


def test_a_folder_of_somebody_elses_is_refused_also_behind_a_symlink(tmp_path, opened, monkeypatch):
    user = os.geteuid()
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("state")
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    for name in ("state", "link"):
        with pytest.raises(StateError, match=f"belongs to user {user}, and this is user {user + 1}.*--state"):
            StateDir.open(tmp_path / name)
    assert list((tmp_path / "state").iterdir()) == []
    monkeypatch.undo()
    through = opened(tmp_path / "link")
    through.write("state.json", b"{}")
    assert (through.path, through.read("state.json")) == (tmp_path / "state", b"{}")


def test_no_file_is_written_through_a_symlink(tmp_path, opened):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state/lock").symlink_to(victim)
    with pytest.raises(StateError, match="symbolic links"):
        StateDir.open(tmp_path / "state")
    (tmp_path / "state/lock").unlink()
    folder = opened()
    (tmp_path / "state/.unfinished-a").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        folder.write("a", b"x")
    folder.write("a", b"x")
    assert (victim.read_bytes(), folder.read("a")) == (b"precious", b"x")


def test_removing_what_is_not_there_asks_nothing_of_the_disk(tmp_path, opened, monkeypatch):
    def read_only(self, missing_ok=False):
        raise OSError(30, "Read-only file system")

    folder = opened()
    folder.write("a", b"x")
    monkeypatch.setattr(type(tmp_path), "unlink", read_only)
    folder.remove("b")
    with pytest.raises(OSError, match="Read-only"):
        folder.remove("a")
