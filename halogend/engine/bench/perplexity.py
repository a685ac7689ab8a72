"""`halogend bench perplexity`: what each quantisation of a v2 checkpoint costs in quality, side by side.

Each model is converted to bf16, int8, int4 and fp8, each of these is served as it lies (bf16, and fp8, which no kernel
here multiplies, in the processor's own numbers), and the perplexity of one fixed text is taken: e to the mean of what
the tokens' logarithms of probability fall short of 0. Figures are printed, never judged.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from halogend.checkpoint.errors import TOKENIZER_INVALID, CheckpointError
from halogend.engine.bench.driven import kv_bytes, make_spec
from halogend.engine.bench.prose import TEXT
from halogend.engine.convert import convert
from halogend.engine.interface import Loaded
from halogend.engine.loading import load
from halogend.engine.progress import Progress
from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.step import StepItem, StepPlan
from halogend.wire.specs import EngineLimits

SERVED = {"bf16": "", "int8": "int8", "int4": "int4", "fp8": ""}
"""By policy: the precision that it is served in; empty: the processor's own."""
_ROWS = 32  # positions a step, each with the logits of a whole vocabulary
_MOST_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class Figure:
    """`ratio` is to the first of a model's figures."""

    policy: str
    file_bytes: int
    perplexity: float
    ratio: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="halogend bench perplexity", description=__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="Hugging Face directories or GGUF files")
    parser.add_argument("--dir", help="where the conversions are made; they are removed again (default: as mktemp)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of the engine")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args(arguments)
    results: dict[str, list[Figure]] = {}
    for model in args.models:
        try:
            with tempfile.TemporaryDirectory(dir=args.dir) as folder:
                results[model] = compare(model, encoded(model, TEXT), Path(folder), args.threads)
        except CheckpointError as error:
            sys.stderr.write(f"halogend bench perplexity: {error}\n")
            return 1
        if not args.json:
            sys.stdout.write(_table(model, results[model]) + "\n")
    if args.json:
        sys.stdout.write(json.dumps({model: [asdict(each) for each in rows] for model, rows in results.items()}) + "\n")
    return 0


def compare(model: str, tokens: Sequence[int], folder: Path, threads: int) -> list[Figure]:
    """A figure for each policy, the files in `folder`. Raises CheckpointError."""
    found: list[Figure] = []
    for policy, precision in SERVED.items():
        path = folder / f"{policy}.hgn2"
        size = convert(model, path, quant_policy=policy, validate=False).file_bytes
        value = perplexity(str(path), tokens, precision, threads)
        path.unlink()
        found.append(Figure(policy, size, value, value / found[0].perplexity if found else 1.0))
    return found


def encoded(model: str, text: str) -> list[int]:
    """The text's tokens: a tokenizer runs in a process of its own. Raises CheckpointError where it fails."""
    command = [sys.executable, "-m", "halogend.text.encode", model]
    child = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if child.returncode:
        raise CheckpointError(
            TOKENIZER_INVALID, f"{model}: the tokenizer failed: {child.stderr.strip().splitlines()[-1]}"
        )
    return list(json.loads(child.stdout))[:_MOST_TOKENS]


def perplexity(model: str, tokens: Sequence[int], precision: str, threads: int) -> float:
    """Of `tokens`, the first of them given. Products are in the processor's own numbers, and so are weights without a
    `precision`. Raises CheckpointError."""
    loaded = _loaded(model, len(tokens), precision, threads)
    losses = [_losses(loaded, tokens, start) for start in range(0, len(tokens) - 1, _ROWS)]
    return math.exp(torch.cat(losses).mean().item())


def _losses(loaded: Loaded, tokens: Sequence[int], start: int) -> Tensor:
    """Of the tokens behind positions `start` and on: each position is an item of its own, since only an item's last
    row gives logits. Keys of all are written before any looks back."""
    end = min(start + _ROWS, len(tokens) - 1)
    count = -(-len(tokens) // BLOCK_TOKENS)
    blocks = [list(range(1 + table * count, 1 + (table + 1) * count)) for table in range(loaded.layout.tables)]
    items = tuple(
        StepItem(place, 0, place, (tokens[place],), from_slot=False, blocks=blocks, samples=True)
        for place in range(start, end)
    )
    logits = loaded.runner.forward(StepPlan(start, items), torch.zeros(1, dtype=torch.int64))
    targets = torch.tensor(tokens[start + 1 : end + 1])
    return torch.nn.functional.cross_entropy(logits.double(), targets, reduction="none")


def _loaded(model: str, count: int, precision: str, threads: int) -> Loaded:
    pool = kv_bytes(model, count + 2 * BLOCK_TOKENS)
    limits = EngineLimits(
        max_model_len=count,
        max_batch=_ROWS,
        max_queue=0,
        queue_timeout_s=0,
        request_timeout_s=0,
        prefill_chunk_tokens=0,
        pool_bytes=pool,
    )
    spec = make_spec(model, limits, threads)
    loaded = load(msgspec.structs.replace(spec, precision=precision or spec.precision), Progress())
    loaded.runner.set_threads(threads)
    return loaded


def _table(model: str, rows: Sequence[Figure]) -> str:
    lines = [f"{Path(model).name}", f"{'':6}{'MiB':>10}{'perplexity':>14}{'ratio':>10}"]
    lines.extend(
        f"{row.policy:6}{row.file_bytes / (1 << 20):10.1f}{row.perplexity:14.3f}{row.ratio:10.4f}" for row in rows
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
