"""`halogend check`: everything that is wrong with a document, at once."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from halogend.cli import arguments
from halogend.cli.documents import DOCUMENT_HELP, UnreadableError, read_document

if TYPE_CHECKING:
    from halogend.config.facts import Facts
    from halogend.config.places import ParseResult
    from halogend.config.problems import Problem
    from halogend.config.schema import Document
    from halogend.config.targets import Assumed

USAGE = 2


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "check",
        help="everything that is wrong with a document, at once",
        description="Prints each problem as file:line:column: CODE: message (hint). Exit 0 valid, 1 invalid.",
    )
    parser.add_argument("file", type=arguments.file_name, metavar="FILE", help=DOCUMENT_HELP)
    parser.add_argument(
        "--print", action="store_true", dest="show", help="print the canonical form of a valid document"
    )
    parser.add_argument("--offline", action="store_true", help="look at no file and no device the document names")
    parser.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="DEVICE[=MEMORY]",
        help="assume a machine with this accelerator instead of this one's, such as ai_max_395 or a100=40GiB (may be"
        " repeated), and a processor, of which only cpu=64GiB says how much memory it has, cpu that it is this one's",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from halogend.config.canonical import canonical, revision, short_revision
    from halogend.config.parse import parse
    from halogend.config.rules import check
    from halogend.config.targets import targets

    try:
        data, name = read_document(args.file)
        assumed = targets(args.target) if args.target else None
    except UnreadableError as error:
        print(f"halogend check: {error}", file=sys.stderr)
        return USAGE
    except ValueError as error:
        print(f"halogend check: --target: {error}", file=sys.stderr)
        return USAGE
    parsed = parse(data, name, os.environ)
    facts = _facts(parsed.partial, assumed, offline=args.offline) if parsed.partial else None
    problems = check(parsed, facts)
    for warning in _warnings(parsed, facts):
        print(f"warning: {warning}", file=sys.stderr)
    for problem in problems:
        print(problem)
    if problems or parsed.document is None:
        return 1
    if args.show:
        print(canonical(parsed.document), end="")
        return 0
    names = ", ".join(model.name for model in parsed.document.models) or "none"
    print(f"{args.file}: valid, revision {short_revision(revision(parsed.document))}, models: {names}")
    return 0


def _warnings(parsed: ParseResult, facts: Facts | None) -> Iterator[Problem]:
    """What is wrong and refuses nothing, and what cannot be judged here."""
    from halogend.config.kernel_rules import unjudged_kernels

    for file in facts.files if facts else ():
        if file.warning:
            yield parsed.places.problem(file.fault.code, file.path, file.fault.message, file.fault.hint)
    if facts is None and parsed.partial is not None:
        yield from unjudged_kernels(parsed.partial, parsed.places)


def _facts(document: Document, assumed: Assumed | None, *, offline: bool) -> Facts | None:
    """What is known beyond the text: of this machine, of the one to assume, or nothing."""
    if offline:
        from halogend.config.facts import Facts
        from halogend.config.placement import divided

        return None if assumed is None else Facts(devices=divided(document, assumed.devices()))
    from halogend.control.facts import gather_facts

    return gather_facts(document, assumed)
