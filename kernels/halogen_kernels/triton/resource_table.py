"""The table of what kernels take on each target, for kernels/README.md.

    python -m halogen_kernels.triton.resource_table [--cache-dir DIR] [--readme FILE]

Compiles one of each kind of kernel (`shapes.FEW`) for all targets, unless DIR has them, and prints the table, or puts
it into FILE between its two marks.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from halogen_kernels.triton import ahead, shapes
from halogen_kernels.triton.index import Entry
from halogen_kernels.triton.rehearsal import launches
from halogen_kernels.triton.resources import Resources
from halogen_kernels.triton.targets import TARGETS, Target

BEGIN, END = "<!-- resources: made by halogen_kernels.triton.resource_table -->", "<!-- end of resources -->"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m halogen_kernels.triton.resource_table")
    parser.add_argument("--cache-dir", type=Path, metavar="DIR")
    parser.add_argument("--readme", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    with contextlib.ExitStack() as stack:
        directory = arguments.cache_dir or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with contextlib.redirect_stdout(sys.stderr):
            asked = {target: launches(target, shapes.FEW) for target in TARGETS}
            failed = ahead.fill(directory, asked, len(os.sched_getaffinity(0)))
        table = markdown({target: ahead.look(directory, target, own)[0] for target, own in asked.items()})
    if arguments.readme is None:
        print(table)
    else:
        arguments.readme.write_text(placed(arguments.readme.read_text(), table))
    return 1 if failed else 0


def markdown(entries: Mapping[Target, Iterable[Entry]]) -> str:
    """A line an operator; a cell is what its hungriest variant takes: registers a thread, KiB of shared memory a
    program, and spills where there are any."""
    names = sorted({entry.op for each in entries.values() for entry in each})
    lines = [f"| operator | {' | '.join(target.name for target in entries)} |", "|---" * (1 + len(entries)) + "|"]
    for name in names:
        cells = [_cell([entry.resources for entry in each if entry.op == name]) for each in entries.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def placed(text: str, table: str) -> str:
    """`text` with the table between its marks. Raises ValueError without them."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"there are no marks {BEGIN} and {END}")
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"


def _cell(found: Sequence[Resources]) -> str:
    if not found:
        return "-"
    registers = max(each.registers for each in found)
    shared = max(each.shared_bytes for each in found) / 1024
    spilled = max(each.spilled for each in found)
    return f"{registers}, {shared:.0f} KiB" + (f", spills {spilled}" if spilled else "")


if __name__ == "__main__":
    sys.exit(main())
