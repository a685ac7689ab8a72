"""The command line of `halogen-flash-server`: what stands there, and what people may have meant."""

from __future__ import annotations

import argparse
import difflib
from collections import Counter
from collections.abc import Sequence

from halogend import version
from halogend.cli.admin import add_socket
from halogend.cli.arguments import path
from halogend.cli.run import add_log_level
from halogend.cli.state import add_state
from halogend.cli.warmup_kernel import add_warmup
from halogend.config.flash_flags import FLAGS
from halogend.config.shape import MODEL_KEYS, SERVER_KEYS

_OTHERS = ("selftest", "warmup-kernel", "config", "print", "admin", "state", "resume", "log-level", "version", "help")
# What people may have meant: a flag by its name, or by the field it sets.
MEANT = {
    **{f"--{flag.field.rpartition('.')[2].replace('_', '-')}": flag.spelled for flag in FLAGS},
    **{flag.spelled: flag.spelled for flag in FLAGS},
    **{f"--{name}": f"--{name}" for name in _OTHERS},
}


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """With `values`, what stood behind each flag that sets a field. Usage errors end the process with 2."""
    parser = _parser()
    spelled = [_with_dashes(word) for word in words]
    args, unknown = parser.parse_known_args(spelled)
    if unknown:
        parser.error("; ".join(_unknown(word) for word in _flags_first(unknown)))
    given = {flag: getattr(args, flag.name) for flag in FLAGS if getattr(args, flag.name) is not None}
    for flag, values in given.items():
        if len(values) > 1:
            parser.error(f"{flag.spelled} stands {len(values)} times: {', '.join(values)}; keep one of them")
    for name, times in Counter(word.partition("=")[0] for word in spelled if word.startswith("--")).items():
        if times > 1:
            parser.error(f"{name} stands {times} times; keep one of them")
    if args.config is not None and given:
        fields = ", ".join(f"{flag.spelled} as `{flag.field}`" for flag in given)
        parser.error(f"the file of --config is the whole document, and an edit of it must count: write {fields} there")
    alone = args.warmup_kernel or args.selftest
    if args.config is None and not alone and "model-path" not in {flag.name for flag in given}:
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
    parser.add_argument("--config", type=path, metavar="FILE", help="a document, watched as by `halogend run`")
    parser.add_argument("--print", action="store_true", dest="show", help="print the document and end")
    parser.add_argument("--selftest", action="store_true", help="try every operator on this machine's devices and end")
    add_socket(parser)
    add_state(parser)
    add_log_level(parser)
    add_warmup(parser)
    parser.add_argument("--version", action="version", version=f"halogend {version()}")
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
