"""What the benches of kernels share: cases in, a table out, and a file of the same as JSON if it is asked for.

    python kernels/bench/NAME.py [--device cuda] [--dtype bfloat16] [--small] [--json FILE]

A case counts what its operator must move and compute at least: each input read once, each output written once, two
operations for each multiplication that is added up. A share is that over the time taken, beside what the device did
in the same run: bytes beside a copy's, operations beside a large product's. Ways stand side by side, ours first, with
how many times as fast as each other one ours is. Without a GPU kernels are interpreted: then only --small makes
sense, the table shows that everything runs, and its times mean nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from ceilings import Ceilings, measure
from halogen_kernels.triton.launching import launched
from timing import ROUNDS, Run, Timed, set_count, timed

SMALL_ROUNDS = 1
COPY = "copy"
HEADS = f"{'operator':<18} {'shape':<38} {'us':>10} {'GB/s':>8} {'of copy':>8} {'TFLOP/s':>8} {'of product':>10}"


@dataclass(frozen=True, slots=True)
class Options:
    """`small` asks for shapes that the interpreter can do in a second."""

    device: torch.device
    dtype: torch.dtype
    small: bool


@dataclass(frozen=True, slots=True)
class Bar:
    """What a case must reach at least: a share of the bandwidth of a copy where `beside` is COPY, else as many times
    the speed of the way of that name."""

    beside: str
    least: float


@dataclass(frozen=True, slots=True)
class Case:
    """One operator at one shape. Each of `ways`, the first of which is ours, makes inputs on the device and returns
    what one call with them is; it is asked for as many as no cache holds. `nbytes` and `operations` are those of one
    call."""

    op: str
    shape: str
    nbytes: int
    operations: int
    ways: Mapping[str, Callable[[], Run]]
    bar: Bar | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """`variants` are the kernels that ours launched; `others` the seconds of the other ways; `reached` is what is held
    against the bar, where there is one."""

    op: str
    shape: str
    seconds: float
    recorded: bool
    bytes_s: float
    operations_s: float
    copy_share: float
    product_share: float
    others: Mapping[str, float]
    variants: tuple[str, ...]
    bar: Bar | None
    reached: float | None


def main(title: str | None, cases: Callable[[Options], Iterable[Case]], argv: Sequence[str] | None = None) -> None:
    """Runs the cases and prints. `title` is the bench's docstring."""
    parser = argparse.ArgumentParser(description=(title or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), default="bfloat16")
    parser.add_argument("--small", action="store_true", help="shapes for the interpreter")
    parser.add_argument("--json", type=Path, help="a file to write the results to")
    arguments = parser.parse_args(argv)
    options = Options(torch.device(arguments.device), getattr(torch, arguments.dtype), arguments.small)
    ceilings = measure(options.device, options.dtype)
    results = list(run(cases(options), options, ceilings))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(as_json(ceilings, results), indent=2) + "\n")


def run(cases: Iterable[Case], options: Options, ceilings: Ceilings) -> Iterator[Result]:
    print(
        f"{ceilings.name}, {str(ceilings.dtype).removeprefix('torch.')}: copies {ceilings.bytes_s / 1e9:.0f} GB/s, "
        f"multiplies {ceilings.operations_s / 1e12:.2f} TFLOP/s"
    )
    print(HEADS)
    for case in cases:
        result = run_case(case, options, ceilings)
        print(line(result), flush=True)
        yield result


def run_case(case: Case, options: Options, ceilings: Ceilings) -> Result:
    """Ways are timed one after the other, each in rounds, of which the median counts."""
    times: dict[str, Timed] = {}
    variants: dict[str, None] = {}
    for name, make in case.ways.items():
        runs = [make() for _ in range(set_count(case.nbytes, options.device))]
        if not times:
            with launched() as seen:
                runs[0]()
            variants = dict.fromkeys(f"{variant.op}: {variant.name}" for variant in seen)
        times[name] = timed(runs, options.device, SMALL_ROUNDS if options.small else ROUNDS)
    (_, ours), *others = times.items()
    bytes_s, operations_s = case.nbytes / ours.seconds, case.operations / ours.seconds
    copy_share = bytes_s / ceilings.bytes_s
    return Result(
        op=case.op,
        shape=case.shape,
        seconds=ours.seconds,
        recorded=ours.recorded,
        bytes_s=bytes_s,
        operations_s=operations_s,
        copy_share=copy_share,
        product_share=operations_s / ceilings.operations_s,
        others={name: other.seconds for name, other in others},
        variants=tuple(variants),
        bar=case.bar,
        reached=reached(case.bar, copy_share, times, ours),
    )


def reached(bar: Bar | None, copy_share: float, times: Mapping[str, Timed], ours: Timed) -> float | None:
    if bar is None:
        return None
    return copy_share if bar.beside == COPY else times[bar.beside].seconds / ours.seconds


def line(result: Result) -> str:
    others = "".join(f"  {name} x{seconds / result.seconds:.2f}" for name, seconds in result.others.items())
    bar = ""
    if result.bar is not None and result.reached is not None:
        held = "reached" if result.reached >= result.bar.least else "MISSED"
        bar = f"  {result.bar.least:g} beside {result.bar.beside}: {held}"
    return (
        f"{result.op:<18} {result.shape:<38} {result.seconds * 1e6:>10.1f} {result.bytes_s / 1e9:>8.1f} "
        f"{result.copy_share:>8.1%} {result.operations_s / 1e12:>8.2f} {result.product_share:>10.1%}"
        f"{others}{bar}{'' if result.recorded else '  (with launches)'}"
    )


def as_json(ceilings: Ceilings, results: Iterable[Result]) -> dict[str, object]:
    measured = {
        "device": ceilings.name,
        "dtype": str(ceilings.dtype).removeprefix("torch."),
        "copy_bytes_s": ceilings.bytes_s,
        "product_operations_s": ceilings.operations_s,
    }
    return {"ceilings": measured, "results": [asdict(result) for result in results]}
