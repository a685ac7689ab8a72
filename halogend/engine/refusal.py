"""Why a model cannot be started here, known by code before anything of it is read."""

from __future__ import annotations


class StartRefusedError(Exception):
    """`code` is of the daemon's table, `message` for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
