"""`halogend schema`: what a document may hold, for editors and for people."""

from __future__ import annotations

import argparse
from typing import Any


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("schema", help="JSON Schema of the document")
    parser.add_argument("--markdown", action="store_true", help="the reference page for people instead")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import json

    if args.markdown:
        from halogend.config.reference import config_markdown

        print(config_markdown(), end="")
    else:
        from halogend.config.json_schema import json_schema

        print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return 0
