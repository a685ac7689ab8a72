"""`halogen-flash-server`: the same daemon for people who come with that command line.

Its flags make a document, which is what runs; `--print` shows it, to go on with a file. What a flag
sets is in `config.flash_flags`; what a value may be is the document's business.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from halogend.cli.early import end_when_told

if TYPE_CHECKING:
    from halogend.config.flash_flags import FlagDocument


def main(words: Sequence[str] | None = None) -> int:
    """Exit statuses: 0 stopped in order, 78 a bad document, 2 a usage error; with `--print` 0 valid, 1 invalid."""
    if words is None:
        words = sys.argv[1:]
        if "--print" not in words:
            end_when_told()
    from halogend.cli.flash_arguments import arguments
    from halogend.cli.main import to_the_end

    args = arguments(words)
    return to_the_end(lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    from halogend.cli import selftest
    from halogend.cli.warmup_kernel import warm_up_for
    from halogend.config.flash_flags import COMMAND_LINE, FlagDocument

    if args.selftest:
        return selftest.run(
            argparse.Namespace(device=[], backend="auto", seed=None, json=False, state=args.state, cache_dir=None)
        )
    if args.config is not None:
        return _show_file(args.config) if args.show else _run_file(args)
    document, is_stated = FlagDocument(args.values), "model-path" in args.values
    if args.warmup_kernel:
        known = document.parse(document.data, COMMAND_LINE, os.environ).partial if is_stated else None
        status = warm_up_for(known, os.environ)
        if not is_stated:
            return status
    return _show(document) if args.show else _serve(document, args)


def _run_file(args: argparse.Namespace) -> int:
    """As `halogend run` does, with what this command line has no flag for as it is there."""
    from halogend.cli import run

    return run.run(argparse.Namespace(**vars(args), source="file", stop_drain=run.STOP_DRAIN_S))


def _serve(document: FlagDocument, args: argparse.Namespace) -> int:
    import asyncio

    from halogend import daemon
    from halogend.cli.admin import own_socket
    from halogend.cli.kernel_cache import kernel_cache
    from halogend.cli.state import state_directory
    from halogend.config.flash_flags import COMMAND_LINE
    from halogend.control.source import StatedSource
    from halogend.obs.log import configure_daemon

    configure_daemon(level=args.log_level)
    source = StatedSource(COMMAND_LINE, document.data, document.parse)
    state = state_directory(args.state, os.environ)
    options = daemon.Options(
        config=source,
        admin=own_socket(args),
        environ=dict(os.environ),
        state=state,
        resume=args.resume,
        kernel_cache=kernel_cache(os.environ),
    )
    return asyncio.run(daemon.run(options))


def _show(document: FlagDocument) -> int:
    from halogend.config import rules
    from halogend.config.canonical import canonical
    from halogend.config.flash_flags import COMMAND_LINE
    from halogend.control.facts import gather_facts

    parsed = document.parse(document.data, COMMAND_LINE, os.environ)
    problems = rules.check(parsed, gather_facts(parsed.partial) if parsed.partial else None)
    for problem in problems:
        print(problem)
    if problems or parsed.document is None:
        return 1
    print(canonical(parsed.document), end="")
    return 0


def _show_file(path: Path) -> int:
    from halogend.cli import check

    return check.run(argparse.Namespace(file=str(path), show=True, offline=False, target=[]))
