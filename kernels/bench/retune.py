"""Measures block sizes on this machine's device and writes the fastest into an operator's table.

    python kernels/bench/retune.py OP [--device cuda] [--dtype bfloat16] [--small] [--print]

The classes stay those of the table's rules for this target; a rule's sizes become those that are fastest over the cases
of `kernels/bench/OP.py` that it is picked for. Tried are the sizes of all targets' rules for the same purpose, and
neighbours of the rule's own: twice and half of each block and of the warps, one stage more and less. A rule that no
case leads to stays as it is. Takes minutes; never while serving.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
from collections.abc import Callable, Iterator, Sequence

import torch
from frame import Case, Options
from halogen_kernels.triton import targets, tuning
from halogen_kernels.triton.tuning import Blocks, Rule
from timing import set_count, timed

MOST_WARPS, MOST_STAGES = 16, 5
Seconds = Callable[[Case], float]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("op", choices=tuning.operators())
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), default="bfloat16")
    parser.add_argument("--small", action="store_true", help="shapes for the interpreter")
    parser.add_argument("--print", action="store_true", dest="show", help="print the table and write nothing")
    arguments = parser.parse_args(argv)
    options = Options(torch.device(arguments.device), getattr(torch, arguments.dtype), arguments.small)
    cases = list(importlib.import_module(arguments.op).cases(options))
    rules = retuned(arguments.op, cases, lambda case: seconds_of(case, options))
    text = with_rules(arguments.op, targets.current().name, rules)
    if arguments.show:
        print(text, end="")
    else:
        tuning.table_path(arguments.op).write_text(text)


def retuned(op: str, cases: Sequence[Case], seconds: Seconds) -> list[Rule]:
    """The current target's rules with the sizes that are fastest; `seconds` takes the time of a case as things are."""
    rules = list(tuning.rules(op, targets.current().name))
    led = [(case, rules_of(op, case, seconds)) for case in cases]
    for number, rule in enumerate(rules):
        own = [case for case, numbers in led if number in numbers]
        if own:
            best = min(candidates(op, rule), key=lambda blocks: cost(op, number, blocks, own, seconds))
            rules[number] = {**rule, "blocks": dict(best)}
            print(f"{op} {rule.get('when', {})}: {dict(rule['blocks'])} -> {dict(best)}", flush=True)
    return rules


def rules_of(op: str, case: Case, seconds: Seconds) -> set[int]:
    """Which rules a case leads to, by number."""
    with tuning.noted() as picked:
        seconds(case)
    return {number for name, number in picked if name == op}


def candidates(op: str, rule: Rule) -> list[Blocks]:
    """The rule's own first: of equals it stays. Others must say the same things."""
    own = dict(rule["blocks"])
    table = json.loads(tuning.table_path(op).read_text())
    known = [
        dict(each["blocks"]) for name, rules in table.items() if name != targets.INTERPRETER.name for each in rules
    ]
    alike = [blocks for blocks in known if blocks.keys() == own.keys()]
    found = {json.dumps(blocks, sort_keys=True): blocks for blocks in (own, *neighbours(own), *alike)}
    return list(found.values())


def neighbours(blocks: Blocks) -> Iterator[Blocks]:
    for key, value in blocks.items():
        if key == "num_stages":
            near = [each for each in (value - 1, value + 1) if 1 <= each <= MOST_STAGES]
        else:
            most = MOST_WARPS if key == "num_warps" else math.inf
            near = [each for each in (value // 2, value * 2) if 1 <= each <= most]
        yield from ({**blocks, key: each} for each in near)


def cost(op: str, number: int, blocks: Blocks, cases: Sequence[Case], seconds: Seconds) -> float:
    """The product of the cases' times: each counts by how many times as fast it gets. What does not run costs most."""
    with tuning.trying(op, number, blocks):
        try:
            return math.prod(seconds(case) for case in cases)
        except Exception as error:  # noqa: BLE001 - devices and compilers refuse in many ways what they cannot hold
            print(f"{op} {dict(blocks)}: {type(error).__name__}", flush=True)
            return math.inf


def seconds_of(case: Case, options: Options) -> float:
    make = next(iter(case.ways.values()))
    runs = [make() for _ in range(set_count(case.nbytes, options.device))]
    return timed(runs, options.device).seconds


def with_rules(op: str, target: str, rules: Sequence[Rule]) -> str:
    """The operator's table with these for `target`, as text: a line a rule."""
    table = json.loads(tuning.table_path(op).read_text())
    table[target] = list(rules)
    parts = (f'  "{name}": [\n    ' + ",\n    ".join(map(json.dumps, own)) + "\n  ]" for name, own in table.items())
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main()
