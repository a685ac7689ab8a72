"""python -m halogend.sim WHAT: policies side by side in one table, or as JSON; 1 when a bar is missed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from halogend.sim import flood, fragmentation, knee, mixed, reuse
from halogend.sim.timing import SMOLLM2, read_times


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    try:
        times = SMOLLM2 if args.profile is None else read_times(args.profile)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"halogend bench sim: {error}\n")
        return 2
    report = args.run(args, times)
    sys.stdout.write((json.dumps(report.as_json()) if args.json else report.table()) + "\n")
    return 0 if report.met else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="halogend bench sim", description=__doc__)
    kinds = parser.add_subparsers(required=True, metavar="WHAT")
    for kind in (mixed, fragmentation, reuse, flood, knee):
        kind.add(kinds)
    for each in kinds.choices.values():
        each.add_argument("--seed", type=int, default=0, help="of the trace")
        each.add_argument("--profile", type=Path, help="JSON of `bench steps` (default: SmolLM2 on two cores)")
        each.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
