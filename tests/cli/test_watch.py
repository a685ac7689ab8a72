"""`status --watch` and `drain` against an admin listener, and the client of events by itself."""

import asyncio
import contextlib
import io
import json
import socket
import threading

import pytest
from test_status_table import FINE, STATUS

from halogend.api.addresses import UnixAddress
from halogend.api.admin import admin_app
from halogend.api.listener import Listener
from halogend.cli import drain
from halogend.cli.admin import AdminError, Endpoint
from halogend.cli.event_line import event_line
from halogend.cli.follow import Follower, Told, parsed
from halogend.cli.main import main
from halogend.cli.watch import Screen, _json_lines, _text_lines
from halogend.control.events import Events
from halogend.control.requests import RequestError


class Watched:
    """An admin that can be watched. `drains` are the views of one drain, in order."""

    def __init__(self):
        self.ring = Events(run="run", clock=lambda: 0.0)
        self.drains = []
        self.asked = []

    def status(self):
        return {**STATUS, "models": {"chat": FINE}}

    def events(self):
        return self.ring

    def draining(self, model):
        if not self.drains:
            raise RequestError("nothing_drains", f"Nothing of `{model}` drains.")
        return Drained(self, self.drains.pop(0))


class Drained:
    def __init__(self, admin, view):
        self.admin = admin
        self._view = view

    def end(self, actor):
        self.admin.asked.append("end")

    async def closed(self):
        self.admin.asked.append("closed")

    def view(self):
        return {"model": "chat", "generations": [self._view]}


@contextlib.asynccontextmanager
async def answering(folder, admin):
    listener = Listener(admin_app(admin), UnixAddress(folder / "admin.sock"))
    listener.bind()
    await listener.serve()
    try:
        yield Endpoint(f"unix:{folder}/admin.sock")
    finally:
        await listener.close(0)


class Collected:
    """Follows in a thread, as a command does; the test waits for what it was told."""

    def __init__(self, where, lines):
        self.told = []
        self.more = asyncio.Event()
        self.stop = threading.Event()
        self.loop = asyncio.get_running_loop()
        self.follower = Follower(where, self._wait)
        self.thread = asyncio.create_task(asyncio.to_thread(self._run, where, lines))

    def _wait(self, seconds):
        if self.stop.wait(0.01):
            raise KeyboardInterrupt

    def _run(self, where, lines):
        with contextlib.suppress(KeyboardInterrupt):
            for told in self.follower.events():
                self.told += lines(where, told)
                self.loop.call_soon_threadsafe(self.more.set)

    async def until(self, text, times=1):
        async with asyncio.timeout(10):
            while sum(text in line for line in self.told) < times:
                self.more.clear()
                await self.more.wait()


async def test_a_pipe_gets_the_status_then_a_line_for_each_thing_also_after_a_restart(tmp_path):
    first = Watched()
    async with answering(tmp_path, first) as where:
        seen = Collected(where, _text_lines)
        await seen.until("settled")
        first.ring.publish("generation", model="chat", generation=4, state="loading")
        await seen.until("generation 4 is loading")
        first.ring.close("shutting down")
        await seen.until("The daemon stops.")
    await seen.until("trying again")
    second = Watched()
    second.ring = Events(run="other", clock=lambda: 0.0)
    async with answering(tmp_path, second):
        await seen.until("settled", times=2)
        seen.stop.set()
        second.ring.close("shutting down")
        await seen.thread
    assert seen.follower.last == "other-0"
    assert sum("trying again" in line for line in seen.told) == 1


async def test_json_is_a_line_each_and_begins_with_the_status(tmp_path):
    admin = Watched()
    async with answering(tmp_path, admin) as where:
        seen = Collected(where, _json_lines)
        await seen.until('"settled": true')
        admin.ring.publish("model", model="chat", state="serving", trouble=None, degraded=None)
        await seen.until('"degraded"')
        seen.stop.set()
        admin.ring.close("shutting down")
        await seen.thread
    status, model = (json.loads(line) for line in seen.told[:2])
    assert (status["event"], status["gap"], status["status"]["settled"]) == ("status", False, True)
    assert (model["event"], model["id"], model["at"], model["state"]) == ("model", "run-1", 0.0, "serving")


def test_watching_where_there_is_no_daemon_ends_at_once(tmp_path, capsys):
    assert main(["status", "--watch", "--admin", f"unix:{tmp_path}/nobody.sock"]) == 1
    assert "no daemon answers" in capsys.readouterr().err


async def test_what_refuses_the_stream_is_told(tmp_path):
    class Refuses(Watched):
        def events(self):
            raise RequestError("not_found", "There are no events here.")

    async with answering(tmp_path, Refuses()) as where:
        with pytest.raises(AdminError, match="no events here"):
            await asyncio.to_thread(lambda: next(Follower(where).events()))


def test_events_are_taken_from_lines_whatever_stands_between():
    text = (
        b'retry: 1000\nevent: hello\nid: r-1\ndata: {}\n\n: keep-alive\n\nevent: step\r\ndata:{"n": 1}\r\n\r\nid: 9\n\n'
    )
    assert list(parsed(io.BytesIO(text))) == [Told("hello", {}, "r-1"), Told("step", {"n": 1}, None)]


def test_a_screen_is_drawn_over_itself_and_never_scrolls(monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.setenv("LINES", "14")
    out = io.StringIO()
    screen = Screen(Endpoint("unix:/nowhere"), out)
    for number in range(20):
        screen.hear(Told("generation", {"at": 0.0, "model": "chat", "generation": number, "state": "gone"}))
    screen.hear(Told("progress", {}))
    screen.draw(STATUS)
    shown = out.getvalue()
    assert shown.startswith("\x1b[H")
    assert shown.endswith("\x1b[J")
    assert shown.count("\n") <= 13
    assert "generation 19 is gone" in shown
    assert "generation 2 is gone" not in shown
    screen.draw(STATUS, "! no daemon answers; " + "trying again " * 12 + "whole")
    assert "whole" in out.getvalue()
    assert max(len(line) for line in out.getvalue().replace("\x1b[K", "").splitlines()) <= 90 + len("\x1b[J\x1b[H")


LINES = [
    ("receipt", {"phase": "opened", "trigger": "file", "actor": "file"}, "receipt r7: opened by file (file)"),
    (
        "receipt",
        {"phase": "accepted", "models": [{"action": "replace", "model": "chat"}]},
        "accepted, revision abc: replace",
    ),
    ("receipt", {"phase": "closed", "outcome": "partially_applied"}, "receipt r7: closed, partially applied"),
    ("step", {"phase": "began", "name": "load"}, "chat: load began"),
    ("step", {"phase": "ended", "name": "load", "generation": 3}, "chat: load ended after 1.50 s, generation 3"),
    ("step", {"phase": "ended", "name": "load", "error": "no memory"}, "chat: load failed after 1.50 s: no memory"),
    (
        "progress",
        {"generation": 3, "stage": "loading", "loaded_bytes": 1 << 20, "total_bytes": 4 << 20},
        "25 % (1 MiB of 4 MiB)",
    ),
    ("progress", {"generation": 3, "stage": None, "loaded_bytes": 0, "total_bytes": 0}, "generation 3 starting"),
    ("model", {"state": "failed", "trouble": "it died", "degraded": None}, "chat: failed: it died"),
    ("hold", {"hold": None}, "changes are free"),
    ("drift", {"drift": None}, "the source holds what is active"),
    ("drift", {"drift": {"receipt": "r3"}}, "the document of r3 is active"),
    ("state_trouble", {"state_trouble": "no space"}, "state is not kept: no space"),
    ("state_trouble", {"state_trouble": None}, "state is kept again"),
    ("source_trouble", {"source_trouble": "no inotify"}, "looked at now and then: no inotify"),
    ("source_trouble", {"source_trouble": None}, "the source is watched again"),
    ("source_unread", {"source_unread": "it is empty"}, "no edit is seen: it is empty"),
    ("source_unread", {"source_unread": None}, "edits are seen again"),
    (
        "replica",
        {"replica": "chat#3/1", "model": "chat", "device": "cpu:1", "state": "dead"},
        "chat: replica chat#3/1 on cpu:1 is dead",
    ),
    ("daemon", {"state": "stopping"}, "the daemon is stopping"),
    ("news", {"of": "tomorrow"}, "news: of tomorrow"),
]
COMMON = {
    "receipt": {"receipt": "r7", "revision": "abc", "outcome": None, "models": [], "problems": [], "problem_count": 0},
    "step": {"receipt": "r7", "model": "chat", "seconds": 1.5, "error": None},
    "progress": {"model": "chat"},
    "model": {"model": "chat"},
}


@pytest.mark.parametrize(("kind", "data", "said"), LINES)
def test_every_event_is_a_line(kind, data, said):
    assert said in event_line(kind, {"at": 0.0, **COMMON.get(kind, {}), **data})


def test_a_rejected_receipt_says_why_and_how_much_more_there_is():
    problem = {"file": "c.yaml", "line": 3, "column": 1, "code": "HCF-1", "message": "no", "hint": ""}
    data = {**COMMON["receipt"], "phase": "closed", "outcome": "rejected", "problems": [problem], "problem_count": 4}
    assert event_line("receipt", {"at": 0.0, **data}).endswith("closed, rejected: c.yaml:3:1: HCF-1: no; and 3 more")


# --- drain --------------------------------------------------------------------------------------------------

DRAINS = {"generation": 2, "state": "draining", "requests": 2, "limit_s": 45.0, "left_s": 41.2, "ended": 0, "by": None}
GONE = {**DRAINS, "state": "gone", "requests": 0, "left_s": 0.0}


@pytest.mark.parametrize(
    ("words", "views", "asked", "said"),
    [
        ([], [DRAINS, GONE], ["closed"], ["2 requests, 41 s of 45 left", "generation 2 is gone"]),
        (["--wait", "none"], [DRAINS], [], ["chat: generation 2 drains: 2 requests"]),
        (
            ["--now"],
            [DRAINS, {**GONE, "ended": 2, "by": "uid:0"}],
            ["end", "closed"],
            ["gone; 2 requests ended by uid:0"],
        ),
        (
            ["--now", "--wait", "none"],
            [DRAINS, {**DRAINS, "ended": 1, "by": "uid:0"}],
            ["end"],
            ["1 request ended by uid:0"],
        ),
        ([], [DRAINS], [], ["generation 2 is gone"]),  # it was over before it could be waited for
        ([], [DRAINS, {**DRAINS, "state": "serving"}], ["closed"], ["generation 2 serves again"]),
    ],
)
async def test_drain_says_how_it_stands_and_what_came_of_it(words, views, asked, said, tmp_path, capsys):
    admin = Watched()
    admin.drains = list(views)
    async with answering(tmp_path, admin) as where:
        assert await asyncio.to_thread(main, ["drain", "chat", *words, "--admin", str(where)]) == 0
    out = capsys.readouterr().out
    assert [text for text in said if text not in out] == []
    assert admin.asked == asked


async def test_drain_prints_json_alone(tmp_path, capsys):
    admin = Watched()
    admin.drains = [DRAINS, GONE]
    async with answering(tmp_path, admin) as where:
        capsys.readouterr()  # the listener's own line
        assert await asyncio.to_thread(main, ["drain", "chat", "--json", "--admin", str(where)]) == 0
    assert json.loads(capsys.readouterr().out)["generations"][0]["state"] == "gone"


def test_a_replica_that_drains_is_named():
    leaver = {**DRAINS, "replica": "a#2/1", "device": "cpu:1"}
    assert drain.drain_lines({"model": "a", "generations": [], "replicas": [leaver]}) == [
        "a: replica a#2/1 on cpu:1 drains: 2 requests, 41 s of 45 left"
    ]


def test_one_request_is_one():
    assert drain.drain_lines({"model": "a", "generations": [{**DRAINS, "requests": 1}]}) == [
        "a: generation 2 drains: 1 request, 41 s of 45 left"
    ]


def test_a_daemon_that_is_there_and_does_not_answer_is_told_of(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("halogend.cli.admin._LOOK_S", 0.05)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stopped:
        stopped.bind(f"{tmp_path}/admin.sock")
        stopped.listen()  # the kernel takes connections for a process that was stopped, too
        for words in (["status"], ["status", "--watch"], ["receipts", "r1"], ["ui"]):
            if words == ["status", "--watch"]:
                monkeypatch.setattr("sys.stdout.isatty", lambda: True)
            assert main([*words, "--admin", f"unix:{tmp_path}/admin.sock"]) == 1
            assert "is there and does not answer" in capsys.readouterr().err
