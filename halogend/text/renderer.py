"""The text process's hold on the process that renders templates: limits on time, a fresh child
after each death, and one render at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from typing import Any

from halogend.text.render_frames import LENGTH, frame, unframe

LIMIT_S = 2.0
_START_LIMIT_S = 30.0
_ATTEMPTS = 2  # a child that somebody else killed is not this template's fault


@dataclass(frozen=True, slots=True)
class Rendered:
    """`fault` empty: `text` is what the template wrote. Otherwise a kind and `text` says why: syntax,
    rejected, failed, memory, timeout and died are the template's doing; unavailable is not."""

    text: str
    fault: str = ""


def request_of(source: str, context: dict[str, Any]) -> bytes:
    """`source` is Jinja. Work for a thread where the context is long."""
    return frame({"source": source, "context": context})


class _UnavailableError(Exception):
    """There is no child and there could be none."""


class Renderer:
    """Starts its child when it is first needed. Must be closed. The child is spawned from the
    event loop's thread, whose end it does not survive."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._child: Process | None = None
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def render(self, request: bytes) -> Rendered:
        """What `request_of` made. Renders are done one after the other, in order; each has `limit_s` of
        wall-clock time from the moment that the child is free. Never raises for what a template does.
        A render whose caller is cancelled ends at once."""
        async with self._turn:
            for _ in range(_ATTEMPTS):
                try:
                    return await self._attempt(request)
                except _UnavailableError as error:
                    return Rendered(str(error), "unavailable")
                except (ConnectionError, asyncio.IncompleteReadError):
                    await self._end_child()
        return Rendered("the process that rendered it died", "died")

    async def _attempt(self, request: bytes) -> Rendered:
        """Raises ConnectionError or IncompleteReadError when the child is dead, and _UnavailableError."""
        try:
            child = await self._ready_child()
            async with asyncio.timeout(self._limit_s):
                answer = await _ask(child, request)
        except TimeoutError:
            await self._end_child()
            return Rendered(f"it ran for more than {self._limit_s:g} s", "timeout")
        except asyncio.CancelledError:  # its answer would be taken for the next request's
            await asyncio.shield(self._end_child())
            raise
        if "fault" not in answer:
            return Rendered(answer["text"])
        if answer["fault"] == "memory":  # what is left of its heap is not worth keeping
            await self._end_child()
        return Rendered(answer["message"], answer["fault"])

    async def close(self) -> None:
        async with self._turn:
            await self._end_child()

    async def _ready_child(self) -> Process:
        """A child that has answered once, so that its start does not count as rendering.

        Raises _UnavailableError, and ConnectionError or IncompleteReadError when it dies at once.
        """
        if self._child is not None and self._child.returncode is None:
            return self._child
        command = [sys.executable, "-P", "-m", "halogend.text.render", "--parent-pid", str(os.getpid())]
        try:
            self._child = child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        except OSError as error:
            raise _UnavailableError(f"the process that renders it cannot be started: {error}") from error
        try:
            async with asyncio.timeout(_START_LIMIT_S):
                await _ask(child, request_of("", {}))
        except TimeoutError as error:
            await self._end_child()
            raise _UnavailableError(f"the process that renders it did not start in {_START_LIMIT_S:g} s") from error
        return child

    async def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        if child.returncode is None:
            # Not child.kill(), which would reap a child that is dead already behind asyncio's back.
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        await child.wait()
        if child.stdin is not None:
            child.stdin.close()


async def _ask(child: Process, request: bytes) -> dict[str, Any]:
    if child.stdin is None or child.stdout is None:
        raise ConnectionError("the child has no pipes")
    child.stdin.write(request)
    await child.stdin.drain()
    (length,) = LENGTH.unpack(await child.stdout.readexactly(LENGTH.size))
    return unframe(await child.stdout.readexactly(length))
