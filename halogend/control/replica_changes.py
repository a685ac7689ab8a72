"""Live changes of one replica: its two workers check and hold one, then both take it or drop it.

Owns what was committed last and which engine has not confirmed it yet. What is changed and why, and what
becomes of a worker that dies meanwhile, is others' business. Nobody waits for the confirmation: until it comes the
more of before and after is held, and the next change is tried as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from halogend.control.workers import ENGINE, TEXT, Workers
from halogend.wire.control import Commit, Discard, PrepareEngine, PrepareText
from halogend.wire.specs import EngineLimits, TextSpec

_PREPARE_LIMIT_S = 30.0
_CONFIRM_LIMIT_S = 30.0  # then it is told that an engine says nothing of a change it was to take
_log = structlog.get_logger()


class UpdateError(Exception):
    """A worker refused a live change; nothing was changed anywhere."""


class ReplicaChanges:
    """`text` and `engine_limits` are as committed last. Single writer: the changes of the generation."""

    def __init__(self, text: TextSpec, engine_limits: EngineLimits, workers: Workers) -> None:
        self.text = text
        self.engine_limits = engine_limits
        self._workers = workers
        self._unconfirmed: dict[int, Callable[[], None]] = {}

    async def prepare(self, text: PrepareText | None, engine: PrepareEngine | None) -> None:
        """Both workers check and hold the change. Raises UpdateError; `discard` it then."""
        wanted = [(role, message) for role, message in ((TEXT, text), (ENGINE, engine)) if message is not None]
        try:
            async with asyncio.timeout(_PREPARE_LIMIT_S):
                answers = await asyncio.gather(*(self._workers.by_role[role].ask(message) for role, message in wanted))
        except (TimeoutError, ConnectionError) as error:
            raise UpdateError("a worker did not answer the live change in time") from error
        refused = next((answer.failure for answer in answers if answer.failure is not None), None)
        if refused is not None:
            raise UpdateError(refused.message)

    def commit(
        self, text: PrepareText | None, engine: PrepareEngine | None, confirmed: Callable[[], None] | None = None
    ) -> None:
        """Takes effect between two steps; `confirmed` is called when the engine has said so, or has died. One that
        says nothing for long is told of in the log."""
        if engine is not None and confirmed is not None:
            self._unconfirmed[engine.update] = confirmed
            asyncio.get_running_loop().call_later(_CONFIRM_LIMIT_S, self._tell_of, engine.update)
        self._workers.tell(TEXT, text and Commit(update=text.update))
        self._workers.tell(ENGINE, engine and Commit(update=engine.update))
        if text is not None:
            self.text = msgspec.structs.replace(self.text, limits=text.limits, chat_template=text.chat_template)
        if engine is not None:
            self.engine_limits = engine.limits

    def discard(self, text: PrepareText | None, engine: PrepareEngine | None) -> None:
        self._workers.tell(TEXT, text and Discard(update=text.update))
        self._workers.tell(ENGINE, engine and Discard(update=engine.update))

    def confirm(self, update: int) -> None:
        """The engine has taken it, and with it whatever was committed before: it takes them in order."""
        for each in sorted(before for before in self._unconfirmed if before <= update):
            self._unconfirmed.pop(each)()

    def _tell_of(self, update: int) -> None:
        if update in self._unconfirmed:
            hint = "its bytes stay counted as the more of before and after"
            _log.warning("change_not_confirmed", path=self.text.path, update=update, hint=hint)

    def confirm_all(self) -> None:
        """The engine is gone: nothing that it held is held any more."""
        self.confirm(max(self._unconfirmed, default=0))
