"""The file source: real folders, real file events, real ConfigMap layouts. Times are short, not mocked."""

import asyncio
import contextlib
import os

import pytest

from halogend.control.file_source import FileSource, Timing
from halogend.control.source import SourceError
from halogend.control.state_dir import StateDir

FAST = Timing(trailing=0.05, longest=0.4, poll=0.2)
NEVER_POLL = Timing(trailing=0.05, longest=0.4, poll=3600)


@contextlib.asynccontextmanager
async def watching(path, timing=NEVER_POLL):
    """Contents as they are offered; what is there at first counts as seen."""
    offered: asyncio.Queue[bytes] = asyncio.Queue()
    source = FileSource(path, lambda content: offered.put_nowait(content.data), timing)
    with contextlib.suppress(SourceError):
        source.seen(source.read())
    source.start()
    try:
        yield offered
    finally:
        await source.stop()


async def nothing_more(offered, for_s=0.6):
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(offered.get(), for_s)


async def next_of(offered):
    return await asyncio.wait_for(offered.get(), 10)


def swap(folder, number, text):
    """kubelet's layout: config.yaml -> ..data/config.yaml, ..data -> a folder, replaced by rename."""
    data = folder / f"..2026_{number}"
    data.mkdir()
    (data / "config.yaml").write_text(text)
    (folder / "..data_tmp").symlink_to(data.name)
    (folder / "..data_tmp").rename(folder / "..data")


async def test_r1_every_configmap_swap_is_seen_the_third_like_the_first(tmp_path):
    swap(tmp_path, 0, "zero")
    (tmp_path / "config.yaml").symlink_to("..data/config.yaml")
    async with watching(tmp_path / "config.yaml") as offered:
        for number in range(1, 5):
            swap(tmp_path, number, f"content {number}")
            assert await next_of(offered) == f"content {number}".encode()
        await nothing_more(offered)


async def test_r5_state_written_into_the_watched_folder_is_no_edit(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("old")
    folder = StateDir.open(tmp_path)
    async with watching(path, FAST) as offered:
        for number in range(30):
            folder.write("state.json", str(number).encode())
            folder.write(f"receipts/r{number}", b"x")
            await asyncio.sleep(0.02)  # over several bursts and polls
        path.write_text("new")
        assert await next_of(offered) == b"new"
        await nothing_more(offered)
    folder.close()


async def test_a_look_that_is_not_a_reading_leaves_the_watch_its_edit(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("old")
    offered = asyncio.Queue()
    source = FileSource(path, lambda content: offered.put_nowait(content.data), FAST)
    source.seen(source.read())
    path.write_text("new")
    assert source.read().data == b"new"
    source.start()
    assert await next_of(offered) == b"new"
    await source.stop()


async def test_r2_an_editor_that_truncates_and_writes_in_pieces_is_one_offer(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("old")
    async with watching(path) as offered:
        with path.open("w") as file:
            for piece in ("new ", "content ", "in pieces"):
                file.write(piece)
                file.flush()
                await asyncio.sleep(0.01)
        assert await next_of(offered) == b"new content in pieces"
        await nothing_more(offered)


async def test_r2_a_rename_over_the_file_is_one_offer(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("old")
    async with watching(path) as offered:
        (tmp_path / ".new").write_text("new")
        (tmp_path / ".new").rename(path)
        assert await next_of(offered) == b"new"
        await nothing_more(offered)


@pytest.mark.parametrize("empty", ["", "\n  \n"])
async def test_r2_an_empty_file_is_never_offered(tmp_path, empty):
    path = tmp_path / "config.yaml"
    path.write_text("old")
    async with watching(path) as offered:
        path.write_text(empty)
        await nothing_more(offered)
        path.write_text("old")
        await nothing_more(offered)
        path.write_text("new")
        assert await next_of(offered) == b"new"


async def test_r4_removed_and_back_again_applies_the_new_content(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("old")
    async with watching(path) as offered:
        path.unlink()
        await nothing_more(offered)
        path.write_text("new")
        assert await next_of(offered) == b"new"


async def test_other_files_in_the_folder_and_the_same_bytes_offer_nothing(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("same")
    async with watching(path) as offered:
        (tmp_path / "other.yaml").write_text("x")
        path.write_text("same")
        os.utime(path)
        await nothing_more(offered)


async def test_a_change_that_brings_no_event_is_found_by_the_poll(tmp_path):
    """The content lies in another folder, behind a symlink: the watched folder hears nothing."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "real.yaml").write_text("old")
    folder = tmp_path / "watched"
    folder.mkdir()
    (folder / "config.yaml").symlink_to(elsewhere / "real.yaml")
    async with watching(folder / "config.yaml", FAST) as offered:
        (elsewhere / "real.yaml").write_text("new")
        assert await next_of(offered) == b"new"


async def test_a_burst_that_does_not_end_is_offered_at_the_latest_after_the_longest_wait(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("old")
    async with watching(path) as offered:

        async def keep_writing():
            for number in range(10_000):
                path.write_text(f"content {number}")
                await asyncio.sleep(0.01)

        task = asyncio.create_task(keep_writing())
        assert (await next_of(offered)).startswith(b"content")
        task.cancel()


def test_what_cannot_be_read_says_which_file_and_why(tmp_path):
    source = FileSource(tmp_path / "gone.yaml", lambda content: None)
    with pytest.raises(SourceError, match=r"gone\.yaml cannot be read: No such file"):
        source.read()
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(SourceError, match="not a regular file"):
        FileSource(tmp_path / "fifo", lambda content: None).read()
    (tmp_path / "big.yaml").write_bytes(b"#" * (5 << 20))
    with pytest.raises(SourceError, match="larger than 4 MiB"):
        FileSource(tmp_path / "big.yaml", lambda content: None).read()
