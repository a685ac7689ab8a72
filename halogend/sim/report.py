"""Figures of a simulation: one table for people, the same as JSON, and the bars they must reach."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Bar:
    """`value` must be at most `limit`, or with `least` at least."""

    name: str
    value: float
    limit: float
    least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.least else self.value <= self.limit

    def line(self) -> str:
        verdict = "met" if self.met else "MISSED"
        return f"{verdict:7}{self.name}: {_figure(self.value)} ({'>=' if self.least else '<='} {_figure(self.limit)})"


@dataclass(slots=True)
class Report:
    """`rows` has the figures of each policy by its name, all with the same columns."""

    title: str
    rows: dict[str, dict[str, float]] = field(default_factory=dict)
    bars: list[Bar] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def met(self) -> bool:
        return all(bar.met for bar in self.bars)

    def table(self) -> str:
        columns = list(next(iter(self.rows.values()), {}))
        cells = [["", *columns], *([name, *map(_figure, row.values())] for name, row in self.rows.items())]
        widths = [max(len(line[column]) for line in cells) for column in range(len(columns) + 1)]
        lines = [
            "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))])
            for line in cells
        ]
        return "\n".join([self.title, *lines, *self.notes, *(bar.line() for bar in self.bars)])

    def as_json(self) -> dict[str, Any]:
        """A figure that is none (of no samples, without an end) is null."""
        bars = [
            {"name": bar.name, "value": _finite(bar.value), "limit": bar.limit, "least": bar.least, "met": bar.met}
            for bar in self.bars
        ]
        rows = {name: {key: _finite(value) for key, value in row.items()} for name, row in self.rows.items()}
        return {"title": self.title, "rows": rows, "bars": bars, "notes": self.notes, "met": self.met}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _figure(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    if value == round(value) and abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:,.{0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3}f}"
