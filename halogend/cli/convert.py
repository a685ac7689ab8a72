"""`halogend convert`: a checkpoint as a v2 file. What needs torch runs as a process of its own."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from halogend.cli import arguments

POLICIES = ("fp16", "bf16", "fp32", "int8", "int4", "fp8")
_PATIENCE_S = 30.0  # for a conversion to take away what it has half written


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "convert",
        help="write a checkpoint as a v2 file, which is loaded by mapping it",
        description="Reads a Hugging Face directory (AWQ, GPTQ and FP8 too) or a GGUF file and writes a v2 checkpoint"
        " with everything that serving it needs: weights, tokenizer, chat template, sampling defaults. The file has its"
        " name once it is whole. Exit 0 written, 1 refused or failed.",
    )
    parser.add_argument("source", type=arguments.path, metavar="SRC", help="a directory, or a .gguf file")
    parser.add_argument("destination", type=arguments.path, metavar="DST", help="the file to write, as model.hgn2")
    parser.add_argument("--format", choices=("v2",), default="v2", help="what is written (default v2)")
    parser.add_argument(
        "--quant-policy",
        choices=POLICIES,
        help="of the matrices (default: about the bits of a quantised source, else fp16)",
    )
    parser.add_argument("--block-size", type=_count, default=32, help="rows of a tile of int4 (default 32)")
    parser.add_argument(
        "--validate",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compare the result with the source, and read all of it again",
    )
    parser.add_argument(
        "--drop-optimizer-state",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="leave out optimizer state and gradients instead of refusing them",
    )
    parser.add_argument(
        "--threads", type=_count, help="that convert (default: the cores this process may use, up to 8)"
    )
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    chosen = {
        "format": args.format,
        "block_size": args.block_size,
        "validate": args.validate,
        "drop_optimizer_state": args.drop_optimizer_state,
        "threads": args.threads,
    }
    if args.quant_policy is not None:
        chosen["quant_policy"] = args.quant_policy
    command = [sys.executable, "-m", "halogend.engine.convert", "--arguments", json.dumps(chosen)]
    command += ["--parent-pid", str(os.getpid()), "--", str(args.source), str(args.destination)]
    with _ended_orderly(), _started(command) as child:
        try:
            last = {} if child.stdout is None else _follow(child.stdout)
            status = child.wait()
        except BaseException:
            _end(child)
            raise
    return _tell(args, last, status)


def _end(child: subprocess.Popen[str]) -> None:
    child.terminate()
    try:
        child.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:  # it waits for a disk; the next conversion to that name takes away what it leaves
        child.kill()


def _started(command: list[str]) -> subprocess.Popen[str]:
    """It hears nothing of Ctrl-C, which a terminal tells to all who run there: it is told to end by us, once."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextlib.contextmanager
def _ended_orderly() -> Iterator[None]:
    """SIGTERM ends the conversion as Ctrl-C does: what it has half written goes."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _follow(lines: Iterable[str]) -> dict[str, Any]:
    """Shows how far it is; what it said last."""
    from halogend.cli.byte_progress import ByteProgress

    message: dict[str, Any] = {}
    what, told = "", 0
    with contextlib.ExitStack() as shown:
        for line in lines:
            message = json.loads(line)
            if "doing" not in message:
                continue
            if message["doing"] != what:
                shown.close()
                what, told = message["doing"], 0
                progress = shown.enter_context(ByteProgress(what, message["total"]))
            progress.advance(message["done"] - told)
            told = message["done"]
    return message


def _tell(args: argparse.Namespace, last: dict[str, Any], status: int) -> int:
    if failed := last.get("failed"):
        print(f"halogend convert: {failed['code']}: {failed['message']}", file=sys.stderr)
        if args.json:
            print(json.dumps(last))
        return 1
    written = last.get("written")
    if status or written is None:
        print(f"halogend convert: the conversion ended with exit status {status}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(written))
        return 0
    print(f"{written['path']}: {written['quant_policy']}, {written['weights']} weights, {written['bytes']} bytes")
    if written["kept"]:
        print(f"{written['kept']} weights have the four-bit codes of the source")
    if written["dropped"]:
        print(f"dropped {len(written['dropped'])} tensors that no weight is made of: {_some(written['dropped'])}")
    return 0


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown}, ..." if len(names) > 5 else shown


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 4096:
        raise argparse.ArgumentTypeError("a whole number from 1 to 4096 is wanted")
    return int(text)
