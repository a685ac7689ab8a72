"""What the programs say by how they end: the one table of exit statuses.

docs/operations.md shows it, the unit file refers to it, and a test brings about each row.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


class Exit(enum.IntEnum):
    """From sysexits.h where that has a name for it."""

    DONE = 0
    REFUSED = 1
    USAGE = 2  # and of `plan`: there are changes, as such commands have it elsewhere
    IN_PART = 3
    NOTHING_SERVES = 69  # EX_UNAVAILABLE
    FAULT = 70  # EX_SOFTWARE
    BAD_DOCUMENT = 78  # EX_CONFIG
    INTERRUPTED = 130
    BROKEN_PIPE = 141


@dataclass(frozen=True, slots=True)
class Row:
    """One way to end. `command` is a word of the command line, or a key of `COMMANDS`."""

    status: Exit
    command: str
    meaning: str
    restart: bool = False  # should a service manager start it again?


COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "daemon": "`run`, `halogen-flash-server`",
        "reload": "`reload`, `rollback`, `resume`",
        "any": "any",
    }
)

ROWS = (
    Row(Exit.DONE, "daemon", "stopped in order, by SIGTERM or SIGINT, also when that came during the first load"),
    Row(Exit.USAGE, "daemon", "a wrong command line"),
    Row(Exit.NOTHING_SERVES, "daemon", "the first document is right, but every model of it failed to load; with "
        "`--source push`: no listener can be had, so that nobody could hand a document in"),
    Row(Exit.FAULT, "daemon", "a fault of halogend's own while it took the first document", restart=True),
    Row(Exit.BAD_DOCUMENT, "daemon", "the first document was refused: unreadable, wrong, too large for the machine, "
        "or its address cannot be had (not with `--source push`)"),
    Row(Exit.DONE, "check", "the document is valid"),
    Row(Exit.REFUSED, "check", "the document is not valid"),
    Row(Exit.USAGE, "check", "a wrong command line, or the file cannot be read"),
    Row(Exit.DONE, "plan", "nothing to do"),
    Row(Exit.REFUSED, "plan", "the document would be rejected, no daemon answers, or a wrong command line"),
    Row(Exit.USAGE, "plan", "there are changes to make"),
    Row(Exit.DONE, "reload", "applied or unchanged; with `--wait none`: asked for"),
    Row(Exit.REFUSED, "reload", "rejected, failed, superseded or held, or no daemon answers"),
    Row(Exit.IN_PART, "reload", "some models changed, or listeners and keys, others failed"),
    Row(Exit.DONE, "hold", "changes are held"),
    Row(Exit.REFUSED, "hold", "no daemon answers"),
    Row(Exit.DONE, "drain", "what drained is gone; with `--wait none`: told how it stands"),
    Row(Exit.REFUSED, "drain", "nothing of the model drains, it is not known, or no daemon answers"),
    Row(Exit.DONE, "status", "every model is what the document asks for"),
    Row(Exit.REFUSED, "status", "something is not as asked for, or no daemon answers"),
    Row(Exit.DONE, "ui", "interrupted from the terminal"),
    Row(Exit.REFUSED, "ui", "the port is taken, or no daemon answers"),
    Row(Exit.DONE, "receipts", "printed"),
    Row(Exit.REFUSED, "receipts", "there is no such receipt, or no daemon answers"),
    Row(Exit.DONE, "explain", "the code is known"),
    Row(Exit.REFUSED, "explain", "no such code"),
    Row(Exit.USAGE, "any", "a wrong command line (but of `plan`)"),
    Row(Exit.INTERRUPTED, "any", "interrupted from the terminal (the daemon, `status --watch` and `ui` end with 0)"),
    Row(Exit.BROKEN_PIPE, "any", "whoever read the output left"),
)  # fmt: skip


def final_statuses() -> tuple[int, ...]:
    """The daemon's statuses after which starting it again changes nothing: the same end would come."""
    rows = (row for row in ROWS if row.command == "daemon" and row.status is not Exit.DONE)
    return tuple(sorted(int(row.status) for row in rows if not row.restart))


def table() -> list[str]:
    """The rows as lines of Markdown."""
    lines = ["| status | command | when |", "|---|---|---|"]
    return lines + [
        f"| {int(row.status)} | {COMMANDS.get(row.command, f'`{row.command}`')} | {row.meaning} |" for row in ROWS
    ]
