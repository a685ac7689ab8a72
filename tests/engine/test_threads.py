"""One thread or all for a step's layers, and that the count changes no bit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.engine_driver import load_engine, spread
from support.tiny_models import tiny_gemma3

from halogend.engine import threads
from halogend.engine.threads import StepThreads, handing_out_s
from halogend.sched.step import StepItem, StepPlan


@pytest.fixture(autouse=True)
def _threads_kept() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def policy(matrix_bytes: float, count: int, cost_s: float, monkeypatch: pytest.MonkeyPatch) -> StepThreads:
    monkeypatch.setattr(threads, "handing_out_s", lambda _: cost_s)
    chosen = StepThreads(matrix_bytes)
    chosen.set(count)
    return chosen


def test_small_matrices_stay_on_one_thread_where_waking_is_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.5 MB take one thread 100 us; two would save 50 of it."""
    assert policy(1.5e6, 2, 40e-6, monkeypatch).for_layers(1) == 2
    sleepy = policy(1.5e6, 2, 60e-6, monkeypatch)
    assert [sleepy.for_layers(rows) for rows in (1, 6, 7, 8, 512)] == [1, 1, 1, 2, 2]
    assert policy(1.5e6, 8, 60e-6, monkeypatch).for_layers(1) == 8
    assert policy(60e6, 2, 60e-6, monkeypatch).for_layers(1) == 2


def test_one_thread_is_never_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = StepThreads(1e6)
    monkeypatch.setattr(threads, "handing_out_s", lambda _: pytest.fail("measured"))
    alone.set(1)
    assert (alone.for_layers(1), alone.for_layers(512), torch.get_num_threads()) == (1, 1, 1)


def test_counts_are_set_for_the_calling_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = policy(1.5e6, 2, 60e-6, monkeypatch)
    chosen.use_for_layers(1)
    assert torch.get_num_threads() == 1
    chosen.use_all()
    assert torch.get_num_threads() == 2


def test_the_cost_is_measured_in_real_time() -> None:
    cost_s = handing_out_s(2)
    assert 0 <= cost_s < 1
    assert torch.get_num_threads() == 2


def test_the_number_of_threads_changes_no_bit(tmp_path: Path) -> None:
    """Large enough that operators are really shared out."""
    path = tiny_gemma3(tmp_path / "model.gguf", hidden=256, ffn=2048, heads=8, kv_heads=2, extra_vocab=5000).path
    rows = []
    for count, precision in itertools.product((1, 2), ("bf16", "fp32")):
        engine = load_engine(path, precision=precision)
        runner, blocks = engine.runner, spread(engine, [1, 2, 3])
        runner.set_threads(count)
        slots = torch.zeros(1, dtype=torch.int64)
        chunk = StepItem(1, 0, 0, tuple(range(5, 45)), from_slot=False, blocks=blocks, samples=True)
        token = StepItem(1, 0, 40, (50,), from_slot=False, blocks=blocks, samples=True)
        rows.append(torch.cat([runner.forward(StepPlan(n, (item,)), slots) for n, item in enumerate((chunk, token))]))
    assert torch.equal(rows[0], rows[2])
    assert torch.equal(rows[1], rows[3])
