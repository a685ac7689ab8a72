"""What a process last said, as people read it: its log lines are JSON, and stand in a status that is for them."""

from __future__ import annotations

import json
from typing import Any

_MOST_CHARS = 400  # of a line
_LEFT_OUT = frozenset({"event", "role", "level", "timestamp", "exception"})


def readable(text: str) -> str:
    """Each line of `text`: a log line as `role: event key=value ...: the error`, any other as it is; none is longer
    than a person reads."""
    return "\n".join(_short(_said(line)) for line in text.splitlines())


def _said(line: str) -> str:
    event = _event(line)
    if event is None:
        return line
    said = [str(event["event"]), *(f"{key}={value}" for key, value in event.items() if key not in _LEFT_OUT)]
    role, error = event.get("role"), _error(event)
    return (f"{role}: " if role else "") + " ".join(said) + (f": {error}" if error else "")


def _event(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and "event" in event else None


def _error(event: dict[str, Any]) -> str:
    """The last line of a traceback says what it was; the whole is in the log."""
    lines = str(event.get("exception") or "").strip().splitlines()
    return lines[-1] if lines else ""


def _short(line: str) -> str:
    return line if len(line) <= _MOST_CHARS else f"{line[:_MOST_CHARS]}..."
