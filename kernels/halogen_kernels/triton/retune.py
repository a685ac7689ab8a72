"""Measures block sizes on this machine's device and writes what was fastest into an operator's table.

    python -m halogen_kernels.triton.retune OP [--print]

An operator that can be tuned has `tuning_cases(device)`: launches of realistic sizes, one for each class that its table
should tell apart. Tried are the sizes that the table has for any target, and their neighbours: twice and half of each
block and of the warps, one stage more and less. Never while serving, and in no test's way: it takes minutes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from halogen_kernels.triton import targets, tuning
from halogen_kernels.triton.tuning import Blocks, Rule

_ROUNDS = 20
_CALLS = 5
_LEAST_BLOCK, _MOST_WARPS, _MOST_STAGES = 16, 16, 5


@dataclass(frozen=True, slots=True)
class Case:
    """One class: the conditions under which its rule holds, and a launch that stands for it."""

    when: Mapping[str, Any]
    call: Callable[[], object]


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse(argv)
    target = targets.current()
    module = importlib.import_module(f"halogen_kernels.triton.{arguments.op}")
    device = torch.device("cpu" if target.backend == "interpreter" else "cuda")
    rules = fastest(arguments.op, list(module.tuning_cases(device)), _seconds_of(device))
    text = with_rules(arguments.op, target.name, rules)
    if arguments.show:
        print(text, end="")
    else:
        (tuning.TABLES / f"{arguments.op}.json").write_text(text)
    return 0


def fastest(op: str, cases: Sequence[Case], seconds: Callable[[Callable[[], object]], float]) -> list[Rule]:
    """The rules, in the order of `cases`; `seconds` measures one call. What a device cannot run is passed over.
    Raises LookupError where none of the candidates runs."""
    return [{"when": dict(case.when), "blocks": dict(_best(op, case, seconds))} for case in cases]


def candidates(op: str) -> list[Blocks]:
    """Those of all targets' rules (but the interpreter's), and their neighbours, each once."""
    table = json.loads((tuning.TABLES / f"{op}.json").read_text())
    known = [rule["blocks"] for name, rules in table.items() if name != "interpreter" for rule in rules]
    found = {tuple(sorted(blocks.items())) for each in known for blocks in (each, *_neighbours(each))}
    return [dict(blocks) for blocks in sorted(found)]


def with_rules(op: str, target: str, rules: Iterable[Rule]) -> str:
    """The operator's table with these for `target`, as text: a line a rule."""
    table = json.loads((tuning.TABLES / f"{op}.json").read_text())
    table[target] = list(rules)
    parts = []
    for name, own in table.items():
        lines = ",\n    ".join(json.dumps(rule) for rule in own)
        parts.append(f'  "{name}": [\n    {lines}\n  ]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _best(op: str, case: Case, seconds: Callable[[Callable[[], object]], float]) -> Blocks:
    took: list[tuple[float, Blocks]] = []
    for blocks in candidates(op):
        with tuning.trying(op, blocks):
            try:
                took.append((seconds(case.call), blocks))
            except Exception as error:  # noqa: BLE001 - a device refuses what it cannot hold in many ways
                print(f"{dict(case.when)}: {dict(blocks)}: {type(error).__name__}", file=sys.stderr)
    if not took:
        raise LookupError(f"no block sizes of {op} run with {dict(case.when)}")
    return min(took, key=lambda each: each[0])[1]


def _neighbours(blocks: Blocks) -> Iterator[Blocks]:
    for key, value in blocks.items():
        if key == "num_stages":
            changed = [each for each in (value - 1, value + 1) if 1 <= each <= _MOST_STAGES]
        elif key == "num_warps":
            changed = [each for each in (value // 2, value * 2) if 1 <= each <= _MOST_WARPS]
        else:
            changed = [each for each in (value // 2, value * 2) if each >= min(_LEAST_BLOCK, value)]
        for each in changed:
            yield {**blocks, key: each}


def _seconds_of(device: torch.device) -> Callable[[Callable[[], object]], float]:
    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def seconds(call: Callable[[], object]) -> float:
        call()
        rounds = []
        for _ in range(_ROUNDS):
            wait()
            began = time.perf_counter()
            for _ in range(_CALLS):
                call()
            wait()
            rounds.append(time.perf_counter() - began)
        return statistics.median(rounds) / _CALLS

    return seconds


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m halogen_kernels.triton.retune")
    parser.add_argument("op", choices=tuning.operators())
    parser.add_argument("--print", action="store_true", dest="show", help="print the table and write nothing")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
