"""The `halogend` command: finds the subcommand and runs it.

Each command is a module with `add(subparsers)` and `run(args) -> exit status`; what a command needs
beyond argparse it imports when it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from halogend import version
from halogend.cli.early import end_when_told

INTERRUPTED = 130
BROKEN_PIPE = 141


def parser() -> argparse.ArgumentParser:
    from halogend.cli import (
        bench,
        check,
        convert,
        crd,
        drain,
        explain,
        hold,
        inspect,
        plan,
        receipts,
        reload,
        resume,
        rollback,
        run,
        schema,
        selftest,
        status,
        ui,
        verify,
        warmup_kernel,
    )
    from halogend.cli.parser import CommandParser

    top = argparse.ArgumentParser(prog="halogend", description="One declaration, live LLM engines.")
    top.add_argument("--version", action="version", version=f"halogend {version()}")
    subparsers = top.add_subparsers(required=True, metavar="COMMAND", parser_class=CommandParser)
    for command in (
        run,
        check,
        convert,
        crd,
        plan,
        reload,
        rollback,
        hold,
        resume,
        drain,
        status,
        receipts,
        ui,
        inspect,
        verify,
        warmup_kernel,
        explain,
        schema,
        selftest,
        bench,
    ):
        command.add(subparsers)
    for each in (top, *subparsers.choices.values()):
        each.set_defaults(parser=each)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit statuses are the command's own; 2 is a usage error, but where a command says another."""
    if arguments is None and sys.argv[1:2] == ["run"]:
        end_when_told()
    args, unknown = parser().parse_known_args(arguments)
    if unknown:
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return to_the_end(lambda: args.run(args))


def to_the_end(command: Callable[[], int]) -> int:
    """The command's exit status, or what an interrupt or a reader that left means as one."""
    try:
        status_code = command()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return status_code
