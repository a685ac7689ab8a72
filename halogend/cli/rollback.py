"""`halogend rollback`: apply a document that was active before."""

from __future__ import annotations

import argparse
import sys
from typing import Any
from urllib.parse import quote

from halogend.cli import admin, plan
from halogend.cli.reload import add_wait, change, show_plan


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "rollback",
        help="apply a document that was active before",
        description="The source stays as it is: its next edit, or `halogend reload`, applies it again, unless changes"
        " are held. Exit 0: applied or unchanged. 1: rejected, failed or not kept. 3: applied in part.",
    )
    parser.add_argument(
        "receipt", nargs="?", metavar="RECEIPT", help="such as r12; default: the document that was active before"
    )
    add_wait(parser)
    parser.add_argument("--hold", action="store_true", help="hold changes first, so that no edit of the source follows")
    parser.add_argument("--dry-run", action="store_true", help="print the plan only, as `halogend plan` does")
    plan.add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    wanted = f"receipt={quote(args.receipt)}" if args.receipt else ""
    if args.dry_run:
        return show_plan(args, f"/rollback?{wanted}&dry_run=true")
    if args.hold:
        try:
            admin.ask(admin.address(args), "POST", "/hold")
        except admin.AdminError as error:
            print(error, file=sys.stderr)
            return 1
    return change(args, f"/rollback?{wanted}")
