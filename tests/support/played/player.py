"""One half of a generation, played: the whole protocol over the real sockets, the script from outside.

At every point of its life a player tells the stage (a unix socket, named in the environment) where
it is and does what the stage says: nothing is timed, and it answers its control socket meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from halogend.wire.channel import ChannelClosedError, WorkerChannel
from halogend.wire.control import Hello, Progress, StartFailed, Stop
from halogend.wire.failure import Failure
from halogend.wire.messages import WIRE_VERSION, AnyMessage
from halogend.wire.process import die_with_parent

_TICK_S = 0.25
Order = dict[str, Any]
Then = Callable[[Order], None]


class Player:
    """`handlers` maps a socket's name to what takes its messages. An order is `{"do": ...}`: `go` goes
    on, `fail` refuses with `code` and `message`, `exit` ends the process with `status`, `die` by a
    signal, `crash` by an error, `stick` leaves the progress counter where it is, `deafen` never hears Stop
    or the end of a socket again."""

    def __init__(self, role: str, *data: str) -> None:
        parser = argparse.ArgumentParser()
        for name in ("parent-pid", "niceness", *(f"{each}-fd" for each in ("control", *data))):
            parser.add_argument(f"--{name}", type=int)
        arguments = vars(parser.parse_args())
        die_with_parent(arguments["parent_pid"])
        self.role = role
        self.niceness = arguments["niceness"]
        self.path = ""
        self.channels = {
            name: WorkerChannel(socket.socket(fileno=arguments[f"{name}_fd"])) for name in ("control", *data)
        }
        self.stage = socket.socket(socket.AF_UNIX)
        self.stage.connect(os.environ["PLAYED_STAGE"])
        self._heard = b""
        self._asked: dict[int, Then] = {}
        self._next = 0
        self._stage_name = "starting"
        self._counter = 0
        self._sticks = self.is_deaf = False

    # --- what the roles use -----------------------------------------------------------------------

    def at(self, point: str, then: Then, **detail: Any) -> None:
        """Tells the stage, and calls `then` with each order that comes back for this point."""
        self._next += 1
        self._asked[self._next] = then
        said = {"id": self._next, "point": point, "role": self.role, "pid": os.getpid(), "path": self.path, **detail}
        self.stage.sendall(json.dumps(said).encode() + b"\n")

    def tell(self, message: AnyMessage, name: str = "control") -> None:
        try:
            self.channels[name].send(message)
        except ChannelClosedError:
            self.lost(name)

    def enters(self, stage: str) -> None:
        self._stage_name = stage

    def refuse(self, order: Order) -> None:
        """StartFailed; the daemon ends us when it has read it."""
        self.tell(StartFailed(failure=Failure(code=order["code"], message=order["message"])))

    def lost(self, name: str) -> None:
        if name == "control" and not self.is_deaf:
            os._exit(0)

    def handle(self, name: str, message: AnyMessage) -> None:
        raise NotImplementedError

    def begin(self) -> None:
        """The first that is done; `greet` follows, now or later."""
        self.greet()

    def greet(self) -> None:
        self.tell(Hello(version=int(os.environ.get("PLAYED_VERSION", WIRE_VERSION)), role=self.role, pid=os.getpid()))

    # --- the loop ---------------------------------------------------------------------------------

    def play(self) -> None:
        self.begin()
        selector = selectors.DefaultSelector()
        for name, channel in self.channels.items():
            selector.register(channel, selectors.EVENT_READ, name)
        selector.register(self.stage, selectors.EVENT_READ, "stage")
        due = 0.0
        while True:
            if time.monotonic() >= due:
                self._counter += not self._sticks
                self.tell(Progress(stage=self._stage_name, counter=self._counter, busy=self._stage_name != "serving"))
                due = time.monotonic() + _TICK_S
            for key, _ in selector.select(max(0.0, due - time.monotonic())):
                if key.data == "stage":
                    self._take_orders()
                elif not self._take(key.data):
                    selector.unregister(self.channels[key.data])

    def _take(self, name: str) -> bool:
        """False at the end of the stream."""
        try:
            for message in self.channels[name].receive():
                if isinstance(message, Stop):
                    if not self.is_deaf:
                        os._exit(0)
                else:
                    self.handle(name, message)
        except ChannelClosedError:
            self.lost(name)
            return False
        return True

    def _take_orders(self) -> None:
        data = self.stage.recv(1 << 16)
        if not data:
            os._exit(3)  # the test is gone
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, order: Order) -> None:
        match order["do"]:
            case "exit":
                os._exit(order["status"])
            case "die":
                os.kill(os.getpid(), order["signal"])
            case "crash":
                raise RuntimeError(order["message"])
            case "stick":
                self._sticks = True
            case "deafen":
                self.is_deaf = True
                self.at("deaf", lambda order: None)
            case _:
                self._asked[order["id"]](order)
