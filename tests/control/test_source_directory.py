"""A directory as the source: real folders, real events. Times are short, not mocked."""

import asyncio
import os
import threading
import time

import pytest
from support.source_folders import ConfigMap, files_of, next_of, nothing_more, watching

from halogend.config.parts import unpack
from halogend.control.file_source import Timing
from halogend.control.source import SourceError
from halogend.control.source_files import read_content, signature

EVENTS = Timing(trailing=0.04, longest=0.3, poll=3600)


def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def test_which_files_count(tmp_path):
    write(tmp_path, b="2", a="1")
    (tmp_path / "c.yml").write_text("3")
    for name in (".hidden.yaml", "notes.txt", "d.yaml~", "e.yaml.bak", "f.json"):
        (tmp_path / name).write_text("x")
    (tmp_path / "folder.yaml").mkdir()
    assert files_of(read_content(tmp_path)) == {"a.yaml": "1", "b.yaml": "2", "c.yml": "3"}


@pytest.mark.parametrize("spoil", ["fifo", "dangling", "unreadable"])
def test_a_file_that_cannot_be_read_is_not_left_out(tmp_path, spoil):
    write(tmp_path, a="1")
    path = tmp_path / "b.yaml"
    if spoil == "dangling":
        path.symlink_to("nowhere")
    elif spoil == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/proc/self/mem")
    with pytest.raises(SourceError, match=r"b\.yaml cannot be read"):
        read_content(tmp_path)


def test_too_much_is_refused(tmp_path):
    write(tmp_path, a="#" * (3 << 20), b="#" * (3 << 20))
    with pytest.raises(SourceError, match="larger than 4 MiB together"):
        read_content(tmp_path)


def test_an_edit_of_the_same_size_has_another_signature(tmp_path):
    write(tmp_path, a="1")
    before = signature(tmp_path)
    beside = tmp_path / ".a"
    beside.write_text("2")
    beside.rename(tmp_path / "a.yaml")
    assert signature(tmp_path) != before
    assert signature(tmp_path / "gone") == ()


async def test_r3_eleven_files_saved_within_300_ms_are_one_offer_of_the_whole_set(tmp_path):
    write(tmp_path, **{f"m{number:02}": "old" for number in range(11)})
    async with watching(tmp_path, EVENTS) as (_, offered):
        for number in range(11):
            (tmp_path / f"m{number:02}.yaml").write_text(f"new {number}")
            await asyncio.sleep(0.025)
        content = await next_of(offered)
        assert files_of(content) == {f"m{number:02}.yaml": f"new {number}" for number in range(11)}
        await nothing_more(offered)


async def test_r1_every_configmap_swap_is_the_whole_new_set(tmp_path):
    mounted = ConfigMap(tmp_path, a="1", b="1")
    async with watching(tmp_path, EVENTS) as (_, offered):
        for number in range(2, 6):
            mounted.swap(a=str(number), b=str(number), keeps_old=number % 2 == 0)
            assert files_of(await next_of(offered)) == {"a.yaml": str(number), "b.yaml": str(number)}
        mounted.swap(b="6", c="6")
        assert files_of(await next_of(offered)) == {"b.yaml": "6", "c.yaml": "6"}
        await nothing_more(offered)


async def test_r2_an_empty_file_among_others_is_never_offered(tmp_path):
    write(tmp_path, a="1", b="1")
    async with watching(tmp_path, EVENTS) as (_, offered):
        (tmp_path / "b.yaml").write_text("")
        await nothing_more(offered)
        (tmp_path / "b.yaml").write_text("2")
        assert files_of(await next_of(offered)) == {"a.yaml": "1", "b.yaml": "2"}


async def test_r4_a_file_that_is_removed_and_back_again_was_never_gone(tmp_path):
    write(tmp_path, a="1", b="1")
    timing = Timing(trailing=0.05, longest=10, poll=3600)
    async with watching(tmp_path, timing) as (_, offered):
        (tmp_path / "b.yaml").unlink()
        await nothing_more(offered, 0.4)
        (tmp_path / "b.yaml").write_text("2")
        assert files_of(await next_of(offered)) == {"a.yaml": "1", "b.yaml": "2"}
        await nothing_more(offered, 0.2)


async def test_a_file_that_stays_away_is_a_wish_after_a_while(tmp_path):
    write(tmp_path, a="1", b="1")
    async with watching(tmp_path, EVENTS) as (_, offered):
        began = time.monotonic()
        (tmp_path / "b.yaml").unlink()
        assert files_of(await next_of(offered)) == {"a.yaml": "1"}
        assert time.monotonic() - began >= EVENTS.longest


async def test_r4_all_files_gone_is_no_wish(tmp_path):
    write(tmp_path, a="1")
    async with watching(tmp_path, EVENTS) as (_, offered):
        (tmp_path / "a.yaml").unlink()
        await nothing_more(offered, 0.5)
        write(tmp_path, a="2")
        assert files_of(await next_of(offered)) == {"a.yaml": "2"}


async def test_a_directory_that_is_replaced_is_watched_again(tmp_path):
    folder = write(tmp_path / "conf", a="1")
    async with watching(folder, Timing(trailing=0.05, longest=0.3, poll=0.1)) as (source, offered):
        folder.rename(tmp_path / "old")
        write(tmp_path / "conf", a="2", b="2")
        assert files_of(await next_of(offered)) == {"a.yaml": "2", "b.yaml": "2"}
        write(tmp_path / "old", a="3")
        await nothing_more(offered, 0.3)
        assert source.view()["watch"] == "events"


def test_a_set_is_that_of_one_moment(tmp_path):
    """R1: a swap in the middle of a reading never shows one file of the old set and one of the new."""
    mounted = ConfigMap(tmp_path, a="0", b="0", c="0")
    over = threading.Event()

    def swap_on():
        for number in range(1, 60):
            mounted.swap(a=str(number), b=str(number), c=str(number))
        over.set()

    thread = threading.Thread(target=swap_on)
    thread.start()
    seen = set()
    while not over.is_set():
        try:
            content = read_content(tmp_path)
        except SourceError:  # swapped at every try: the watch looks again
            continue
        seen.add(tuple(part.data for part in unpack(content.data) or ()))
    thread.join()
    assert seen
    assert [each for each in seen if len(set(each)) > 1] == []
