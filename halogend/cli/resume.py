"""`halogend resume`: the end of a hold."""

from __future__ import annotations

import argparse
from typing import Any

from halogend.cli import plan
from halogend.cli.reload import add_wait, change


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "resume",
        help="end a hold, and apply what was put off",
        description="Exit 0: applied, unchanged, or nothing was put off. 1: rejected or failed. 3: applied in part.",
    )
    add_wait(parser)
    plan.add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    return change(args, "/resume", nothing="changes are free; nothing was put off")
