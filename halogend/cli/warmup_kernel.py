"""`halogend warmup-kernel`: all kernels compiled now, for the devices here or for a named one.

The compiling is done by a process of its own, `python -m halogen_kernels.triton.ahead`, which needs no device; this
command shows how far it is and what came of it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any

from halogend.cli import arguments
from halogend.cli.kernel_cache import PLACES, kernel_cache
from halogend.cli.kernel_progress import KernelProgress

if TYPE_CHECKING:
    from halogend.config.schema import Document

FAILED, USAGE = 1, 2
NO_DEVICE = 3  # what the compiling process ends with then
_NOT_FOR_COMPILERS = "TRITON_INTERPRET"
_TAIL_CHARS = 4000


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "warmup-kernel",
        help="compile all kernels now, for the devices here or a named one",
        description="Compiles every kernel that the cache lacks, on all cores, so that nothing is compiled while a"
        " model loads. What is there already is not touched: a complete cache may be a read-only mount. Needs no device"
        " with --target. Exit 0 complete, 1 a kernel could not be compiled, 2 a usage error.",
    )
    text = "a product (ai_max_395) or an architecture (sm_90); several stand one by one"
    parser.add_argument("--target", action="append", default=[], metavar="NAME", help=text)
    parser.add_argument("--cache-dir", type=arguments.path, metavar="DIR", help=f"else {PLACES}")
    parser.add_argument("--op", action="append", default=[], metavar="NAME", help="this operator alone (rms_norm, ...)")
    parser.add_argument("--jobs", type=arguments.count, help="that compile at once (default: the cores)")
    parser.add_argument("--json", action="store_true", help="print what came of it as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    directory = args.cache_dir or kernel_cache(os.environ)
    if directory is None:
        print("halogend warmup-kernel: there is no HOME: name a folder with --cache-dir", file=sys.stderr)
        return USAGE
    words = [word for name in args.target for word in ("--target", name)] or _here()
    words += [word for name in args.op for word in ("--op", name)]
    words += [] if args.jobs is None else ["--jobs", str(args.jobs)]
    status = warm_up(directory, words, as_json=args.json)
    return USAGE if status == NO_DEVICE else status


def warm_up(directory: Path, words: Sequence[str] = (), *, as_json: bool = False) -> int:
    """The exit status, NO_DEVICE without targets on a machine without one. `words` are the compiling process's; without
    them: all kernels for this machine's device."""
    if (why := _why_not()) is not None:
        print(f"halogend warmup-kernel: {why}", file=sys.stderr)
        return FAILED
    with TemporaryFile("w+") as said, KernelProgress() as progress, _compiler(directory, words, said) as child:
        events = list(progress.follow(_events(child.stdout or ())))
        child.wait()
        said.seek(0)
        told = said.read()[-_TAIL_CHARS:]
    is_through = any(each["event"] == "done" for each in events)
    if not is_through or child.returncode not in {0, FAILED}:
        print(f"halogend warmup-kernel: {told.strip() or 'the compiler told nothing'}", file=sys.stderr)
        return child.returncode or FAILED
    _show(directory, events, as_json=as_json)
    return child.returncode


def _compiler(directory: Path, words: Sequence[str], said: IO[str]) -> subprocess.Popen[str]:
    environ = {name: value for name, value in os.environ.items() if name != _NOT_FOR_COMPILERS}
    command = [sys.executable, "-P", "-m", "halogen_kernels.triton.ahead"]
    command += ["--cache-dir", str(directory), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env=environ)


def _why_not() -> str | None:
    from importlib.util import find_spec

    if find_spec("triton") is None or find_spec("torch") is None:
        return "compiling kernels needs Triton and torch: pip install 'halogend[engine,gpu]'"
    return None


def _events(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    for line in lines:
        yield json.loads(line)


def _show(directory: Path, events: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    done = [_without_event(each) for each in events if each["event"] == "done"]
    failed = [_without_event(each) for each in events if each["event"] == "failed"]
    if as_json:
        print(json.dumps({"cache_dir": str(directory), "targets": done, "failed": failed}))
        return
    for each in failed:
        print(f"{each['target']}: {each['op']}: {each['variant']}: {each['error']}", file=sys.stderr)
    print(f"{'TARGET':<10} {'KERNELS':>8} {'COMPILED':>9} {'FAILED':>7}")
    for each in done:
        state = "complete" if not each["failed"] else "not complete"
        print(f"{each['target']:<10} {each['wanted']:>8} {each['compiled']:>9} {each['failed']:>7}  {state}")
    print(f"in {directory}")


def _without_event(event: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key != "event"}


def _here() -> list[str]:
    """Of the accelerators of this machine that engines can run on; nothing where there is none."""
    from halogend.control.kernel_folders import folders_of_all
    from halogend.control.machine import probe

    return [word for archs in folders_of_all(probe()).values() for word in _targets_here(archs)]


def _targets_here(archs: Sequence[str]) -> list[str]:
    return [*(word for arch in archs for word in ("--target", arch)), "--here"]


def add_warmup(parser: argparse.ArgumentParser) -> None:
    """The option of what serves."""
    text = (
        "first compile all kernels, as `halogend warmup-kernel` does, for every kind of device that the document's"
        " models may come to be on, into the folders where they will look for them"
    )
    parser.add_argument("--warmup-kernel", action="store_true", help=text)


def warm_up_for(document: Document | None, environ: Mapping[str, str]) -> int:
    """For what serves then: the exit status, 0 where all kernels of the document's models are compiled, and where they
    need none. Without a document: those of every accelerator here, into the folder of documents that name none."""
    from halogend.control.kernel_folders import folders_of_all, kernel_folders
    from halogend.control.machine import probe

    machine = replace(probe(), kernel_cache=str(kernel_cache(environ) or ""))
    folders = folders_of_all(machine) if document is None else kernel_folders(document, machine)
    if not folders:
        print("--warmup-kernel: no accelerator is here that a model would be on: nothing to compile", file=sys.stderr)
    return max((_warm_up_folder(folder, archs) for folder, archs in folders.items()), default=0)


def _warm_up_folder(folder: str, archs: Sequence[str]) -> int:
    if not folder:
        print("--warmup-kernel: there is no HOME: set CACHE_DIRECTORY, or kernels.cache_dir", file=sys.stderr)
        return USAGE
    return warm_up(Path(folder), _targets_here(archs))
