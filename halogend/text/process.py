"""The life of a text process: hello, load, serve, end.

The control socket is read by the event loop and written from several threads; the data and engine
sockets belong to the loop alone. `Stop` and the end of the control or data stream end the process
at once: draining was the daemon's business.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn

import structlog

from halogend.checkpoint.errors import CheckpointError
from halogend.text.admission import Setting
from halogend.text.failures import StartFailedError
from halogend.text.loading import first_template, load
from halogend.text.progress import Progress
from halogend.text.service import Service
from halogend.wire.channel import AsyncChannel, ChannelClosedError, WorkerChannel
from halogend.wire.control import Hello, StartFailed, StartText, Stop, TextReady
from halogend.wire.failure import Failure
from halogend.wire.frames import WireError
from halogend.wire.messages import WIRE_VERSION, AnyMessage
from halogend.wire.specs import TextSpec

log = structlog.get_logger()
_LAST_WORDS_S = 2.0
EXIT_FAULT = 1  # ours, or a stream that holds what is no message


@dataclass(frozen=True, slots=True)
class Sockets:
    """Connected stream sockets, owned by the process."""

    control: socket.socket
    data: socket.socket
    engine: socket.socket


class TextProcess:
    """One generation's text process. To be made in the event loop of the main thread."""

    def __init__(self, sockets: Sockets) -> None:
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._control = WorkerChannel(sockets.control)
        self._progress = Progress(self._control.send)
        self._spec: asyncio.Future[TextSpec] = self._loop.create_future()
        self._service: Service | None = None
        self._data: AsyncChannel | None = None

    async def run(self) -> NoReturn:
        """Ends with the process. An exception that leaves here is a fault of our own."""
        self._loop.set_exception_handler(_end_on_fault)
        self._loop.add_reader(self._control.fileno(), self._read_control)
        self._control.send(Hello(version=WIRE_VERSION, role="text", pid=os.getpid()))
        self._progress.start()
        spec = await self._spec
        try:
            await self._start(spec)
        except (CheckpointError, StartFailedError) as error:
            await self._give_up(error)
        while True:  # the streams' callbacks do the rest
            await asyncio.Event().wait()

    async def _start(self, spec: TextSpec) -> None:
        self._progress.begin("loading")
        with ThreadPoolExecutor(1, "load") as loader:
            loaded = await self._loop.run_in_executor(loader, load, spec, self._progress)
        template = await first_template(loaded, spec.chat_template)
        service = Service(loaded, Setting(spec.limits, template), self._progress, self._control.send)
        self._service = service
        data = await AsyncChannel.open(self._sockets.data, service.from_daemon, self._daemon_gone)
        engine = await AsyncChannel.open(self._sockets.engine, service.from_engine, self._engine_gone)
        self._data = data
        service.connect(data, engine)
        self._progress.begin("serving")
        self._progress.set_busy(False)
        log.info("text_ready", vocab_size=loaded.tokenizer.vocab_size, load_s=round(loaded.load_s, 3))
        self._control.send(
            TextReady(
                vocab_size=loaded.tokenizer.vocab_size, has_chat_template=template is not None, load_s=loaded.load_s
            )
        )

    async def _give_up(self, error: CheckpointError | StartFailedError) -> NoReturn:
        """Says why, and gives the daemon time to read it before the exit can be seen."""
        if isinstance(error, CheckpointError):
            failure = Failure(code=error.code, message=error.message)
        else:
            failure = error.failure
        log.error("start_failed", code=failure.code, reason=failure.message)
        self._control.send(StartFailed(failure=failure))
        await asyncio.sleep(_LAST_WORDS_S)  # the daemon closes the stream sooner, which ends us
        end(0)

    def _read_control(self) -> None:
        try:
            messages = self._control.receive()
        except ChannelClosedError:
            end(0)
        except WireError:
            log.exception("control_stream_broken")
            end(EXIT_FAULT)
        for message in messages:
            self._obey(message)

    def _obey(self, message: AnyMessage) -> None:
        match message:
            case Stop():
                end(0)
            case StartText() if not self._spec.done():
                self._spec.set_result(message.spec)
            case _ if self._service is not None:
                self._service.from_control(message)
            case _:
                log.warning("message_unexpected", channel="control", message=type(message).__name__)

    def _daemon_gone(self, error: Exception | None) -> None:
        if isinstance(error, WireError):
            log.error("data_stream_broken", reason=str(error))
            end(EXIT_FAULT)
        end(0)

    def _engine_gone(self, error: Exception | None) -> None:
        """Every request gets its end, the daemon gets time to read them, and nothing is left to do."""
        log.warning("engine_gone", reason=str(error) if error else "end of stream")
        if self._service is not None and self._data is not None:
            self._service.engine_died()
            self._loop.call_later(_LAST_WORDS_S, end, 0)
            self._data.close()  # sends what is unsent, then ends us


def _end_on_fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A fault of our own in a callback: the state cannot be trusted, so the process ends and the
    daemon starts another. Broken pipes are no faults."""
    error = context.get("exception")
    if error is None or isinstance(error, OSError):
        loop.default_exception_handler(context)
        return
    log.error("internal_fault", where=context.get("message"), exc_info=error)
    end(EXIT_FAULT)


def end(status: int) -> NoReturn:
    """Leaves without waiting for threads: one may be in the middle of a long encode."""
    sys.stderr.flush()
    os._exit(status)
