"""`halogend bench load`: how long a model takes to load, and in how much memory, beside the least it could.

The floor is a sequential read of the same files plus one conversion of every matrix to what is held
(`load_floor.floor` says exactly what), with the same number of threads, in the same run. Each side runs
in a process of its own, in turn, over files that are in the page cache (warm) or were dropped from it
(cold; a virtual machine's host may hold them all the same). Figures are printed, never judged.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from halogend.checkpoint.checkpoint import Checkpoint, open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.engine.bench.children import ChildFailedError, run_child
from halogend.engine.bench.page_cache import cached_share, drop, read_through
from halogend.engine.bench.report import Progress, columns, say, size
from halogend.engine.bench.synthetic import FORMATS, NoSpaceError, make
from halogend.obs.processor import numbers

PRECISIONS = ("bf16", "fp32", "int8", "int4")
CACHES = ("warm", "cold")
SIDES = ("ours", "floor")
_MODULE = "halogend.engine.bench.load"
_FOLDER = Path(".cache/bench")
_SECONDS = ("load_s", "load_cpu_s", "floor_s", "floor_cpu_s", "imports_s", "warmup_s")
_TIMES = {
    "load_s": "load s",
    "floor_s": "floor s",
    "ratio": "ratio",
    "load_cpu_s": "load cpu s",
    "floor_cpu_s": "floor cpu s",
    "cpu_ratio": "cpu ratio",
}
_TITLES = ("cache", "read", "held", *_TIMES.values(), "peak - held", "file pages")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    args = parser.parse_args(arguments)
    if (args.path is None) == (args.synthetic is None):
        parser.error("give either a model's PATH or --synthetic SIZE")
    if args.side:
        return _run_side(args)
    try:
        path = args.path or _made(args)
        report = _measure(open_checkpoint(path), args)
    except (CheckpointError, ChildFailedError, NoSpaceError, OSError) as error:
        say(f"halogend bench load: {error}", to_stderr=True)
        return 1
    say(json.dumps(report) if args.json else _table(report))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="halogend bench load", description=__doc__)
    parser.add_argument("path", nargs="?", type=Path, metavar="PATH")
    parser.add_argument("--synthetic", type=size, metavar="SIZE", help="a model of random weights, as 4GiB or 300MiB")
    parser.add_argument("--format", choices=FORMATS, default="bf16", help="of the synthetic model (default bf16)")
    parser.add_argument("--dir", type=Path, default=_FOLDER, help="where it is made and kept (default .cache/bench)")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default=numbers(), help="what is held (default: as a daemon would)"
    )
    parser.add_argument("--threads", type=int, default=0, help="that load (default: as an engine chooses)")
    parser.add_argument("--cache", choices=(*CACHES, "both"), default="both", help="state of the page cache")
    parser.add_argument("--runs", type=int, default=3, help="of each side, in turn; the median is shown")
    parser.add_argument("--json", action="store_true", help="print the figures of every run as JSON")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    return parser


def _run_side(args: argparse.Namespace) -> int:
    """In the child: one side once, as JSON."""
    started = time.perf_counter()
    from halogend.engine.bench import load_floor, load_ours  # noqa: PLC0415 (torch is the children's; it is timed)

    imports_s = time.perf_counter() - started
    path = str(args.path)
    try:
        if args.side == "ours":
            figures = asdict(load_ours.ours(path, args.precision, args.threads)) | {"imports_s": imports_s}
        else:
            figures = asdict(load_floor.floor(path, args.precision, args.threads))
    except CheckpointError as error:
        say(error.message, to_stderr=True)
        return 1
    say(json.dumps(figures))
    return 0


def _made(args: argparse.Namespace) -> Path:
    """The synthetic model, made now or before."""
    progress = Progress(f"making {args.format} weights")
    path = make(args.format, args.synthetic, args.dir, progress.report)
    progress.end()
    return path


def _measure(checkpoint: Checkpoint, args: argparse.Namespace) -> dict[str, Any]:
    caches = CACHES if args.cache == "both" else (args.cache,)
    report: dict[str, Any] = {
        "model": str(checkpoint.path),
        "stored": checkpoint.quantisation,
        "precision": args.precision,
        "cores": len(os.sched_getaffinity(0)),
        "runs": [],
    }
    for number in range(args.runs):
        sides = SIDES if number % 2 == 0 else SIDES[::-1]  # the first one's memory may serve the second's
        report["runs"] += [_run(checkpoint, cache, sides, args) for cache in caches]
    report["medians"] = {cache: _medians([run for run in report["runs"] if run["cache"] == cache]) for cache in caches}
    return report


def _run(checkpoint: Checkpoint, cache: str, sides: Sequence[str], args: argparse.Namespace) -> dict[str, Any]:
    """Both sides once; `cached_share` is what each found in the page cache."""
    run: dict[str, Any] = {"cache": cache, "load_average": os.getloadavg()[0]}
    for side in sides:
        for file in checkpoint.files:
            read_through(file) if cache == "warm" else drop(file)
        share = cached_share(checkpoint.files)
        options = ["--side", side, "--precision", args.precision, "--threads", str(args.threads)]
        run[side] = run_child(_MODULE, [str(checkpoint.path), *options]) | {"cached_share": share}
    return run


def _medians(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Of seconds the median, of peaks the highest. `ratio` is that of the medians."""
    flat = [run["ours"] | _floor(**run["floor"]) for run in runs]
    found = {name: statistics.median(row[name] for row in flat) for name in _SECONDS}
    return found | {
        "ratio": found["load_s"] / found["floor_s"],
        "cpu_ratio": found["load_cpu_s"] / found["floor_cpu_s"],
        "read_bytes": flat[0]["read_bytes"],
        "held_bytes": flat[0]["held_bytes"],
        "peak_over_held_bytes": max(row["peak_bytes"] for row in flat) - flat[0]["held_bytes"],
        "peak_file_bytes": max(row["peak_file_bytes"] for row in flat),
        "load_average": statistics.median(run["load_average"] for run in runs),
    }


def _floor(read_s: float, convert_s: float, cpu_s: float, **_: float) -> dict[str, float]:
    return {"floor_s": read_s + convert_s, "floor_cpu_s": cpu_s}


def _table(report: dict[str, Any]) -> str:
    runs, threads = report["runs"], report["runs"][0]["ours"]["threads"]
    found = [f"{run[side]['cached_share']:.0%}" for run in runs if run["cache"] == "cold" for side in SIDES]
    held_as = f"{report['stored']} held as {report['precision']}"
    how = f"medians of {len(runs) // len(report['medians'])} runs, {threads} loading threads, {report['cores']} cores"
    lines = [f"{report['model']}: {held_as}; {how}", columns(_TITLES)]
    for cache, row in report["medians"].items():
        sizes = [f"{row[name] / (1 << 20):.0f} MiB" for name in ("read_bytes", "held_bytes")]
        times = [f"{row[name]:.2f}" for name in _TIMES]
        peaks = [f"{row[name] / (1 << 20):.0f} MiB" for name in ("peak_over_held_bytes", "peak_file_bytes")]
        lines.append(columns((cache, *sizes, *times, *peaks)))
    for cache, row in report["medians"].items():
        beside = f"imports {row['imports_s']:.1f} s, warm-up {row['warmup_s']:.1f} s"
        lines.append(f"{cache}: beside that {beside}; load average {row['load_average']:.1f}")
    if found:
        lines.append(f"left in the page cache when cold: {', '.join(found)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
