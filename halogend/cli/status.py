"""`halogend status`: what serves, what is on its way, what is wrong."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import Any

from halogend.cli import admin

_PIPE_COLUMNS = 160


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "status",
        help="what serves, what is on its way, what is wrong",
        description="Exit 0: every model is what the document asks for. 1: something is not, or no daemon answers.",
    )
    parser.add_argument("--json", action="store_true", help="JSON alone on standard output; with --watch a line each")
    text = "until interrupted: redrawn on a terminal, elsewhere the status and then a line for each thing that happens"
    parser.add_argument("--watch", action="store_true", help=text)
    admin.add_address(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        return _watch(args) if args.watch else _show(args)
    except admin.AdminError as error:
        print(error, file=sys.stderr)
        return 1


def _show(args: argparse.Namespace) -> int:
    from halogend.cli.status_table import status_lines

    status = admin.look(admin.address(args), "/status")
    columns = shutil.get_terminal_size((_PIPE_COLUMNS, 0)).columns
    print(json.dumps(status, indent=2) if args.json else "\n".join(status_lines(status, columns)))
    return 0 if status["settled"] else 1


def _watch(args: argparse.Namespace) -> int:
    from halogend.cli.watch import watch

    try:
        return watch(admin.address(args), as_json=args.json)
    except KeyboardInterrupt:
        return 0
