"""How many blocks a request holds, against counting them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halogend.sched.blocks import BLOCK_TOKENS, blocks_for
from halogend.sched.layout import KvLayout, sliding_blocks

WINDOW = st.one_of(st.none(), st.integers(1, 100))


def held(window: int | None, start: int, end: int) -> int:
    """Blocks of one table in a step of positions `start` to `end` - 1, counted one by one."""
    first = 0 if window is None else max(0, start - window + 1)
    return len({position // BLOCK_TOKENS for position in range(first, end)})


@pytest.mark.parametrize("window", [1, 2, 15, 16, 17, 18, 32, 33, 100])
@pytest.mark.parametrize("step_tokens", [1, 2, 7, 15, 16, 17, 64])
def test_a_sliding_table_s_bound_is_reached_and_never_passed(window: int, step_tokens: int) -> None:
    counts = [
        held(window, start, start + count)
        for start in range(window + 2 * BLOCK_TOKENS)
        for count in range(1, step_tokens + 1)
    ]
    assert max(counts) == sliding_blocks(window, step_tokens)


@given(window=WINDOW, tokens=st.integers(1, 200), step_tokens=st.integers(1, 80))
def test_one_table_exactly(window: int | None, tokens: int, step_tokens: int) -> None:
    """Cut by the length of the request as well: it can be reached with the right cuts."""
    most = max(held(window, start, min(start + step_tokens, tokens)) for start in range(tokens) if start + 1 <= tokens)
    bound = KvLayout((window,)).blocks_for_request(tokens, step_tokens)
    # At most one block more, where the request ends before its window begins in a block's last position.
    assert most <= bound <= most + (window is not None)


@given(windows=st.lists(WINDOW, min_size=1, max_size=6), tokens=st.integers(1, 300), step_tokens=st.integers(1, 80))
def test_tables_together(windows: list[int | None], tokens: int, step_tokens: int) -> None:
    layout = KvLayout(tuple(windows))
    alone = [KvLayout((window,)).blocks_for_request(tokens, step_tokens) for window in windows]
    assert layout.blocks_for_request(tokens, step_tokens) == sum(alone)
    assert layout.blocks_for_request(tokens + 1, step_tokens) >= sum(alone)
    assert layout.blocks_for_request(tokens, step_tokens + 1) >= sum(alone)
    assert layout.tables == len(windows)


def test_a_request_that_sees_everything_takes_what_its_positions_fill() -> None:
    assert [KvLayout((None,)).blocks_for_request(n, 256) for n in (1, 16, 17, 4096)] == [1, 1, 2, 256]
    assert KvLayout((None, None)).blocks_for_request(4096, 256) == 2 * blocks_for(4096)


def test_a_long_request_of_a_sliding_model_takes_no_more_than_its_window() -> None:
    layout = KvLayout((None, *[512] * 5))
    assert layout.blocks_for_request(32_768, 256) == 2048 + 5 * 49
    assert KvLayout((512,)).blocks_for_request(10**9, 256) == 49


@pytest.mark.parametrize("windows", [(), (None, 0), (-1,)])
def test_layouts_that_make_no_sense(windows: tuple[int | None, ...]) -> None:
    with pytest.raises(ValueError, match="windows"):
        KvLayout(windows)
