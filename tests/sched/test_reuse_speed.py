"""K6: what reuse costs a cold prompt, in CPU time a token; run with `-m slow -s` to see the figures."""

from __future__ import annotations

import random
import time

import pytest

from halogend.sched.blocks import BlockPool
from halogend.sched.layout import KvLayout
from halogend.sched.request import Request, Sequence
from halogend.sched.tables import BlockTables

CHUNK = 256


@pytest.mark.slow
@pytest.mark.parametrize("windows", [(None,), (None, *(512,) * 5)], ids=["one table", "gemma 3"])
@pytest.mark.parametrize("tokens", [512, 4096, 32768])
def test_cold_prompts(windows: tuple[int | None, ...], tokens: int, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(1)
    pool = BlockPool(20_000, 20_000)
    tables = BlockTables(pool, KvLayout(windows))
    prompts = [tuple(draw.randrange(49_152) for _ in range(tokens)) for _ in range(max(1, 60_000 // tokens))]
    whole = index = 0.0
    for number, prompt in enumerate(prompts):
        sequence = Sequence(Request(number, prompt, 10), number, 0.0, list(prompt))
        began = time.process_time()
        assert tables.open(sequence) == 0
        for end in range(CHUNK, tokens + 1, CHUNK):
            tables.extend(sequence, end)
            sequence.computed = end
            before = time.process_time()
            tables.written(sequence, end)
            index += time.process_time() - before
        whole += time.process_time() - began
        sequence.ended = True
        tables.release(sequence, 0.0)
    count = len(prompts) * tokens / 1e6
    with capsys.disabled():
        print(f"\n{len(windows)} tables, {tokens}: index {index / count:.2f} µs a token, in all {whole / count:.2f}")
