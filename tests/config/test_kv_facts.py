"""KV memory as the rules and the ledger count it: the same as the scheduler's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from halogend.config.facts import BLOCK_TOKENS, KvFacts
from halogend.sched import blocks
from halogend.sched.layout import KvLayout

WINDOWS = st.lists(st.one_of(st.none(), st.integers(1, 6000)), min_size=1, max_size=16).map(tuple)
LAYOUTS = st.builds(KvFacts, st.integers(1, 1 << 20), WINDOWS, st.integers(1, 5000))


def test_blocks_are_as_long() -> None:
    assert BLOCK_TOKENS == blocks.BLOCK_TOKENS


@given(kv=LAYOUTS, tokens=st.integers(1, 200_000))
def test_a_request_takes_what_the_scheduler_says(kv: KvFacts, tokens: int) -> None:
    needed = KvLayout(kv.windows).blocks_for_request(tokens, kv.step_tokens)
    assert kv.request_bytes(tokens) == needed * kv.block_bytes
    assert kv.pool_bytes(tokens) // kv.block_bytes - 1 == needed
    assert kv.pool_bytes(tokens, requests=5) // kv.block_bytes - 1 == 5 * needed


@given(kv=LAYOUTS, most=st.integers(1, 2000), data=st.data())
def test_the_longest_request_that_fits(kv: KvFacts, most: int, data: st.DataObject) -> None:
    pool = data.draw(st.integers(0, 2 * kv.request_bytes(most)))
    fits = kv.fitting_tokens(pool, most)
    assert fits == max((n for n in range(1, most + 1) if kv.request_bytes(n) <= pool), default=0)
