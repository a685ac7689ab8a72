"""`halogen-flash-server`: the same daemon for people who come with that command line.

Its flags make a document, which is what runs; `--print` shows it, to go on with a file. What a flag
sets is in `config.flash_flags`; what a value may be is the document's business.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from halogend import __version__
from halogend.cli import check
from halogend.cli import run as run_file
from halogend.cli.admin import add_socket, own_socket
from halogend.cli.main import to_the_end
from halogend.cli.state import add_state, state_directory
from halogend.config.flash_flags import COMMAND_LINE, FLAGS, FlagDocument
from halogend.config.shape import MODEL_KEYS, SERVER_KEYS
from halogend.obs.exits import Exit

_LATER = {
    "selftest": "remove it; it comes with the kernels for devices",
    "warmup-kernel": "remove it; it comes with the kernels for devices, and a CPU's need no compiling",
}
_OTHERS = (*_LATER, "config", "print", "admin", "log-level", "version", "help")
# What people may have meant: a flag by its name, or by the field it sets.
MEANT = {
    **{f"--{flag.field.rpartition('.')[2].replace('_', '-')}": flag.spelled for flag in FLAGS},
    **{flag.spelled: flag.spelled for flag in FLAGS},
    **{f"--{name}": f"--{name}" for name in _OTHERS},
}


def main(words: Sequence[str] | None = None) -> int:
    """Exit statuses: 0 stopped in order, 78 a bad document, 2 a usage error; with `--print` 0 valid, 1 invalid."""
    args = arguments(sys.argv[1:] if words is None else words)
    return to_the_end(lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    later = [name for name in _LATER if getattr(args, name)]
    if later:
        return _refuse(later)
    if args.config is not None:
        return _show_file(args.config) if args.show else run_file.run(args)
    document = FlagDocument(args.values)
    return _show(document) if args.show else _serve(document, args)


def _serve(document: FlagDocument, args: argparse.Namespace) -> int:
    import asyncio

    from halogend import daemon
    from halogend.control.source import StatedSource
    from halogend.obs.log import configure_daemon

    configure_daemon(level=args.log_level)
    source = StatedSource(COMMAND_LINE, document.data, document.parse)
    state = state_directory(args.state, os.environ)
    options = daemon.Options(
        config=source, admin=own_socket(args), environ=dict(os.environ), state=state, resume=args.resume
    )
    return asyncio.run(daemon.run(options))


def _show(document: FlagDocument) -> int:
    from halogend.config import rules
    from halogend.config.canonical import canonical
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
    return check.run(argparse.Namespace(file=str(path), show=True, offline=False, target=[]))


def _refuse(names: list[str]) -> int:
    from halogend.config.codes import Code
    from halogend.config.problems import Problem

    for name in names:
        flag = f"--{name}"
        problem = Problem(Code.NOT_AVAILABLE_YET, f"`{flag}` is not available yet", _LATER[name], flag)
        print(problem, file=sys.stderr)
    return Exit.BAD_DOCUMENT


# --- arguments ------------------------------------------------------------------------------------


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """With `values`, what stood behind each flag that sets a field. Usage errors end the process with 2."""
    parser = _parser()
    args, unknown = parser.parse_known_args([_with_dashes(word) for word in words])
    if unknown:
        parser.error("; ".join(_unknown(word) for word in _flags_first(unknown)))
    given = {flag: getattr(args, flag.name) for flag in FLAGS if getattr(args, flag.name) is not None}
    for flag, values in given.items():
        if len(values) > 1:
            parser.error(f"{flag.spelled} stands {len(values)} times: {', '.join(values)}; keep one of them")
    if args.config is not None and given:
        fields = ", ".join(f"{flag.spelled} as `{flag.field}`" for flag in given)
        parser.error(f"the file of --config is the whole document, and an edit of it must count: write {fields} there")
    later = any(getattr(args, name) for name in _LATER)
    if args.config is None and not later and "model-path" not in {flag.name for flag in given}:
        parser.error("--model-path PATH is missing (or --config FILE, a document)")
    args.values = {flag.name: values[0] for flag, values in given.items()}
    return args


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="halogen-flash-server",
        usage="halogen-flash-server --model-path PATH [FLAG ...] | --config FILE",
        description="Serves one model. Each flag sets a field of a document; underscores count as dashes.",
        allow_abbrev=False,
    )
    for flag in FLAGS:
        nargs = "?" if flag.bare else None
        text = f"{flag.meaning} ({flag.field})"
        parser.add_argument(
            flag.spelled, dest=flag.name, action="append", metavar=flag.metavar, help=text, nargs=nargs, const=flag.bare
        )
    parser.add_argument("--config", type=Path, metavar="FILE", help="a document, watched as by `halogend run`")
    parser.add_argument("--print", action="store_true", dest="show", help="print the document and end")
    for name in _LATER:
        parser.add_argument(f"--{name}", dest=name, action="store_true", help="not available yet")
    add_socket(parser)
    add_state(parser)
    run_file.add_log_level(parser)
    parser.add_argument("--version", action="version", version=f"halogend {__version__}")
    return parser


def _with_dashes(word: str) -> str:
    """`--max_model_len=9` -> `--max-model-len=9`; values stay as they are."""
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if word.startswith("--") else word


def _flags_first(words: list[str]) -> list[str]:
    """The unknown flags; without one, what stands where no flag wants a value."""
    return [word for word in words if word.startswith("-")] or words


def _unknown(word: str) -> str:
    name = word.partition("=")[0]
    if not name.startswith("-"):
        return f"{name!r} belongs to no flag"
    field = name.removeprefix("--").replace("-", "_")
    if name not in MEANT and field in (*MODEL_KEYS, *SERVER_KEYS):
        return f"no flag sets `{field}`; it is a field of a document, and --print writes one to start from"
    close = difflib.get_close_matches(name, MEANT, n=1)
    return f"unknown flag {name}, " + (f"did you mean {MEANT[close[0]]}?" if close else "--help lists the known ones")
