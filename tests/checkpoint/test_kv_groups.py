"""Which layers share a table: equal lengths, the fewest padded layers, at most sixteen tables."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halogend.checkpoint.kv_groups import KvGroups, group_layers

WINDOWS = st.lists(st.sampled_from([None, 16, 512, 4096]), min_size=1, max_size=90)


def every(pattern: int, layers: int, window: int = 512) -> list[int | None]:
    """Every `pattern`-th layer sees everything."""
    return [None if (index + 1) % pattern == 0 else window for index in range(layers)]


def padded(groups: KvGroups) -> int:
    return sum(groups.layers_per_table - len(table.layers) for table in groups.tables)


def test_layers_that_all_see_everything_share_one_table() -> None:
    groups = group_layers([None] * 30)
    assert (groups.windows, groups.layers_per_table) == ((None,), 30)
    assert groups.places == tuple((0, index) for index in range(30))


def test_layers_that_all_see_one_window_share_one_table() -> None:
    assert group_layers([4096] * 32).windows == (4096,)


@pytest.mark.parametrize(
    ("windows", "tables", "length", "padding"),
    [
        (every(6, 18), 6, 3, 0),  # Gemma 3 270M: 3 and 15
        (every(6, 26), 13, 2, 0),  # Gemma 3 1B: 4 and 22
        (every(6, 34), 7, 5, 1),  # Gemma 3 4B: 5 and 29
        (every(6, 48), 6, 8, 0),  # Gemma 3 12B: 8 and 40
        (every(2, 26), 2, 13, 0),  # Gemma 2 2B
        (every(2, 3), 3, 1, 0),
    ],
)
def test_models_that_there_are(windows: list[int | None], tables: int, length: int, padding: int) -> None:
    groups = group_layers(windows)
    assert (len(groups.tables), groups.layers_per_table, padded(groups)) == (tables, length, padding)


def test_where_each_layer_is() -> None:
    groups = group_layers([8, 8, None, 8, 8, None])
    assert [table.layers for table in groups.tables] == [(2, 5), (0, 1), (3, 4)]
    assert groups.places == ((1, 0), (1, 1), (0, 0), (2, 0), (2, 1), (0, 1))


def test_more_kinds_than_tables_have_a_table_each() -> None:
    groups = group_layers(range(1, 21))
    assert (len(groups.tables), padded(groups)) == (20, 0)


@given(WINDOWS)
def test_every_layer_is_in_one_place_with_its_own_window(windows: list[int | None]) -> None:
    groups = group_layers(windows)
    assert len(set(groups.places)) == len(windows)
    for layer, (table, index) in enumerate(groups.places):
        assert groups.tables[table].layers[index] == layer
        assert groups.tables[table].window == windows[layer]
    assert all(len(table.layers) <= groups.layers_per_table for table in groups.tables)
    assert groups.windows.index(None) == 0 if None in windows else True


@given(WINDOWS)
def test_no_other_length_is_better(windows: list[int | None]) -> None:
    groups = group_layers(windows)
    counts = Counter(windows).values()
    assert len(groups.tables) <= 16
    for length in range(1, len(windows) + 1):
        tables = sum(-(-count // length) for count in counts)
        padding = tables * length - len(windows)
        if tables <= 16:
            assert (
                padding > padded(groups)
                or (padding == padded(groups) and length <= groups.layers_per_table)
                or (
                    length > max(counts)  # longer than any table needs to be
                )
            )
