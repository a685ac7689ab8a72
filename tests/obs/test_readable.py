"""Log lines in a status are for people."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from halogend.obs.log import configure_worker
from halogend.obs.readable import readable


@pytest.fixture(autouse=True)
def _undo() -> Iterator[None]:
    handlers = logging.getLogger().handlers[:]
    yield
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers


def test_what_a_worker_logs_is_readable() -> None:
    out = io.StringIO()
    configure_worker("engine", stream=out)
    log = structlog.get_logger()
    log.error("start_failed", code="HCK-1003", reason="/m.gguf: was cut short")
    try:
        int("no number")
    except ValueError:
        log.exception("internal_fault", where="step")
    assert readable(out.getvalue()).splitlines() == [
        "engine: start_failed code=HCK-1003 reason=/m.gguf: was cut short",
        "engine: internal_fault where=step: ValueError: invalid literal for int() with base 10: 'no number'",
    ]


def test_what_is_no_log_line_stays_as_it_is() -> None:
    text = 'Traceback (most recent call last):\n  File "x.py"\n{"a": 1}\n{"event": \n' + "{" * 3000
    assert readable(text).splitlines()[:-1] == text.splitlines()[:-1]
    assert readable("") == ""


def test_a_line_is_no_longer_than_is_read() -> None:
    assert len(readable(json.dumps({"event": "x", "list": "y" * 9000}))) < 500
