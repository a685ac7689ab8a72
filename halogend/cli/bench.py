"""`halogend bench`: side-by-side benchmarks. What needs torch runs as a process of its own."""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import Any


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("bench", help="benchmarks beside the peers")
    kinds = parser.add_subparsers(required=True, metavar="WHAT")
    engine = kinds.add_parser(
        "engine",
        help="prefill and decode speed beside llama.cpp's",
        description="Prints tokens a second of our engine and of llama.cpp (package xllamacpp), in one run.",
    )
    engine.add_argument("models", nargs="+", metavar="MODEL.gguf")
    engine.add_argument("--threads", type=int, help="of either side (default: the cores this process may use)")
    engine.add_argument("--runs", type=int, help="of each side, in turn; the median is shown (default 3)")
    engine.add_argument("--precision", choices=("bf16", "fp32"), help="of our weights (default bf16)")
    engine.add_argument("--json", action="store_true", help="print figures of every run as JSON")
    engine.set_defaults(run=run_engine)


def run_engine(args: argparse.Namespace) -> int:
    command = [sys.executable, "-m", "halogend.engine.bench", *args.models]
    for name in ("threads", "runs", "precision"):
        if (value := getattr(args, name)) is not None:
            command += [f"--{name}", str(value)]
    if args.json:
        command.append("--json")
    return subprocess.run(command, check=False).returncode
