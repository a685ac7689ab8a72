"""`halogend status`: what serves, what is on its way, what is wrong."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from halogend.cli import admin
from halogend.cli.show import status_lines

_WATCH_EVERY_S = 1.0


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("status", help="what serves, what is on its way, what is wrong")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--watch", action="store_true", help="again every second, until interrupted")
    admin.add_address(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when every model is what the document asks for, else 1."""
    try:
        while True:
            _, status = admin.ask(admin.address(args), "GET", "/status")
            print(json.dumps(status, indent=2) if args.json else "\n".join(status_lines(status)), flush=True)
            if not args.watch:
                return 0 if status["settled"] else 1
            time.sleep(_WATCH_EVERY_S)
            print()
    except admin.AdminError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
