"""`halogend plan`: what a document would do to the running daemon, without doing it."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import Any
from urllib.parse import quote

from halogend.cli import admin, arguments
from halogend.cli.documents import DOCUMENT_HELP, UnreadableError, read_document
from halogend.cli.plan_table import plan_lines

_EXIT = {"unchanged": 0, "changes": 2}
_FAULT = 1
_PIPE_COLUMNS = 120


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "plan",
        help="what a document would do to the running daemon",
        description="Exit 0: nothing to do. 2: changes. 1: it would be rejected, or the daemon cannot be asked.",
    )
    parser.usage_status = _FAULT
    parser.add_argument(
        "file",
        type=arguments.file_name,
        metavar="FILE",
        nargs="?",
        help=f"{DOCUMENT_HELP}; default: the daemon's own source",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="JSON alone on standard output")
    admin.add_address(parser)


def run(args: argparse.Namespace) -> int:
    try:
        if args.file is None:
            return show(args, admin.ask(admin.address(args), "GET", "/plan")[1])
        data, name = read_document(args.file)
        return show(args, admin.ask(admin.address(args), "POST", f"/plan?file={quote(name)}", data)[1])
    except UnreadableError as error:
        print(f"halogend plan: {error}", file=sys.stderr)
    except admin.AdminError as error:
        print(error, file=sys.stderr)
    return _FAULT


def show(args: argparse.Namespace, plan: dict[str, Any]) -> int:
    """Prints a plan; returns the exit status that says what it would come to."""
    if args.json:
        print(json.dumps(plan, indent=2))
    else:
        columns = shutil.get_terminal_size((_PIPE_COLUMNS, 0)).columns
        print("\n".join(plan_lines(plan, columns)))
    return _EXIT.get(plan["outcome"], _FAULT)
