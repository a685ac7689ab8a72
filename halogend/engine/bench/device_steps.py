"""What decode steps and prompts take on a device, with graphs and without, on a model of random weights.

    python -m halogend.engine.bench.device_steps --folder FOLDER [--device cuda:0] [--bytes N] [--kind bf16]

The model is made in FOLDER. A step computes all rows and chooses their tokens; the next one is launched before these
are read, as by an engine that plans a step ahead. Both ways start from the same tokens, and `alike` is the share of
steps' tokens that they chose alike: sums in another order may settle a near-tie otherwise. Of the first step's nine in
ten must be, and the logits of a short prompt as near to those of the CPU's operators as bfloat16 explains; or it fails.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from halogen_kernels.sampling import NO_TOKEN

from halogend.engine.bench.driven import GREEDY, kv_bytes, make_spec
from halogend.engine.bench.synthetic import FORMATS, V2_FORMATS, make
from halogend.engine.interface import Want
from halogend.engine.progress import Progress
from halogend.sched.blocks import BLOCK_TOKENS, blocks_for
from halogend.sched.step import StepItem, StepPlan
from halogend.wire.specs import EngineLimits, EngineSpec

if TYPE_CHECKING:
    import torch

    from halogend.engine.interface import Loaded, Runner

_FIRST_TOKEN = 1
_CHECKED_TOKENS = 48
_LEAST_ALIKE = 0.9  # of the rows' first tokens: what near-ties of random weights leave
_MOST_ERROR = 0.05  # of logits, beside the largest: what two orders of sums in bfloat16 leave of each other
_WIDTHS = (6, 9, 11, 10, 7, 10, 8, 8)


@dataclass(frozen=True, slots=True)
class Work:
    """Requests side by side and the positions of each; tokens of prompts. What is longer is computed `chunk` tokens
    at a time. Of `rounds` the median counts; one of decoding is some `steps`."""

    decodes: tuple[tuple[int, int], ...] = ((1, 512), (8, 512), (32, 512), (32, 3072))
    prompts: tuple[int, ...] = (512, 2048)
    chunk: int = 2048
    rounds: int = 5
    steps: int = 16

    @property
    def most_rows(self) -> int:
        return max(rows for rows, _ in self.decodes)

    @property
    def longest(self) -> int:
        """Positions of one request, in whole blocks."""
        most = max(*(context + self.steps for _, context in self.decodes), *self.prompts)
        return blocks_for(most) * BLOCK_TOKENS


SMALL = Work(decodes=((2, 20),), prompts=(20,), chunk=16, rounds=1, steps=2)


@dataclass(frozen=True, slots=True)
class Decode:
    """Seconds a step."""

    rows: int
    context: int
    graphs_s: float
    plain_s: float
    alike: float


@dataclass(frozen=True, slots=True)
class Prompt:
    tokens: int
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--device", default="cuda:0", help="cuda:N, rocm:N, or cpu:0 for Triton's interpreter")
    parser.add_argument("--bytes", type=int, default=2_600_000_000, help="of the model (default 2.6 GB)")
    parser.add_argument("--kind", choices=(*FORMATS, *V2_FORMATS), default="bf16")
    parser.add_argument("--small", action="store_true", help="little work, for the interpreter")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args(arguments)
    work = SMALL if args.small else Work()
    model = make(args.kind, args.bytes, args.folder, lambda _done, _of: None)
    try:
        measured = measure(device_spec(str(model), args.device, args.kind, work), work)
    except ArithmeticError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write("\n".join(measured["table"]) + "\n")
    if args.json is not None:
        args.json.write_text(json.dumps(measured) + "\n")
    return 0


def device_spec(model: str, device: str, kind: str, work: Work) -> EngineSpec:
    limits = EngineLimits(
        max_model_len=work.longest,
        max_batch=work.most_rows,
        max_queue=0,
        queue_timeout_s=0,
        request_timeout_s=0,
        prefill_chunk_tokens=work.chunk,
        pool_bytes=kv_bytes(model, (work.most_rows + 2) * work.longest, "bf16"),
    )
    precision = kind.rpartition("-")[2] if kind in V2_FORMATS else "bf16"
    return msgspec.structs.replace(
        make_spec(model, limits, 1, "bf16"),
        backend="triton",
        device=device,
        precision=precision,
        kernel_cache=str(Path(model).parent / "kernels"),
    )


def measure(spec: EngineSpec, work: Work) -> dict[str, Any]:
    from halogend.engine.loading import load  # noqa: PLC0415 (torch belongs where something is measured)

    loaded = load(spec, Progress())
    loaded.runner.set_threads(1)
    error = _error_beside_the_cpu(spec, loaded)
    if error > _MOST_ERROR:
        raise ArithmeticError(f"logits are {error:.1%} of the largest away from those of the CPU's operators")
    stepper = Stepper(loaded, work)
    prompts = [Prompt(tokens, stepper.prompt(tokens)) for tokens in work.prompts]
    stepper.fill(work.most_rows, max(context for _, context in work.decodes))
    decodes = [stepper.decode(rows, context) for rows, context in work.decodes]
    return {
        "weights_bytes": loaded.weights_bytes,
        "load_s": loaded.load_s,
        "warmup_s": loaded.warmup_s,
        "kernels": loaded.kernels,
        "logits_error": error,
        "decodes": [asdict(decode) for decode in decodes],
        "prompts": [asdict(prompt) for prompt in prompts],
        "table": list(_table(loaded, error, decodes, prompts)),
    }


def _error_beside_the_cpu(spec: EngineSpec, loaded: Loaded) -> float:
    """The largest difference of logits, as a share of the largest logit."""
    from halogend.engine.loading import load  # noqa: PLC0415 (as above)

    ours = _prompt_logits(loaded)
    there = load(msgspec.structs.replace(spec, backend="cpu", device="cpu:0"), Progress())
    there.runner.set_threads(len(os.sched_getaffinity(0)))
    theirs = _prompt_logits(there)
    if not ours.isfinite().all():
        raise ArithmeticError("the logits of a prompt are not finite")
    return float((ours - theirs).abs().max() / theirs.abs().max())


def _prompt_logits(loaded: Loaded) -> torch.Tensor:
    import torch  # noqa: PLC0415 (as above)

    device = torch.device("cpu") if loaded.chooser is None else loaded.chooser.device
    each = blocks_for(_CHECKED_TOKENS)
    blocks = [list(range(1 + table * each, 1 + (table + 1) * each)) for table in range(loaded.layout.tables)]
    item = StepItem(0, 0, 0, tuple(range(_CHECKED_TOKENS)), False, blocks, True)
    slots = torch.zeros(1, dtype=torch.int64, device=device)
    return loaded.runner.forward(StepPlan(0, (item,)), slots).to("cpu", torch.float64)


class Stepper:
    """Steps of requests that lie one after the other in the pool. Single writer of the pool and the slots."""

    def __init__(self, loaded: Loaded, work: Work) -> None:
        import torch  # noqa: PLC0415 (as above)

        if loaded.chooser is None:
            raise ValueError("this engine chooses tokens on the host: it runs on no device")
        self._chooser = loaded.chooser
        self._graphs: Runner = loaded.runner
        self._plain: Runner = loaded.runner.without_graphs()  # type: ignore[attr-defined]  # of a device's runner
        self._tables = loaded.layout.tables
        self._work = work
        self._slots = torch.zeros(work.most_rows, dtype=torch.int64, device=loaded.chooser.device)
        self._number = 0

    def prompt(self, tokens: int) -> float:
        """Seconds of a prompt, its first token chosen."""
        return statistics.median(self._chunks(0, tokens) for _ in range(self._work.rounds))

    def fill(self, rows: int, context: int) -> None:
        for row in range(rows):
            self._chunks(row, context)

    def decode(self, rows: int, context: int) -> Decode:
        ways = {}
        for name, runner in (("graphs", self._graphs), ("plain", self._plain)):
            self._round(runner, rows, context)  # builds and touches what the rounds need
            ways[name] = [self._round(runner, rows, context) for _ in range(self._work.rounds)]
        seconds = {name: statistics.median(took for took, _ in rounds) for name, rounds in ways.items()}
        first, second = (rounds[-1][1] for rounds in ways.values())
        which = f"{rows} rows at {context} positions"
        if NO_TOKEN in first or NO_TOKEN in second:
            raise ArithmeticError(f"logits of {which} are not finite")
        begun = _share_alike(first[:rows], second[:rows])
        if begun < _LEAST_ALIKE:
            raise ArithmeticError(f"{begun:.0%} of {which} choose alike with graphs and without")
        alike = _share_alike(first, second)
        return Decode(rows, context, seconds["graphs"], seconds["plain"], alike)

    def _chunks(self, row: int, tokens: int) -> float:
        started = time.perf_counter()
        for start in range(0, tokens, self._work.chunk):
            some = (_FIRST_TOKEN,) * min(self._work.chunk, tokens - start)
            item = StepItem(row, row, start, some, False, self._blocks(row, tokens), start + len(some) == tokens)
            logits = self._graphs.forward(self._plan([item]), self._slots)
        self._chooser.choose(logits, [Want(0, row, GREEDY, tokens)], self._slots).wait()
        return time.perf_counter() - started

    def _round(self, runner: Runner, rows: int, context: int) -> tuple[float, list[int]]:
        """Seconds a step, and all tokens."""
        self._slots.fill_(_FIRST_TOKEN)
        tokens: list[int] = []
        waiting = None
        started = time.perf_counter()
        for position in range(context, context + self._work.steps):
            blocks = [self._blocks(row, position + 1) for row in range(rows)]
            items = [StepItem(row, row, position, (), True, blocks[row], True) for row in range(rows)]
            logits = runner.forward(self._plan(items), self._slots)
            wants = [Want(row, row, GREEDY, position + 1) for row in range(rows)]
            chosen = self._chooser.choose(logits, wants, self._slots)
            if waiting is not None:
                tokens.extend(waiting.wait())
            waiting = chosen
        if waiting is not None:
            tokens.extend(waiting.wait())
        return (time.perf_counter() - started) / self._work.steps, tokens

    def _plan(self, items: Sequence[StepItem]) -> StepPlan:
        self._number += 1
        return StepPlan(self._number, tuple(items))

    def _blocks(self, row: int, tokens: int) -> list[list[int]]:
        """Runs of their own for each table."""
        each = self._work.longest // BLOCK_TOKENS
        firsts = [1 + (row * self._tables + table) * each for table in range(self._tables)]
        return [list(range(first, first + blocks_for(tokens))) for first in firsts]


def _share_alike(ours: Sequence[int], theirs: Sequence[int]) -> float:
    return sum(one == other for one, other in zip(ours, theirs, strict=True)) / len(ours)


def _table(loaded: Loaded, error: float, decodes: Sequence[Decode], prompts: Sequence[Prompt]) -> Iterator[str]:
    yield f"weights {loaded.weights_bytes / 1e9:.2f} GB, {loaded.load_s:.1f} s to load, {loaded.warmup_s:.1f} s to warm"
    yield f"logits of a prompt within {error:.2%} of the largest beside the CPU's operators"
    heads = zip(
        ("rows", "context", "graphs ms", "plain ms", "times", "tokens/s", "GB/s", "alike"), _WIDTHS, strict=True
    )
    yield "".join(f"{head:>{width}}" for head, width in heads)
    for decode in decodes:
        yield (
            f"{decode.rows:6}{decode.context:9}{decode.graphs_s * 1e3:11.2f}{decode.plain_s * 1e3:10.2f}"
            f"{decode.plain_s / decode.graphs_s:7.2f}{decode.rows / decode.graphs_s:10.0f}"
            f"{loaded.weights_bytes / decode.graphs_s / 1e9:8.0f}{decode.alike:8.1%}"
        )
    for prompt in prompts:
        yield f"prompt of {prompt.tokens}: {prompt.seconds * 1e3:.1f} ms, {prompt.tokens / prompt.seconds:.0f} tokens/s"


if __name__ == "__main__":
    sys.exit(main())
