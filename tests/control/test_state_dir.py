"""The state folder: whole files or none, whatever ends the process or lies there already."""

import os
import signal
import subprocess
import sys
import threading

import pytest

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
    await writer.stop()
    said = capsys.readouterr().out
    assert writer.trouble is None
    assert (said.count("state_not_written"), said.count("state_written_again")) == (1, 1)
    assert (tmp_path / "state/d").read_bytes() == b"1"
