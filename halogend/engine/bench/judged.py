"""What benches of one engine process have in common whose report says whether it keeps what is asked of it: what they
are told, an engine that turns nobody away for being late, and how they end."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from halogend.checkpoint.errors import CheckpointError
from halogend.engine.bench.driven import EngineLostError, kv_bytes
from halogend.wire.policy import EnginePolicy
from halogend.wire.specs import EngineLimits

Report = dict[str, Any]
"""Figures by name; `met` says whether all that is asked was kept."""


def parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Of `halogend bench NAME MODEL`."""
    made = argparse.ArgumentParser(prog=f"halogend bench {name}", description=description)
    made.add_argument("model", metavar="MODEL")
    made.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of the engine")
    made.add_argument("--json", action="store_true", help="print the figures as JSON")
    return made


def patient_limits(
    model: str, longest: int, pool_tokens: int, batch: tuple[int, int], policy: EnginePolicy
) -> EngineLimits:
    """Without time limits, for requests of up to `longest` tokens; `batch`: how many run, how many wait. Raises
    CheckpointError."""
    max_batch, max_queue = batch
    return EngineLimits(
        max_model_len=longest,
        max_batch=max_batch,
        max_queue=max_queue,
        queue_timeout_s=0,
        request_timeout_s=0,
        prefill_chunk_tokens=0,
        pool_bytes=kv_bytes(model, pool_tokens),
        policy=policy,
    )


def judge(
    name: str,
    args: argparse.Namespace,
    run: Callable[[argparse.Namespace], Report],
    table: Callable[[Report], str],
) -> int:
    """Runs and prints; the exit status, which is 1 for what is not met, too."""
    try:
        report = run(args)
    except (CheckpointError, EngineLostError, OSError) as error:
        sys.stderr.write(f"halogend bench {name}: {error}\n")
        return 1
    sys.stdout.write((json.dumps(report) if args.json else table(report)) + "\n")
    return 0 if report["met"] else 1
