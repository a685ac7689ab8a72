"""`halogend hold`: no trigger changes anything until `halogend resume`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from halogend.cli import admin, plan
from halogend.cli.show import hold_line


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "hold",
        help="let no edit change anything until `halogend resume`",
        description="Edits of the source, SIGHUP and `halogend reload` are put off, each with a receipt that says so;"
        " `halogend reload --force` and `halogend rollback` still work. A hold outlives a restart.",
    )
    plan.add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        _, body = admin.ask(admin.address(args), "POST", "/hold")
    except admin.AdminError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(body, indent=2) if args.json else hold_line(body["hold"]))
    return 0
