"""`halogend drain`: what still runs on a model's old generation, until it is gone, or its end now."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any
from urllib.parse import quote

from halogend.cli import admin, plan

_KINDS = ("generations", "replicas")


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "drain",
        help="wait for the drain of a model's old generation or replica, or end it",
        description="After a model was replaced or removed, or a replica of it taken away, its requests go on where"
        " they began until they are done or `drain_timeout_s` is over. This says how many there are and how long that"
        " may take, and returns when they are gone and their memory is back. Exit 0: nothing is left. 1: nothing of the"
        " model drains, or it is not known.",
    )
    parser.add_argument("model", metavar="MODEL", help="its name")
    parser.add_argument("--now", action="store_true", help="end its requests now, each with an error that says so")
    text = "default: until what drains is gone; none: say how it stands and return"
    parser.add_argument("--wait", choices=("closed", "none"), default="closed", help=text)
    plan.add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    where, path = admin.address(args), f"/models/{quote(args.model)}/drain"
    try:
        told = admin.ask(where, "POST", path)[1]
        if args.wait == "closed":
            if not args.json:
                print("\n".join(drain_lines(told)), flush=True)
            told = _closed(where, f"{path}?wait=closed&now={str(args.now).lower()}", told)
        elif args.now:
            told = admin.ask(where, "POST", f"{path}?now=true")[1]
    except admin.AdminError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(told, indent=2) if args.json else "\n".join(drain_lines(told)))
    return 0


def _closed(where: admin.Endpoint, path: str, told: dict[str, Any]) -> dict[str, Any]:
    """As it is in the end. What was over before it could be waited for is gone."""
    try:
        answer: dict[str, Any] = admin.ask(where, "POST", path)[1]
    except admin.AdminError as error:
        if error.status not in {404, 409}:
            raise
        return {**told, **{kind: [{**each, "state": "gone"} for each in told.get(kind, ())] for kind in _KINDS}}
    return answer


def drain_lines(told: dict[str, Any]) -> list[str]:
    return [f"{told['model']}: {_line(each)}" for kind in _KINDS for each in told.get(kind, ())]


def _line(each: dict[str, Any]) -> str:
    name = f"generation {each['generation']}"
    if "replica" in each:
        name = f"replica {each['replica']} on {each['device']}"
    cut = f"; {_requests(each['ended'])} ended by {each['by']}" if each["ended"] else ""
    if each["state"] == "draining":
        time = f"{each['left_s']:.0f} s of {each['limit_s']:.0f} left"
        return f"{name} drains: {_requests(each['requests'])}, {time}{cut}"
    return f"{name} is gone{cut}" if each["state"] == "gone" else f"{name} serves again"


def _requests(count: int) -> str:
    return f"{count} request" + ("" if count == 1 else "s")
