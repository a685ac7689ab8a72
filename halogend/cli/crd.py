"""`halogend crd`: the CustomResourceDefinition that Kubernetes learns HalogenModels from."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("crd", help="the CustomResourceDefinition of HalogenModel")
    parser.add_argument(
        "--check",
        nargs="?",
        const="",
        metavar="FILE",
        help="print nothing; exit 1 if FILE (without it, the one under crds/) is not what would be printed",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit 0, or 1 where a file to check differs or cannot be read."""
    from halogend.config.custom_resource_definition import FILE, definition_text

    if args.check is None:
        print(definition_text(), end="")
        return 0
    path = Path(args.check or FILE)
    try:
        is_same = path.read_text(encoding="utf-8") == definition_text()
    except (OSError, UnicodeDecodeError) as error:
        print(f"halogend crd: {path} cannot be read: {error}", file=sys.stderr)
        return 1
    if not is_same:
        print(f"halogend crd: {path} differs; write it again: halogend crd > {path}", file=sys.stderr)
    return 0 if is_same else 1
