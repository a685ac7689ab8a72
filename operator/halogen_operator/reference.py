"""The tables of docs/kubernetes.md that are made from the code: reasons, metrics.

`python -m halogen_operator.reference docs/kubernetes.md` writes them between their marks. Owns the marks and the way
of a table to text; what stands in a table is its module's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from halogen_operator.metrics import METRICS
from halogen_operator.reasons import REASONS


def tables() -> Mapping[str, str]:
    """By mark, each ending in a newline."""
    return {"reasons": reasons_markdown(), "metrics": metrics_markdown()}


def reasons_markdown() -> str:
    """One row a reason, with the conditions that may have it."""
    lines = ["| reason | of conditions | meaning | what to do |", "|---|---|---|---|"]
    for each in REASONS:
        kinds = ", ".join(f"{kind} {state}" for kind, state in each.kinds)
        lines.append(f"| `{each.name}` | {kinds} | {each.meaning} | {each.remedy} |")
    return "\n".join(lines) + "\n"


def metrics_markdown() -> str:
    """One row a metric."""
    lines = ["| metric | labels | meaning |", "|---|---|---|"]
    for name, (text, labels) in METRICS.items():
        lines.append(f"| `{name}` | {', '.join(f'`{label}`' for label in labels)} | {text} |")
    return "\n".join(lines) + "\n"


def filled(page: str) -> str:
    """The page with every table as the code has it. Raises `ValueError` for a table without a place."""
    for name, table in tables().items():
        begin, end = (f"<!-- {name}: {where} -->\n" for where in ("begin", "end"))
        places = re.findall(f"{re.escape(begin)}.*?{re.escape(end)}", page, flags=re.DOTALL)
        if len(places) != 1:
            raise ValueError(f"the page has {len(places)} places for the table {name}, not one")
        page = page.replace(places[0], f"{begin}{table}{end}")
    return page


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(filled(path.read_text()))
