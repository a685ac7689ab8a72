"""Compiles kernels before they are needed, for this machine's device or for another, on all cores.

    python -m halogen_kernels.triton.ahead --cache-dir DIR [--target NAME ...] [--shapes all|few|JSON] [--op NAME ...]

Prints a line of JSON for each thing that happened, as it happens:

    {"event": "found", "target": "sm_90", "wanted": 120, "there": 20}
    {"event": "compiled", "target": "sm_90", "op": "prefill", "variant": "...", "registers": 128, ..., "faults": []}
    {"event": "failed", "target": "sm_90", "op": "prefill", "variant": "...", "error": "..."}
    {"event": "done", "target": "sm_90", "wanted": 120, "compiled": 100, "failed": 0, "faults": 0}

Exit 0 when all are there, 1 when some are not, 2 for a bad command line, 3 without --target on a machine without
a device. Needs none, and must not run in a process that interprets kernels. What it finds complete it does not touch:
the folder may be a read-only mount.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import triton

from halogen_kernels.triton import cache, index, shapes, targets
from halogen_kernels.triton.index import Entry
from halogen_kernels.triton.rehearsal import Launch, launches, operators, pretending
from halogen_kernels.triton.resources import resources_of
from halogen_kernels.triton.shapes import Shapes
from halogen_kernels.triton.targets import Target
from halogen_kernels.triton.workers import Failure, in_processes

USAGE = 2
NO_DEVICE = 3


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse(argv)
    if triton.knobs.runtime.interpret:
        print("kernels are interpreted here: unset TRITON_INTERPRET to compile them", file=sys.stderr)
        return USAGE
    try:
        wanted = [targets.named(name) for name in arguments.target] or [_present(arguments.cache_dir)]
    except ValueError as error:
        print(error, file=sys.stderr)
        return USAGE
    except RuntimeError as error:
        known = ", ".join(target.name for target in targets.TARGETS)
        print(f"no device is here whose kernels are compiled: name a target, of {known} ({error})", file=sys.stderr)
        return NO_DEVICE
    if arguments.here and arguments.target:
        with contextlib.suppress(RuntimeError):  # a device that does not answer needs no less to be compiled
            _present(arguments.cache_dir)
    unknown = sorted(set(arguments.op) - set(operators()))
    if unknown:
        print(f"no operator {', '.join(unknown)}; there are {', '.join(operators())}", file=sys.stderr)
        return USAGE
    asked = {target: launches(target, arguments.shapes, arguments.op) for target in wanted}
    if arguments.each is not None:
        asked = {target: some(own, arguments.each, number) for number, (target, own) in enumerate(asked.items())}
    try:
        return 1 if fill(arguments.cache_dir, asked, arguments.jobs) else 0
    except OSError as error:
        print(f"{arguments.cache_dir}: {error.strerror or error}", file=sys.stderr)
        return 1


def _present(directory: Path) -> Target:
    """That of this machine's device: Triton looks for one, and keeps in the folder what it builds to speak to it.
    Raises RuntimeError where there is none."""
    cache.use(directory, may_compile=os.access(directory, os.W_OK))
    return targets.current()


def some(wanted: Sequence[Launch], each: int, turn: int) -> list[Launch]:
    """At most so many of each kernel's variants; others with each turn, so that targets see different ones."""
    by_kernel: dict[tuple[str, str], list[Launch]] = {}
    for launch in wanted:
        by_kernel.setdefault((launch.variant.op, launch.variant.kernel), []).append(launch)
    return [launch for own in by_kernel.values() for launch in _spread(own, each, turn)]


def _spread(own: Sequence[Launch], count: int, turn: int) -> list[Launch]:
    return [own[number] for number in sorted({(turn + step * len(own) // count) % len(own) for step in range(count)})]


def fill(directory: Path, asked: Mapping[Target, Sequence[Launch]], jobs: int) -> int:
    """Compiles what `directory` lacks of what is asked for, tells on stdout, and says how many could not be. Raises
    OSError where something is missing and nothing can be put there."""
    missing: list[tuple[Target, Launch]] = []
    have: dict[Target, list[Entry]] = {}
    tally: dict[Target, dict[str, int]] = {}
    for target, own in asked.items():
        there, lacking = look(directory, target, own)
        have[target] = there
        missing += [(target, launch) for launch in lacking]
        tally[target] = {"wanted": len(there) + len(lacking), "compiled": 0, "failed": 0}
        _tell("found", target, wanted=len(there) + len(lacking), there=len(there))
    if missing:
        cache.enter(directory)
    cache.use(directory, may_compile=True)
    for number, outcome in in_processes(make, missing, jobs):
        target, launch = missing[number]
        op, variant = launch.variant.op, launch.variant.name
        if isinstance(outcome, Failure):
            tally[target]["failed"] += 1
            _tell("failed", target, op=op, variant=variant, error=outcome.text)
            continue
        tally[target]["compiled"] += 1
        have[target].append(outcome)
        faults = outcome.resources.faults(target)
        _tell("compiled", target, op=op, variant=variant, **asdict(outcome.resources), faults=faults)
    for target, entries in have.items():
        _keep(directory, target, entries)
        faulty = sum(1 for entry in entries if entry.resources.faults(target))
        _tell("done", target, **tally[target], faults=faulty)
    return sum(each["failed"] for each in tally.values())


def look(directory: Path, target: Target, wanted: Iterable[Launch]) -> tuple[list[Entry], list[Launch]]:
    """What the cache has of `wanted`, and what it lacks. Writes nothing, compiles nothing."""
    there: list[Entry] = []
    lacking: list[Launch] = []
    known = index.read(directory, target)
    cache.use(directory, may_compile=False)
    with pretending(target):
        for launch in wanted:
            try:
                compiled = launch.compile()
            except cache.MissingError:
                lacking.append(launch)
            else:
                there.append(known.get(compiled.hash) or _entry(launch, target, compiled))
    return there, lacking


def make(wanted: tuple[Target, Launch]) -> Entry:
    """Compiles one, into the folder that the process uses."""
    target, launch = wanted
    with pretending(target):
        return _entry(launch, target, launch.compile())


def _entry(launch: Launch, target: Target, compiled: Any) -> Entry:
    variant = launch.variant
    return Entry(variant.op, variant.name, compiled.hash, launch.kernel.cache_key, resources_of(compiled, target))


def _keep(directory: Path, target: Target, entries: Iterable[Entry]) -> None:
    """Together with what the index has of others, as of another model's shapes. An index that cannot be written, as
    on a read-only mount, is told of and is no failure: no launch asks it."""
    known = index.read(directory, target)
    merged = known | {entry.key: entry for entry in entries}
    if merged == known:
        return
    try:
        index.write(directory, target, list(merged.values()))
    except OSError as error:
        print(f"{index.path_of(directory, target)} is not written: {error.strerror or error}", file=sys.stderr)


def _tell(event: str, target: Target, **what: Any) -> None:
    print(json.dumps({"event": event, "target": target.name, **what}), flush=True)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m halogen_kernels.triton.ahead", description=_first_line())
    parser.add_argument("--cache-dir", type=Path, required=True, metavar="DIR")
    parser.add_argument("--target", action="append", default=[], metavar="NAME", help="an architecture or a product")
    text = "the targets are of this machine's devices: what Triton builds to speak to the first of them is kept too"
    parser.add_argument("--here", action="store_true", help=text)
    parser.add_argument("--shapes", type=_shapes, default=shapes.ALL, help="all, few, or a list of shapes as JSON")
    parser.add_argument("--op", action="append", default=[], metavar="NAME", help="this operator alone")
    parser.add_argument("--each", type=int, metavar="N", help="so many variants of each kernel, by turns")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args(argv)


def _shapes(text: str) -> Shapes:
    try:
        return shapes.from_text(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _first_line() -> str:
    return (__doc__ or "").partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
