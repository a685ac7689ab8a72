"""Watching where events are few, late, or not to be had: R1 to R5 on such file systems, by an observer that
passes on only some of the real events."""

import asyncio
import contextlib
import errno
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from support.played.world import until
from support.source_folders import ConfigMap, next_of, nothing_more, watching
from watchdog.events import FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import EventQueue, ObservedWatch
from watchdog.observers.inotify import InotifyEmitter

from halogend.control import file_source
from halogend.control.file_source import Timing
from halogend.control.source_watch import Watch, file_system, inotify

LOOKS = Timing(trailing=0.03, longest=0.2, poll=0.1, blind=0.05)
EVENTS = Timing(trailing=0.05, longest=0.4, poll=3600)


def hearing_only(*kinds):
    """An Observe that passes on these kinds of events alone."""

    class Some(FileSystemEventHandler):
        def __init__(self, tell):
            self.tell = tell

        def on_any_event(self, event):
            if event.event_type in kinds:
                self.tell()

    def observe(folder, tell):
        observer = Observer()
        observer.schedule(Some(tell), str(folder))
        observer.start()

        def stop():
            observer.stop()
            observer.join()

        return stop

    return lambda path, tell: Watch(path, tell, observe=observe)


def failing(*errors):
    """An Observe that raises these in turn, then works. `tried` counts."""
    left = list(errors)

    def observe(folder, tell):
        observe.tried += 1
        if left and (number := left.pop(0)):
            raise OSError(number, "no")
        observe.folders.append(folder)
        return lambda: observe.folders.remove(folder)

    observe.tried, observe.folders = 0, []
    return observe


SYSTEMS = {"only writes": ("modified",), "only creates": ("created",), "nothing": ()}


@pytest.fixture(params=SYSTEMS, ids=lambda name: name.replace(" ", "-"))
def system(request):
    return hearing_only(*SYSTEMS[request.param])


async def test_r1_every_swap_is_seen(tmp_path, system):
    mounted = ConfigMap(tmp_path, config="0")
    async with watching(tmp_path / "config.yaml", LOOKS, system) as (_, offered):
        for number in range(1, 4):
            mounted.swap(config=str(number), keeps_old=number == 2)
            assert (await next_of(offered)).data == str(number).encode()
        await nothing_more(offered)


async def test_r2_pieces_are_one_offer_and_an_empty_file_none(tmp_path, system):
    path = tmp_path / "config.yaml"
    path.write_text("old")
    async with watching(path, LOOKS, system) as (_, offered):
        path.write_text("")
        await nothing_more(offered)
        with path.open("w") as file:
            for piece in ("new ", "in ", "pieces"):
                file.write(piece)
                file.flush()
                await asyncio.sleep(0.01)
        assert (await next_of(offered)).data == b"new in pieces"
        await nothing_more(offered)


async def test_r3_eleven_files_are_one_set(tmp_path, system):
    for number in range(11):
        (tmp_path / f"{number:02}.yaml").write_text("old")
    async with watching(tmp_path, Timing(trailing=0.1, longest=2, poll=0.1), system) as (_, offered):
        for number in range(11):
            (tmp_path / f"{number:02}.yaml").write_text("new")
            await asyncio.sleep(0.02)
        assert b"old" not in (await next_of(offered)).data
        await nothing_more(offered)


async def test_r4_gone_and_back_again(tmp_path, system):
    path = tmp_path / "config.yaml"
    path.write_text("old")
    async with watching(path, LOOKS, system) as (_, offered):
        path.unlink()
        await nothing_more(offered)
        path.write_text("new")
        assert (await next_of(offered)).data == b"new"


async def test_r5_what_we_write_ourselves_is_no_edit(tmp_path, system):
    path = tmp_path / "config.yaml"
    path.write_text("same")
    async with watching(path, LOOKS, system) as (_, offered):
        for number in range(5):
            (tmp_path / "state.json").write_text(str(number))
            path.read_bytes()
            await asyncio.sleep(0.05)
        await nothing_more(offered)


async def test_a_folder_that_is_replaced_is_watched_again(tmp_path):
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "config.yaml").write_text("old")
    async with watching(folder / "config.yaml", Timing(trailing=0.05, longest=0.4, poll=0.1)) as (source, offered):
        folder.rename(tmp_path / "moved")
        folder.mkdir()
        (folder / "config.yaml").write_text("new")
        assert (await next_of(offered)).data == b"new"
        assert source.view() == {"kind": "file", "watch": "events", "reason": None, "unread": None}


async def test_events_come_through_a_link_to_the_folder(tmp_path):
    (tmp_path / "release").mkdir()
    (tmp_path / "etc").symlink_to("release")
    path = tmp_path / "etc" / "config.yaml"
    path.write_text("old")
    async with watching(path, EVENTS) as (_, offered):
        await asyncio.sleep(0.3)  # beyond the first look of all
        path.write_text("new")
        assert (await next_of(offered)).data == b"new"


@pytest.mark.parametrize(
    ("number", "word"),
    [(errno.ENOSPC, "max_user_watches"), (errno.EMFILE, "max_user_instances"), (errno.EIO, "no watch")],
)
async def test_without_inotify_looking_serves_and_is_told_once(tmp_path, number, word):
    path = tmp_path / "config.yaml"
    path.write_text("old")
    observe = failing(*[number] * 1000)
    with capture_logs() as logs:
        async with watching(path, LOOKS, lambda path, tell: Watch(path, tell, observe)) as (source, offered):
            for text in (b"one", b"two"):
                path.write_bytes(text)
                assert (await next_of(offered)).data == text
            view = source.view()
    assert view["watch"] == "poll"
    assert word in view["reason"]
    told = [each for each in logs if each["event"] == "source_polled"]
    assert [each["log_level"] for each in told] == ["warning"]
    assert observe.tried == 1  # not at every look


LIMITED = """
import resource, sys
from pathlib import Path
from halogend.control.source_watch import Watch
path = Path(sys.argv[1])
watch = Watch(path / "config.yaml", lambda: None)
low = max(int(each.name) for each in Path("/proc/self/fd").iterdir()) + 1
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
held = []
try:
    while True:
        held.append(open("/dev/null"))
except OSError:
    pass
watch.keep()
print(watch.reason)
"""


def test_the_real_inotify_says_when_it_is_used_up(tmp_path):
    """By the limit of open files: that of instances is everybody's."""
    command = [sys.executable, "-c", LIMITED, tmp_path]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert "no inotify instance is left" in done.stdout, done.stderr


def test_a_watch_that_was_refused_is_tried_again_after_a_while(tmp_path):
    now = [0.0]
    observe = failing(errno.ENOSPC, errno.ENOSPC)
    watch = Watch(tmp_path / "config.yaml", lambda: None, observe, clock=lambda: now[0])
    with capture_logs() as logs:
        for now[0] in (0.0, 1.0, 29.0, 31.0, 40.0, 62.0, 70.0):
            watch.keep()
    assert observe.tried == 3
    assert watch.reason is None
    assert [each["event"] for each in logs] == ["source_polled", "source_watched_again"]
    watch.stop()
    assert observe.folders == []
    watch.keep()  # a thread that comes late begins nothing
    assert observe.tried == 3


def test_a_folder_that_is_not_there_is_waited_for(tmp_path):
    observe, told = failing(), []
    watch = Watch(tmp_path / "etc" / "config.yaml", lambda: told.append(1), observe)
    watch.keep()
    assert "cannot be looked at: No such file" in watch.reason
    assert not told
    (tmp_path / "etc").mkdir()
    watch.keep()
    assert (watch.reason, observe.folders) == (None, [tmp_path / "etc"])
    assert told  # what came before the watch is looked for


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:50 / /mnt/my\\040share rw,relatime - nfs4 server:/x rw
41 22 0:51 / /mnt rw - tmpfs tmpfs rw
42 22 0:52 / /mnt/s3 rw - fuse.s3fs s3fs rw
43 41 0:53 / /mnt/over rw - nfs4 server:/y rw
44 43 0:54 / /mnt/over rw - ext4 /dev/sdb rw
garbage
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/etc/halogen/config.yaml", "ext4"),
        ("/mnt/my share/config.yaml", "nfs4"),
        ("/mnt/my sharer/config.yaml", "tmpfs"),
        ("/mnt/s3/a/b", "fuse.s3fs"),
        ("/mnt/over/a", "ext4"),
    ],
)
def test_which_file_system_a_path_is_on(tmp_path, path, kind):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert file_system(Path(path), mounts) == kind
    assert file_system(Path(path), tmp_path / "none") == ""


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs"])
async def test_another_machines_file_system_is_looked_at_although_it_can_be_watched(tmp_path, kind):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 / {tmp_path} rw - {kind} x rw\n")
    path = tmp_path / "config.yaml"
    path.write_text("old")

    def deaf(path, tell):
        return Watch(path, lambda: None, failing(), mounts)

    timing = Timing(trailing=0.05, longest=0.4, poll=3600, blind=0.05)
    async with watching(path, timing, deaf) as (source, offered):
        beside = tmp_path / "beside"
        beside.write_text("new")
        beside.rename(path)
        assert (await next_of(offered)).data == b"new"
        assert source.view()["reason"] == f"{kind} does not tell of what other machines change"


async def test_a_look_without_a_sign_reads_nothing(tmp_path):
    """Signatures that are equal spare the reading until the slow poll is due."""
    path = tmp_path / "config.yaml"
    path.write_text("old")
    timing = Timing(trailing=0.02, longest=0.4, poll=3600, blind=0.01)
    async with watching(path, timing, lambda path, tell: Watch(path, lambda: None, failing(errno.ENOSPC))) as (
        source,
        _,
    ):
        reads = []
        read = source.read
        source.read = lambda: reads.append(1) or read()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                await asyncio.Event().wait()
    assert len(reads) <= 1


async def test_a_path_that_cannot_be_looked_at_ends_no_watch(tmp_path):
    """A name that is too long makes even the question whether it is a folder fail."""
    async with watching(tmp_path / ("x" * 300), LOOKS) as (source, offered):
        await nothing_more(offered)
        source.path = tmp_path / "config.yaml"
        source.path.write_text("new")
        assert (await next_of(offered)).data == b"new"


async def test_a_fault_of_one_look_does_not_end_the_watch(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("old")
    async with watching(path, LOOKS) as (source, offered):
        read, faults = source.read, [ValueError("a bug"), ValueError("another")]

        def faulty():
            if faults:
                raise faults.pop()
            return read()

        source.read = faulty
        with capture_logs() as logs:
            path.write_text("new")
            assert (await next_of(offered)).data == b"new"
    assert [each["event"] for each in logs] == ["source_look_failed"] * 2


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_watch_that_cannot_be_had_leaves_no_descriptor_and_no_thread(tmp_path):
    """It is tried again every 30 s, for as long as inotify is used up."""
    before = open_descriptors(), set(threading.enumerate())
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            inotify(tmp_path / "not there", lambda: None)
    assert open_descriptors() <= before[0]
    assert set(threading.enumerate()) <= before[1]


async def test_the_end_does_not_wait_for_a_folder_that_does_not_answer(tmp_path, monkeypatch):
    answers, asked = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def observe(folder, tell):
        loop.call_soon_threadsafe(asked.set)
        answers.wait()
        return lambda: None

    monkeypatch.setattr(file_source, "_STOP_S", 0.01)
    source = file_source.FileSource(
        tmp_path / "config.yaml", [].append, LOOKS, lambda path, tell: Watch(path, tell, observe)
    )
    source.start()
    async with asyncio.timeout(10):
        await asked.wait()
        await source.stop()
    answers.set()


async def why_unread(source, word):
    await until(lambda: word in (source.view()["unread"] or ""), word)


async def test_why_no_edit_is_seen_is_told_until_one_is(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("old")
    async with watching(path, LOOKS) as (source, offered):
        assert source.view()["unread"] is None
        path.unlink()
        path.symlink_to("not there")
        await why_unread(source, "No such file")
        path.unlink()
        path.write_text("")
        await why_unread(source, "is empty")
        path.write_text("new")
        assert (await next_of(offered)).data == b"new"
        assert source.view()["unread"] is None


async def test_a_source_that_does_not_answer_the_watch_is_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(file_source, "READ_LIMIT_S", 0.05)
    path, answers = tmp_path / "config.yaml", threading.Event()
    path.write_text("old")
    async with watching(path, LOOKS) as (source, offered):
        read = source.read
        source.read = lambda: answers.wait(10) and read()
        path.write_text("new")
        await why_unread(source, "does not answer")
        answers.set()
        assert (await next_of(offered)).data == b"new"
        assert source.view()["unread"] is None


def test_an_observer_that_is_told_to_stop_while_it_looks_says_nothing_of_it(tmp_path, caplog):
    inotify(tmp_path, lambda: None)()
    emitter = InotifyEmitter(EventQueue(), ObservedWatch(str(tmp_path), recursive=False))
    emitter.queue_events(1)
    assert caplog.records == []
