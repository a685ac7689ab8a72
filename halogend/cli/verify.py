"""`halogend verify`: whether a v2 checkpoint's bytes are those that were written, and its text can be used."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halogend.cli import arguments

DAMAGED = 1
_TEXT_LIMIT_S = 600.0  # a large vocabulary takes some seconds


@dataclass(frozen=True, slots=True)
class _Fault:
    """What is wrong; `code` is a checkpoint's, or that of a start that fails."""

    code: str
    message: str


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "verify",
        help="whether a v2 checkpoint is whole, byte by byte",
        description="Reads every byte of a v2 checkpoint (of a manifest's parts too) and compares it with the digests"
        " inside, then builds its tokenizer and tries its chat template, as a start does. Prints each fault as"
        " CODE: message. Exit 0 sound, 1 damaged, not to be served, or no v2 checkpoint.",
    )
    parser.add_argument("path", type=arguments.path, metavar="PATH", help="a v2 checkpoint, or its manifest")
    parser.add_argument(
        "--threads", type=arguments.count, help="that read and hash (default: the cores this process may use)"
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from halogend.checkpoint.errors import CheckpointError
    from halogend.checkpoint.formats import resolve_format
    from halogend.checkpoint.v2.reader import open_v2
    from halogend.checkpoint.v2.verify import verify, verify_bytes
    from halogend.cli.byte_progress import ByteProgress

    began = time.monotonic()
    try:
        resolve_format(args.path, "v2")
        file = open_v2(args.path)
        with ByteProgress("verifying", verify_bytes(file)) as progress:
            found = verify(file, args.threads, progress.advance)
    except CheckpointError as error:
        return _tell(args, [_Fault(error.code, error.message)], "", "")
    faults = [_Fault(error.code, error.message) for error in found]
    text = {} if faults else _try_text(args.path)
    if failed := text.get("failed"):
        faults.append(_Fault(failed["code"], failed["message"]))
    entries, data = len(file.entries), sum(header.file_bytes for header in file.headers)
    took = time.monotonic() - began
    sound = f"{args.path}: sound: {entries} entries, {data} bytes, in {took:.1f} s"
    return _tell(args, faults, text.get("untried", ""), sound)


def _try_text(path: Path) -> dict[str, Any]:
    """What `halogend.text.check` says. What reads tokenizers, and runs other people's templates, is a process of its
    own."""
    from halogend.checkpoint.errors import TOKENIZER_INVALID

    command = [sys.executable, "-m", "halogend.text.check", "--parent-pid", str(os.getpid()), "--", str(path)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False, timeout=_TEXT_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        how = f"was not built within {_TEXT_LIMIT_S:g} s"
    else:
        if done.returncode == 0:
            return dict(json.loads(done.stdout))
        how = f"cannot be built: what builds it ended with exit status {done.returncode}"
    return {"failed": {"code": TOKENIZER_INVALID, "message": f"{path}: its tokenizer {how}"}}


def _tell(args: argparse.Namespace, faults: Sequence[_Fault], untried: str, sound: str) -> int:
    if args.json:
        found = [{"code": fault.code, "message": fault.message} for fault in faults]
        body = {"path": str(args.path), "sound": not faults, "faults": found, "text_untried": untried or None}
        print(json.dumps(body))
        return DAMAGED if faults else 0
    for fault in faults:
        print(f"halogend verify: {fault.code}: {fault.message}", file=sys.stderr)
    if untried:
        print(f"halogend verify: {args.path}: its tokenizer was not tried: {untried}", file=sys.stderr)
    if not faults:
        print(sound)
    return DAMAGED if faults else 0
