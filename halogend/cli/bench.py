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
    dequant = kinds.add_parser(
        "dequant",
        help="decoding speed of every GGUF type beside the gguf package's",
        description="Prints elements a second, decoded by us and by the gguf package with one thread, in one run.",
    )
    dequant.add_argument("--elements", type=int, help="decoded in one run (default 4194304)")
    dequant.add_argument("--runs", type=int, help="of each side, in turn; the best is shown (default 5)")
    dequant.add_argument("--json", action="store_true", help="print the figures as JSON")
    dequant.set_defaults(run=run_dequant)


def run_engine(args: argparse.Namespace) -> int:
    return _run("halogend.engine.bench", args, ("threads", "runs", "precision"), *args.models)


def run_dequant(args: argparse.Namespace) -> int:
    return _run("halogend.engine.bench.dequant", args, ("elements", "runs"))


def _run(module: str, args: argparse.Namespace, options: tuple[str, ...], *operands: str) -> int:
    """Runs `module` as a program with those of `options` that were given; its exit status."""
    command = [sys.executable, "-m", module, *operands]
    for name in options:
        if (value := getattr(args, name)) is not None:
            command += [f"--{name}", str(value)]
    if args.json:
        command.append("--json")
    return subprocess.run(command, check=False).returncode
