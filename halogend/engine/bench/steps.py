"""`halogend bench steps`: what a step of the real engine takes, as constants of a linear model.

    seconds = base + row * decode rows + context * positions they see + token * prompt tokens + seen * positions
              those see

Steps of chosen shapes run on the loaded model, each a few times, in turn; the median of each is fitted, with every
constant at least 0, by least squares on the relative error. With --json the simulator reads what is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from halogend.checkpoint.errors import CheckpointError
from halogend.engine.bench.driven import make_spec
from halogend.engine.bench.judged import patient_limits
from halogend.engine.progress import Progress
from halogend.sched.blocks import BLOCK_TOKENS, blocks_for
from halogend.sched.step import StepItem, StepPlan
from halogend.wire.environment import WORKER_ENVIRONMENT
from halogend.wire.policy import EnginePolicy

if TYPE_CHECKING:
    from halogend.engine.interface import Loaded

NAMES = ("base_s", "decode_row_s", "decode_context_s", "prompt_token_s", "prompt_context_s")
_LONGEST_TOKENS = 2048
_MAX_BATCH = 64
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Shape:
    """`rows` requests at `context` positions move by one; beside them `tokens` of a prompt at `depth`."""

    rows: int
    context: int = 0
    tokens: int = 0
    depth: int = 0

    @property
    def work(self) -> tuple[int, int, int, int, int]:
        """What the constants are multiplied with."""
        seen = self.tokens * self.depth + self.tokens * (self.tokens + 1) // 2
        return (1, self.rows, self.rows * (self.context + 1), self.tokens, seen)


SHAPES = (
    *(Shape(rows, context) for rows in (1, 4, 16, 32, 64) for context in (32, 256, 1024)),
    *(Shape(0, 0, tokens, depth) for tokens in (16, 64, 128, 256) for depth in (0, 768)),
    *(Shape(rows, 128, tokens) for rows in (16, 64) for tokens in (32, 128)),
)


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    if args.child:
        return _measure(args)
    command = [sys.executable, "-m", "halogend.engine.bench.steps", args.model, "--child"]
    options = ["--threads", str(args.threads), "--rounds", str(args.rounds), *(["--json"] if args.json else [])]
    # As the daemon starts an engine.
    return subprocess.run([*command, *options], check=False, env={**os.environ, **WORKER_ENVIRONMENT}).returncode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="halogend bench steps", description=__doc__)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help="of all shapes; the median is fitted (default 5)")
    parser.add_argument("--json", action="store_true", help="print the constants and every step as JSON")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser


def _measure(args: argparse.Namespace) -> int:
    from halogend.engine.loading import load  # noqa: PLC0415 (torch belongs in the child)

    pool_tokens = (_MAX_BATCH + 2) * _LONGEST_TOKENS
    limits = patient_limits(args.model, _LONGEST_TOKENS, pool_tokens, (_MAX_BATCH, 0), EnginePolicy())
    try:
        loaded = load(make_spec(args.model, limits, args.threads), Progress())
    except CheckpointError as error:
        sys.stderr.write(f"halogend bench steps: {error}\n")
        return 1
    loaded.runner.set_threads(args.threads)
    measured = times(loaded, args.rounds)
    constants = fit([(shape.work, seconds) for shape, seconds in measured.items()])
    found = dict(zip(NAMES, constants, strict=True))
    sys.stdout.write((_json(args, found, measured) if args.json else _table(found, measured)) + "\n")
    return 0


def times(loaded: Loaded, rounds: int, shapes: Sequence[Shape] = SHAPES) -> dict[Shape, float]:
    """Median seconds of a step of each shape. What the blocks hold does not matter."""
    import torch  # noqa: PLC0415 (as above)

    slots = torch.zeros(_MAX_BATCH + 1, dtype=torch.int64)
    plans = {shape: _plan(number, shape, loaded.layout.tables) for number, shape in enumerate(shapes)}
    found: dict[Shape, list[float]] = {shape: [] for shape in shapes}
    for turn in range(rounds + 1):
        for shape, plan in plans.items():
            started = time.perf_counter()
            loaded.runner.forward(plan, slots)
            if turn:  # the first of each touches memory and builds kernels
                found[shape].append(time.perf_counter() - started)
    return {shape: statistics.median(seconds) for shape, seconds in found.items()}


def _plan(number: int, shape: Shape, tables: int) -> StepPlan:
    def blocks(place: int, tokens: int) -> list[list[int]]:
        first = 1 + place * tables * (_LONGEST_TOKENS // BLOCK_TOKENS)
        count = blocks_for(tokens)
        return [list(range(first + table * count, first + (table + 1) * count)) for table in range(tables)]

    items = [
        StepItem(row, row, shape.context, (1,), False, blocks(row, shape.context + 1), True)
        for row in range(shape.rows)
    ]
    if shape.tokens:
        held = blocks(_MAX_BATCH, shape.depth + shape.tokens)
        items.append(StepItem(_MAX_BATCH, _MAX_BATCH, shape.depth, (1,) * shape.tokens, False, held, True))
    return StepPlan(number, tuple(items))


def fit(steps: Sequence[tuple[Sequence[float], float]]) -> list[float]:
    """Constants of at least 0 that make the relative errors' squares least; from (work, seconds). What would be
    below 0 is left out, worst first."""
    import numpy as np  # noqa: PLC0415 (as above)

    work = np.array([[value / seconds for value in values] for values, seconds in steps])
    open_columns = list(range(work.shape[1]))
    while True:
        found = np.linalg.lstsq(work[:, open_columns], np.ones(len(work)), rcond=None)[0]
        if found.min() >= 0:
            break
        del open_columns[int(found.argmin())]
    constants = [0.0] * work.shape[1]
    for column, value in zip(open_columns, found.tolist(), strict=True):
        constants[column] = value
    return constants


def _json(args: argparse.Namespace, found: dict[str, float], measured: dict[Shape, float]) -> str:
    steps = [{"work": shape.work, "seconds": seconds} for shape, seconds in measured.items()]
    report: dict[str, Any] = {"model": args.model, "threads": args.threads, "times": found, "steps": steps}
    return json.dumps(report)


def _table(found: dict[str, float], measured: dict[Shape, float]) -> str:
    lines = [f"{name:20} {value * 1e6:12.2f} us" for name, value in found.items()]
    lines.append(f"{'rows':>6}{'context':>9}{'tokens':>8}{'depth':>7}{'ms':>9}{'fitted':>9}")
    for shape, seconds in measured.items():
        fitted = sum(value * each for value, each in zip(found.values(), shape.work, strict=True))
        lines.append(
            f"{shape.rows:6}{shape.context:9}{shape.tokens:8}{shape.depth:7}{seconds * 1e3:9.1f}{fitted * 1e3:9.1f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
