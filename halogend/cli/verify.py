"""`halogend verify`: whether a v2 checkpoint's bytes are those that were written."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from halogend.cli import arguments

DAMAGED = 1


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "verify",
        help="whether a v2 checkpoint is whole, byte by byte",
        description="Reads every byte of a v2 checkpoint (of a manifest's parts too) and compares it with the digests"
        " inside. Prints each fault as CODE: message. Exit 0 sound, 1 damaged or no v2 checkpoint.",
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
            faults = verify(file, args.threads, progress.advance)
    except CheckpointError as error:
        return _tell(args, (error,), "")
    entries, data = len(file.entries), sum(header.file_bytes for header in file.headers)
    took = time.monotonic() - began
    return _tell(args, faults, f"{args.path}: sound: {entries} entries, {data} bytes, in {took:.1f} s")


def _tell(args: argparse.Namespace, faults: tuple[Any, ...], sound: str) -> int:
    if args.json:
        found = [{"code": fault.code, "message": fault.message} for fault in faults]
        print(json.dumps({"path": str(args.path), "sound": not faults, "faults": found}))
    else:
        for fault in faults:
            print(f"halogend verify: {fault}", file=sys.stderr)
        if not faults:
            print(sound)
    return DAMAGED if faults else 0
