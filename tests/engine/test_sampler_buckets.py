from __future__ import annotations

from itertools import accumulate

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from halogend.engine.buckets import Buckets


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-20, 20), min_size=1, max_size=40),
    st.lists(st.floats(0, 1.05), min_size=1, max_size=8),
)
def test_a_share_is_reached_where_a_full_sort_reaches_it(logits: list[int], shares: list[float]) -> None:
    row = np.array(logits, np.float32)
    weights = np.exp2(row.astype(np.float64))  # powers of two: sums are exact in any order
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    sums = list(accumulate(float(weights[token]) for token in order))
    buckets = Buckets(row, weights)
    for share in (*(part * sums[-1] for part in shares), sums[0], sums[-1]):
        for beyond in (False, True):
            expected = next((i for i, s in enumerate(sums) if s > share or (s == share and not beyond)), len(sums) - 1)
            assert buckets.reach(share, beyond=beyond) == (order[expected], sums[expected])


def test_equal_logits_share_one_bucket_in_the_order_of_their_ids() -> None:
    buckets = Buckets(np.full(5, 3, np.float32), np.ones(5))
    assert [buckets.reach(share, beyond=True) for share in (0.0, 1.0, 4.5)] == [(0, 1.0), (1, 2.0), (4, 5.0)]
