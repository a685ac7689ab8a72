"""`halogend reload`: have the daemon read its source now, and print the receipt."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from halogend.cli import admin
from halogend.cli.show import receipt_lines

_EXIT = {"applied": 0, "unchanged": 0, "partially_applied": 3}


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("reload", help="read the source now and print the receipt")
    parser.add_argument("--wait", choices=("serving", "closed", "none"), default="serving")
    parser.add_argument("--json", action="store_true")
    admin.add_address(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        _, receipt = admin.ask(admin.address(args), "POST", f"/reload?wait={args.wait}")
    except admin.AdminError as error:
        print(error, file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(receipt, indent=2))
    else:
        print("\n".join(receipt_lines(receipt)))
    return 0 if receipt["outcome"] is None else _EXIT.get(receipt["outcome"], 1)
