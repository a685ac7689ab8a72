"""Log lines: constant snake_case events with keys, readable on a terminal, JSON otherwise.

Prompts and completions are never logged; that is the callers' duty, no filter could keep it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

_NOT_IN_LINES = re.compile("[\u0085\u2028\u2029\ud800-\udfff]")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _TwoStreams:
    """Routine lines go one way, errors another; a line is one write."""

    def __init__(self, routine: TextIO, errors: TextIO) -> None:
        self._routine = routine
        self._errors = errors

    def msg(self, line: str) -> None:
        self._put(self._routine, line)

    def error(self, line: str) -> None:
        self._put(self._errors, line)

    debug = info = warning = warn = msg
    critical = exception = fatal = error

    @staticmethod
    def _put(stream: TextIO, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the reader is gone or the disk full: serve on
            stream.write(line + "\n")
            stream.flush()


class _FromLibraries(logging.Handler):
    """Brings what libraries say through the standard module into the same lines."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger()
        logger.log(
            record.levelno, "library_log", library=record.name, message=record.getMessage(), exc_info=record.exc_info
        )


def configure_daemon(*, level: str = "info", routine: TextIO | None = None, errors: TextIO | None = None) -> None:
    """For the daemon and the command line: routine lines to stdout, errors to stderr.

    `level` is debug, info, warning or error. Calling it again replaces the set-up.
    """
    _configure(level, routine or sys.stdout, errors or sys.stderr, bound={})


def configure_worker(role: str, *, level: str = "info", stream: TextIO | None = None) -> None:
    """For a text or engine process: everything to stderr, each line with the process's `role`."""
    stream = stream or sys.stderr
    _configure(level, stream, stream, bound={"role": role})


def _configure(level: str, routine: TextIO, errors: TextIO, bound: dict[str, str]) -> None:
    def add_bound(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {**bound, **event}

    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        add_bound,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        *_rendering(readable=routine.isatty()),
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: _TwoStreams(routine, errors),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [handler for handler in root.handlers if not isinstance(handler, _FromLibraries)]
    root.addHandler(_FromLibraries(logging.WARNING))


def _rendering(*, readable: bool) -> list[Processor]:
    """Tracebacks are plain: by default they show local variables, and with them keys and prompts."""
    if readable:
        return [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_as_line, default=str)]


def _as_line(event: EventDict, **options: Any) -> str:
    """Readable, and one line to every reader: some cut at U+0085, U+2028 and U+2029 as well. Half of a
    surrogate pair cannot be written at all."""
    text = json.dumps(event, ensure_ascii=False, **options)
    return _NOT_IN_LINES.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
