"""`halogend status --watch`: redrawn on a terminal, elsewhere a line for each thing that happens."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import textwrap
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from halogend.cli import admin
from halogend.cli.event_line import event_line
from halogend.cli.follow import Follower, Told
from halogend.cli.show import clock
from halogend.cli.status_table import status_lines

_REDRAW_S = 1.0
_NEWS = 8
_HOME, _LINE_END, _REST = "\x1b[H", "\x1b[K\n", "\x1b[J"
_QUIET = frozenset({"hello", "end", "progress", "lost"})  # no news for a screen that shows them anyhow


def watch(where: admin.Endpoint, *, as_json: bool) -> int:
    """Until interrupted; a daemon that goes away is waited for. Raises AdminError where there is none at first."""
    if as_json:
        _each(where, _json_lines)
    elif sys.stdout.isatty():
        Screen(where, sys.stdout).run()
    else:
        _each(where, _text_lines)
    return 0


def _each(where: admin.Endpoint, lines: Callable[[admin.Endpoint, Told], Iterator[str]]) -> None:
    for told in Follower(where).events():
        for line in lines(where, told):
            print(line, flush=True)


def _json_lines(where: admin.Endpoint, told: Told) -> Iterator[str]:
    """Each `{"event", "id", ...}`; a greeting stands for the whole status as it is then, event `status`."""
    if told.kind == "hello":
        for status in _standing(where):
            yield json.dumps({"event": "status", "id": told.id, "gap": told.data["gap"], "status": status})
    else:
        yield json.dumps({"event": told.kind, "id": told.id, **told.data})


def _text_lines(where: admin.Endpoint, told: Told) -> Iterator[str]:
    if told.kind == "hello":
        for status in _standing(where):
            yield from status_lines(status)
    elif told.kind == "lost":
        yield f"{told.data['message']}; trying again"
    elif told.kind != "end" or told.data["reason"] != "renew":
        yield event_line(told.kind, told.data) if "at" in told.data else told.data["message"]


def _standing(where: admin.Endpoint) -> Iterator[dict[str, Any]]:
    """The status; none where the daemon has gone since it spoke: its follower will say so."""
    with contextlib.suppress(admin.AdminError):
        yield _status(where)


def _status(where: admin.Endpoint) -> dict[str, Any]:
    status: dict[str, Any] = admin.look(where, "/status")
    return status


class Screen:
    """A thread listens and wakes; the screen is drawn anew then, and each second, because numbers tell of
    themselves to nobody."""

    def __init__(self, where: admin.Endpoint, out: TextIO) -> None:
        self._where = where
        self._out = out
        self._news: deque[str] = deque(maxlen=_NEWS)
        self._wake = threading.Event()

    def run(self) -> None:
        status = _status(self._where)  # raises where there is no daemon to begin with
        threading.Thread(target=self._listen, daemon=True).start()
        lost, seen_at = "", time.time()
        while True:
            self.draw(status, lost)
            self._wake.wait(_REDRAW_S)
            self._wake.clear()
            try:
                status, lost, seen_at = _status(self._where), "", time.time()
            except admin.AdminError as error:
                lost = f"! {error}; trying again. As it was at {clock(seen_at)}:"

    def draw(self, status: dict[str, Any], lost: str = "") -> None:
        """From the top, over what stands there; never more lines than the screen has."""
        columns, rows = shutil.get_terminal_size()
        whole = [*([lost] if lost else []), *status_lines(status, columns)]
        lines = [part for line in whole for part in _wrapped(line, columns)]
        news = list(self._news)[-max(0, rows - len(lines) - 2) :] if rows > len(lines) + 2 else []
        shown = [*lines, *([""] if news else []), *news][: rows - 1]
        self._out.write(_HOME + "".join(line[:columns] + _LINE_END for line in shown) + _REST)
        self._out.flush()

    def _listen(self) -> None:
        try:
            for told in Follower(self._where).events():
                self.hear(told)
        except admin.AdminError as error:
            self._news.append(f"no events: {error}")

    def hear(self, told: Told) -> None:
        if told.kind not in _QUIET:
            self._news.append(event_line(told.kind, told.data) if "at" in told.data else told.data["message"])
        self._wake.set()


def _wrapped(line: str, columns: int) -> list[str]:
    """What is wrong is never cut."""
    return textwrap.wrap(line, columns, subsequent_indent="    ") if len(line) > columns else [line]
