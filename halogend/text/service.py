"""The text process while it serves: requests from the daemon to the engine, tokens back as text.

One event loop; nothing in it waits for a consumer. The daemon bounds how many requests there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from halogend.text import failures
from halogend.text.admission import Admission, Setting
from halogend.text.answers import Answers
from halogend.text.failures import RequestFailedError
from halogend.text.loading import Loaded, next_template
from halogend.text.progress import Progress
from halogend.wire.channel import AsyncChannel, ChannelClosedError
from halogend.wire.control import Commit, Discard, Prepared, PrepareText
from halogend.wire.failure import Failure
from halogend.wire.messages import AnyMessage
from halogend.wire.requests import Abort, Accepted, Finished, Generate, StepOutput, Submit, TextEvent, TextEvents, Usage

log = structlog.get_logger()
_NO_USAGE = Usage(prompt_tokens=0, completion_tokens=0)
_ENGINE_DIED = Failure(code=failures.ENGINE_DIED, message="the engine process died")


class Service:
    """Owns the requests of one generation. `reply` sends on the control channel."""

    def __init__(
        self, loaded: Loaded, setting: Setting, progress: Progress, reply: Callable[[AnyMessage], None]
    ) -> None:
        self._loaded = loaded
        self._setting = setting
        self._progress = progress
        self._reply = reply
        self._admission = Admission(loaded.tokenizer, loaded.offload)
        self._answers = Answers(loaded.tokenizer.piece, loaded.tokenizer.end_ids)
        self._arriving: dict[int, asyncio.Task[None]] = {}
        self._preparing: dict[int, asyncio.Task[None]] = {}
        self._prepared: dict[int, Setting] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._data: AsyncChannel | None = None
        self._engine: AsyncChannel | None = None

    def connect(self, data: AsyncChannel, engine: AsyncChannel) -> None:
        self._data, self._engine = data, engine

    # --- from the daemon --------------------------------------------------------------------------

    def from_daemon(self, message: AnyMessage) -> None:
        match message:
            case Submit():
                self._arriving[message.id] = self._spawn(self._admit(message, self._setting))
            case Abort():
                self._abort(message.id)
            case _:
                log.warning("message_unexpected", channel="data", message=type(message).__name__)

    def _abort(self, request_id: int) -> None:
        if (admission := self._arriving.pop(request_id, None)) is not None:
            admission.cancel()
        elif self._answers.drop(request_id):
            self._to_engine(Abort(id=request_id))

    async def _admit(self, submit: Submit, setting: Setting) -> None:
        outcome = await self._encoded(submit, setting)
        self._progress.bump()
        if self._arriving.pop(submit.id, None) is None:
            return  # aborted, or ended with the engine
        if isinstance(outcome, Failure):
            self._to_daemon((_failed(submit.id, outcome),))
        elif self._to_engine(outcome):
            self._answers.begin(submit.id, len(outcome.prompt_ids), submit.stop)
            self._to_daemon((Accepted(id=submit.id, prompt_tokens=len(outcome.prompt_ids)),))
        else:
            self._to_daemon((_failed(submit.id, _ENGINE_DIED),))

    async def _encoded(self, submit: Submit, setting: Setting) -> Generate | Failure:
        try:
            return await self._admission.admit(submit, setting)
        except RequestFailedError as error:
            return error.failure
        except Exception:  # one request's fault, ours or not, must not end the others
            log.exception("request_failed", request=submit.id)
            return Failure(code=failures.INTERNAL, message="the prompt could not be encoded")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        self._progress.set_busy(True)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._progress.set_busy(bool(self._tasks))
            if not task.cancelled():
                task.result()  # a fault of our own is not swallowed

        task.add_done_callback(done)
        return task

    # --- from the engine --------------------------------------------------------------------------

    def from_engine(self, message: AnyMessage) -> None:
        if not isinstance(message, StepOutput):
            log.warning("message_unexpected", channel="engine", message=type(message).__name__)
            return
        step = self._answers.step(message)
        if step.events:
            self._to_daemon(step.events)
        for request_id in step.stopped:
            self._to_engine(Abort(id=request_id))
        self._progress.bump()

    def engine_died(self) -> None:
        """Ends every request there is; nothing can be answered any more."""
        arriving, self._arriving = self._arriving, {}
        for admission in arriving.values():
            admission.cancel()
        ends = tuple(_failed(request_id, _ENGINE_DIED) for request_id in sorted(arriving))
        self._to_daemon((*ends, *self._answers.fail_all(_ENGINE_DIED)))

    # --- live updates -----------------------------------------------------------------------------

    def from_control(self, message: AnyMessage) -> None:
        match message:
            case PrepareText():
                self._preparing[message.update] = self._spawn(self._prepare(message))
            case Commit():
                if (setting := self._prepared.pop(message.update, None)) is not None:
                    self._setting = setting
            case Discard():
                self._discard(message.update)
            case _:
                log.warning("message_unexpected", channel="control", message=type(message).__name__)

    async def _prepare(self, message: PrepareText) -> None:
        failure, template = None, None
        try:
            template = await next_template(self._loaded, message.chat_template, self._setting.template)
        except failures.StartFailedError as error:
            failure = error.failure
        if self._preparing.pop(message.update, None) is None:
            return  # discarded
        if failure is None:
            self._prepared[message.update] = Setting(message.limits, template)
        self._reply(Prepared(update=message.update, failure=failure))

    def _discard(self, update: int) -> None:
        """No answer is sent for one that is still being tried: whoever asked has given up."""
        self._prepared.pop(update, None)
        if (preparation := self._preparing.pop(update, None)) is not None:
            preparation.cancel()

    # --- sending ----------------------------------------------------------------------------------

    def _to_engine(self, message: AnyMessage) -> bool:
        """Whether it was sent; the engine's end is told by its channel."""
        try:
            if self._engine is not None:
                self._engine.send(message)
        except ChannelClosedError:
            return False
        return self._engine is not None

    def _to_daemon(self, events: tuple[TextEvent, ...]) -> None:
        try:
            if self._data is not None and events:
                self._data.send(TextEvents(events=events))
        except ChannelClosedError:
            log.warning("daemon_gone", events=len(events))


def _failed(request_id: int, failure: Failure) -> Finished:
    return Finished(id=request_id, reason="error", usage=_NO_USAGE, failure=failure)
