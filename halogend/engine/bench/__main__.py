"""python -m halogend.engine.bench MODEL... : the table; with --side, one side's figures as JSON."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from halogend.checkpoint.errors import CheckpointError
from halogend.engine.bench.measure import BATCHES, PREFILL_TOKENS, measure
from halogend.obs.processor import numbers
from halogend.wire.environment import WORKER_ENVIRONMENT

OURS = "halogend"
SIDES = (OURS, "llama.cpp")
_CHILD_LIMIT_S = 600.0
_ISA_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    if args.side:
        return _run_side(args)
    results = {}
    for model in args.models:
        if not Path(model).is_file():
            _say(f"halogend bench engine: {model}: no such file", sys.stderr)
            return 1
        results[model] = _compare(model, args)
        if not args.json:
            _say(_table(model, results[model], args))
    if args.json:
        _say(json.dumps({"machine": _machine(args), "models": results}))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="halogend bench engine", description=__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of either side")
    parser.add_argument("--runs", type=int, default=3, help="of each side, in turn; the median is shown")
    parser.add_argument(
        "--precision",
        choices=("bf16", "fp32"),
        default=numbers(),
        help="of our weights (default: as a daemon would)",
    )
    parser.add_argument("--json", action="store_true", help="print figures of every run as JSON")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    return parser


def _run_side(args: argparse.Namespace) -> int:
    """In the child: measures one side once."""
    model = args.models[0]
    if args.side == "halogend":
        from halogend.engine.bench.ours import engine  # noqa: PLC0415 (torch belongs in our side's child only)

        try:
            generate = engine(model, args.threads, args.precision)
        except CheckpointError as error:
            _say(str(error), sys.stderr)
            return 1
    else:
        from halogend.engine.bench.peer import llama_cpp  # noqa: PLC0415 (as above)

        generate = llama_cpp(model, args.threads)
    _say(json.dumps(measure(generate)))
    sys.stdout.flush()
    os._exit(0)  # llama.cpp's threads are still up, and there is nothing to save


def _compare(model: str, args: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Figures of every run by side; a side that cannot run has none."""
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(args.runs):
        for side in SIDES:
            if (figures := _measure_side(model, side, args)) is not None:
                runs[side].append(figures)
    return runs


def _measure_side(model: str, side: str, args: argparse.Namespace) -> dict[str, float] | None:
    command = [sys.executable, "-m", "halogend.engine.bench", model, "--side", side]
    command += ["--threads", str(args.threads), "--precision", args.precision]
    environ = dict(os.environ)
    if side == OURS:  # as the daemon starts an engine
        environ |= WORKER_ENVIRONMENT
    child = subprocess.run(command, capture_output=True, text=True, timeout=_CHILD_LIMIT_S, check=False, env=environ)
    if child.returncode:
        last = child.stderr.strip().splitlines()[-1:] or [f"exit status {child.returncode}"]
        _say(f"{side}: {last[0]}", sys.stderr)
        return None
    # llama.cpp may write to standard output too: ours is the last line.
    figures: dict[str, float] = json.loads(child.stdout.strip().splitlines()[-1])
    return figures


def _table(model: str, runs: dict[str, list[dict[str, float]]], args: argparse.Namespace) -> str:
    names = ["prefill", *(f"decode {batch}" for batch in BATCHES)]
    titles = [f"prefill {PREFILL_TOKENS}", *names[1:]]
    lines = [f"{Path(model).name}: tokens/s, median of {args.runs} alternating runs; {_machine(args)}"]
    lines.append(f"{'':12}" + "".join(f"{title:>13}" for title in titles))
    medians: dict[str, list[float]] = {}
    for side in SIDES:
        if runs[side]:
            medians[side] = [statistics.median(run[name] for run in runs[side]) for name in names]
            lines.append(f"{side:12}" + "".join(f"{value:13.1f}" for value in medians[side]))
    if len(medians) == len(SIDES):
        ratios = [ours / theirs for ours, theirs in zip(*medians.values(), strict=True)]
        lines.append(f"{'ratio':12}" + "".join(f"{ratio:13.2f}" for ratio in ratios))
    return "\n".join(lines)


def _machine(args: argparse.Namespace) -> str:
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        flags = set()
    isa = [flag for flag in _ISA_FLAGS if flag in flags]
    return f"{args.threads} threads, {os.cpu_count()} cores, {' '.join(isa) or 'unknown instruction set'}"


def _say(text: str, stream: TextIO | None = None) -> None:
    (stream or sys.stdout).write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
