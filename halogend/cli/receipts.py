"""`halogend receipts`: what changed, when, and how it ended."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from halogend.cli import admin
from halogend.cli.show import receipt_head, receipt_lines, receipt_row


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("receipts", help="the kept receipts, or one in full")
    parser.add_argument("id", nargs="?", help="such as r3")
    parser.add_argument("--json", action="store_true")
    admin.add_address(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        body = admin.look(admin.address(args), f"/receipts/{args.id}" if args.id else "/receipts")
    except admin.AdminError as error:
        print(error, file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(body, indent=2))
    else:
        rows = [receipt_head(), *(receipt_row(each) for each in body.get("receipts", ()))]
        print("\n".join(receipt_lines(body) if args.id else rows))
    return 0
