"""Which layers share a table of KV blocks: what memory planning and the engine both need.

A model's layers are put into tables of equal length, each with one window; a table that its layers
do not fill is padded. A block holds some positions of one table's layers, so all blocks are of one
size and any block can serve any table.

    windows  4 4 4 _ 4 4 4 _        8 layers, every fourth sees everything
    tables   (_: 3 7)  (4: 0 1)  (4: 2 4)  (4: 5 6)        2 layers each, none padded
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_MOST_TABLES = 16  # each costs planning in every step and an entry for each block of a sequence


@dataclass(frozen=True, slots=True)
class KvTable:
    """`layers` see `window` positions back, themselves included (None: everything)."""

    window: int | None
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KvGroups:
    """`tables` hold every layer once; each has room for `layers_per_table`. Tables without a window
    come first."""

    tables: tuple[KvTable, ...]
    layers_per_table: int

    @property
    def windows(self) -> tuple[int | None, ...]:
        """One a table."""
        return tuple(table.window for table in self.tables)

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Of each layer of the model: the number of its table, and its index there."""
        found = {
            layer: (number, index)
            for number, table in enumerate(self.tables)
            for index, layer in enumerate(table.layers)
        }
        return tuple(found[layer] for layer in sorted(found))


def group_layers(windows: Sequence[int | None]) -> KvGroups:
    """`windows` has an entry for each layer, at least one. Takes the length of tables that pads the
    fewest layers with at most 16 tables (or one for each kind, if there are more kinds), the largest
    of those that pad the same."""
    kinds: dict[int | None, list[int]] = {}
    for layer, window in enumerate(windows):
        kinds.setdefault(window, []).append(layer)
    most_tables = max(_MOST_TABLES, len(kinds))
    counts = [len(layers) for layers in kinds.values()]
    lengths = [n for n in range(max(counts), 0, -1) if sum(-(-count // n) for count in counts) <= most_tables]
    length = min(lengths, key=lambda n: sum(-count % n for count in counts))
    tables = tuple(
        KvTable(window, tuple(kinds[window][start : start + length]))
        for window in sorted(kinds, key=lambda window: (window is not None, window or 0))
        for start in range(0, len(kinds[window]), length)
    )
    return KvGroups(tables, length)
