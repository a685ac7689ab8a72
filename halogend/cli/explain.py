"""`halogend explain CODE`: why an error comes and what to do about it."""

from __future__ import annotations

import argparse
import sys
from typing import Any


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("explain", help="cause and remedy of an error code")
    parser.add_argument("code", nargs="?", metavar="CODE", help="such as HCF-1007; without it all codes are listed")
    parser.add_argument("--markdown", action="store_true", help="the reference page of all codes")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit 0, or 1 for a code that is not known."""
    from halogend.config.codes import Code, find, nearest

    if args.markdown:
        from halogend.config.reference import errors_markdown

        print(errors_markdown(), end="")
        return 0
    if args.code is None:
        for code in Code:
            print(f"{code.value}  {code.heading}")
        return 0
    found = find(args.code)
    if found is not None:
        print(f"{found.value}: {found.heading}\n\nCause:  {found.cause}\nRemedy: {found.remedy}")
        return 0
    print(f"halogend explain: {args.code!r} is no known code", file=sys.stderr)
    for code in nearest(args.code):
        print(f"  {code.value}  {code.heading}", file=sys.stderr)
    return 1
