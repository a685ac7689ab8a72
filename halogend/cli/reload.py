"""`halogend reload`: have the daemon read its source now, and print the receipt."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from halogend.cli import admin, plan
from halogend.cli.show import receipt_lines

_EXIT = {"applied": 0, "unchanged": 0, "partially_applied": 3}
_FAULT = 1


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "reload",
        help="read the source now and print the receipt",
        description="Exit 0: applied or unchanged. 1: rejected, failed or held. 3: applied in part.",
    )
    add_wait(parser)
    parser.add_argument("--force", action="store_true", help="once, although changes are held")
    parser.add_argument("--dry-run", action="store_true", help="print the plan only, as `halogend plan` does")
    plan.add_json(parser)
    parser.set_defaults(run=run)


def add_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait", choices=("serving", "closed", "none"), default="serving", help="default: until it serves"
    )


def run(args: argparse.Namespace) -> int:
    if args.dry_run:
        return show_plan(args, "/reload?dry_run=true")
    return change(args, "/reload" + ("?force=true" if args.force else ""))


def show_plan(args: argparse.Namespace, path: str) -> int:
    try:
        return plan.show(args, admin.ask(admin.address(args), "POST", path)[1])
    except admin.AdminError as error:
        print(error, file=sys.stderr)
        return _FAULT


def change(args: argparse.Namespace, path: str, nothing: str = "") -> int:
    """Asks for a change, waits for it as `args` say, prints its receipt and returns the exit status of its outcome.
    `nothing` is said where the daemon had nothing to change."""
    from halogend.cli.progress import Progress

    where, known = admin.address(args), "receipts"
    try:
        with Progress(where):
            _, receipt = admin.ask(where, "POST", path)
            if "id" in receipt and args.wait != "none":
                known = f"receipts {receipt['id']}"
                print(f"receipt {receipt['id']}: waiting until it is {args.wait}", file=sys.stderr, flush=True)
                _, receipt = admin.ask(where, "GET", f"/receipts/{receipt['id']}?wait={args.wait}")
    except admin.AdminError as error:
        print(error if known == "receipts" else f"{error}\n`halogend {known}` says how it ended", file=sys.stderr)
        return _FAULT
    except KeyboardInterrupt:
        print(f"not waited for any more; the change goes on, and `halogend {known}` says how it ends", file=sys.stderr)
        raise
    if args.json:
        print(json.dumps(receipt, indent=2))
    else:
        print("\n".join(receipt_lines(receipt)) if "id" in receipt else nothing)
    outcome = receipt.get("outcome")
    return 0 if outcome is None else _EXIT.get(outcome, _FAULT)
