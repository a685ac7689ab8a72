"""The largest steps, gone through once: what they compute, and how far memory rose."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from halogen_kernels.cpu import attention, linear
from halogen_kernels.values import Activation
from support import tiny_hf
from support.engine_driver import generate_greedy, load_engine, spread
from support.tiny_models import tiny_gemma3

from halogend.engine.memory import Peak
from halogend.engine.models.feed_forward import Dense, Mixture
from halogend.engine.runner import ModelRunner
from halogend.engine.warmup import Room, go_through, most_rows, rehearse_prompts
from halogend.sched.layout import KvLayout
from halogend.sched.limits import SchedLimits
from halogend.sched.step import StepItem, StepPlan


class Recorder:
    """In a runner's place: which plans were rehearsed, which carried out."""

    def __init__(self) -> None:
        self.rehearsed: list[StepPlan] = []
        self.forwarded: list[StepPlan] = []

    def rehearse(self, plan: StepPlan, slot_tokens: torch.Tensor) -> None:
        self.rehearsed.append(plan)

    def forward(self, plan: StepPlan, slot_tokens: torch.Tensor) -> torch.Tensor:
        self.forwarded.append(plan)
        return torch.empty(0)


def warm_up(
    runner: Recorder | ModelRunner, room: Room, layout: KvLayout, wanted: SchedLimits, sizes: tuple[int, ...] = ()
) -> None:
    rehearse_prompts(runner, room, layout, wanted, sizes)  # type: ignore[arg-type]  # a runner, as far as it is used
    go_through(runner, room, layout, wanted.max_batch)  # type: ignore[arg-type]  # as above


def limits(max_batch: int, chunk: int) -> SchedLimits:
    return SchedLimits(max_batch, 1, 0.0, 0.0, chunk, max(256, chunk))


@pytest.mark.parametrize(("longest", "chunk", "batch"), [(1, 0, 1), (40, 0, 3), (2000, 0, 64), (2000, 512, 1)])
@pytest.mark.parametrize("windows", [(None,), (None, 32, 32), (16,)])
def test_a_whole_chunk_a_full_batch_and_one_token_at_the_end_of_the_longest_request(
    longest: int, chunk: int, batch: int, windows: tuple[int | None, ...]
) -> None:
    recorder, layout = Recorder(), KvLayout(windows)
    wanted = limits(batch, chunk)
    room = Room(1 + layout.blocks_for_request(longest, wanted.request_step_tokens), longest)
    warm_up(recorder, room, layout, wanted)
    prompt, *fuller = (plan.items for plan in recorder.rehearsed)
    assert [(item.start + item.count, item.count) for item in prompt] == [(longest, min(longest, chunk or 256))]
    ((last,),) = (plan.items for plan in recorder.forwarded)
    assert (last.start, last.count) == (longest - 1, 1)
    (full,) = fuller or [(last,)]
    assert [item.slot for item in full] == list(range(batch))
    for item in (*prompt, *full, last):
        assert len(item.blocks) == layout.tables
        for table in item.blocks:
            assert len(table) * 16 >= item.start + item.count
            assert all(1 <= block < room.blocks for block in table)


@pytest.mark.parametrize("batch", [1, 3])
def test_no_row_of_the_output_matrix_is_computed_twice(batch: int) -> None:
    """In a small model with many words it takes as long as all layers."""
    recorder, layout = Recorder(), KvLayout((None,))
    warm_up(recorder, Room(40, 512), layout, limits(batch, 0), (1, 8))
    wanted = [sum(item.samples for item in plan.items) for plan in (*recorder.rehearsed, *recorder.forwarded)]
    assert sorted(filter(None, wanted)) == sorted({1, batch})


@pytest.mark.parametrize(("longest", "batch"), [(2000, 2), (10, 4), (1, 64)])
def test_steps_of_each_number_of_rows_come_first(longest: int, batch: int) -> None:
    recorder, layout, wanted = Recorder(), KvLayout((None,)), limits(batch, 0)
    room = Room(1 + layout.blocks_for_request(longest, wanted.request_step_tokens), longest)
    sizes = tuple(rows for rows in (1, 7, 40, 64, 256) if rows <= most_rows(room, wanted))
    warm_up(recorder, room, layout, wanted, sizes)
    first = recorder.rehearsed[: len(sizes)]
    assert tuple(sum(item.count for item in plan.items) for plan in first) == sizes
    assert all(len(plan.items) <= batch and item.count <= longest for plan in first for item in plan.items)
    assert len(recorder.rehearsed) == len(sizes) + 2


@pytest.mark.parametrize("name", ["gemma3", "qwen3_moe-mixed", "gemma2"])
def test_what_a_rehearsal_goes_through_is_of_every_kind_and_each_kind_of_feed_forward_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Layers with the widest products may not be the first; those that differ by what they see have the same ones."""
    attended: list[int | None] = []
    fed: list[type] = []
    attend = attention.attend

    def watched(queries: torch.Tensor, cache: torch.Tensor, plan: attention.AttentionPlan) -> torch.Tensor:
        attended.append(plan.window)
        return attend(queries, cache, plan)

    def watch(kind: type[Dense | Mixture]) -> None:
        run = kind.run
        monkeypatch.setattr(kind, "run", lambda self, *args: (fed.append(kind), run(self, *args))[1])

    monkeypatch.setattr(attention, "attend", watched)
    watch(Dense)
    watch(Mixture)
    is_gguf = name == "gemma3"
    path = tiny_gemma3(tmp_path / "a.gguf").path if is_gguf else tiny_hf.make(name, tmp_path / "hf", seed=1).path
    engine = load_engine(path)
    assert isinstance(engine.runner, ModelRunner)
    item = StepItem(1, 0, 0, tuple(range(40)), from_slot=False, blocks=spread(engine, [1, 2, 3]), samples=True)
    seen = []
    for run in (engine.runner.rehearse, engine.runner.forward):
        attended.clear()
        fed.clear()
        run(StepPlan(0, (item,)), torch.zeros(1, dtype=torch.int64))
        seen.append((tuple(attended), tuple(fed)))
    (sample_windows, sample_kinds), (windows, kinds) = seen
    assert set(sample_windows) == set(windows)
    assert sorted(map(str, sample_kinds)) == sorted({str(kind) for kind in kinds})
    assert len(kinds) > len(sample_kinds)


def test_what_it_leaves_in_the_pool_changes_no_token(tmp_path: Path) -> None:
    path = tiny_gemma3(tmp_path / "model.gguf", seed=4).path
    engine = load_engine(path)
    prompts = [[5, 6, 7, 8], list(range(9, 60))]
    expected = generate_greedy(engine, prompts, 12).tokens
    assert isinstance(engine.runner, ModelRunner)
    room = Room(engine.block_count, 512)
    warm_up(engine.runner, room, engine.layout, limits(4, 64))
    assert generate_greedy(engine, prompts, 12).tokens == expected


def test_a_peak_is_told_from_what_is_held_after_it(tmp_path: Path) -> None:
    (tmp_path / "clear_refs").write_text("")
    peak = Peak(tmp_path)
    with peak.watched():
        assert (tmp_path / "clear_refs").read_text() == "5"
        _say(tmp_path, "VmHWM:\t  900 kB\nVmRSS:\t  850 kB\n")
    assert peak.over_now_bytes() == 50 << 10


def test_files_that_are_mapped_between_two_largest_steps_are_no_rise(tmp_path: Path) -> None:
    (tmp_path / "clear_refs").write_text("")
    peak = Peak(tmp_path)
    for kib, mapped in ((900, 100), (1400, 700)):
        with peak.watched():
            _say(tmp_path, f"VmHWM:\t  {kib} kB\nVmRSS:\t  850 kB\nRssFile:\t  {mapped} kB\n")
    _say(tmp_path, "VmHWM:\t  9999 kB\nVmRSS:\t  1300 kB\nRssFile:\t  600 kB\n")
    assert peak.over_now_bytes() == ((900 - 100) - (1300 - 600)) << 10


def _say(proc: Path, sizes: str) -> None:
    (proc / "status").write_text(f"Name:\tx\n{sizes}Threads:\t3\n")


def test_where_the_peak_cannot_begin_anew_nothing_is_said(tmp_path: Path) -> None:
    peak = Peak(tmp_path / "not there")
    with peak.watched():
        pass
    assert peak.over_now_bytes() is None


def test_the_peak_of_this_process_is_seen() -> None:
    peak = Peak()
    with peak.watched():
        pass
    if peak.over_now_bytes() is None:
        pytest.skip("this system does not let a process forget its peak")
    assert any(_is_seen(peak) for _ in range(3)), "the process may hand memory back meanwhile that others used"


def _is_seen(peak: Peak) -> bool:
    with peak.watched():
        block = torch.ones(48 << 20, dtype=torch.uint8)
        del block
    return (peak.over_now_bytes() or 0) > 40 << 20


def test_steps_after_it_bring_few_products_that_were_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN keeps half a MiB of code for each: none of the layers' is new, and of a small output matrix one an
    octave of rows."""
    seen: set[tuple[int, ...]] = set()
    product, gated = linear._product, linear._gated_product

    def counted(x: torch.Tensor, part: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        seen.add((len(x), *part.shape))
        return product(x, part, bias)

    def counted_gated(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, activation: Activation) -> torch.Tensor:
        seen.add((len(x), *gate.shape))
        return gated(x, gate, up, activation)

    monkeypatch.setattr(linear, "_product", counted)
    monkeypatch.setattr(linear, "_gated_product", counted_gated)
    engine = load_engine(tiny_gemma3(tmp_path / "model.gguf", seed=4).path)
    warmed = set(seen)
    for count in range(1, 33):
        generate_greedy(engine, [[5, 6, 7, 8]] * count, 2)
    for length in range(1, 250, 7):
        generate_greedy(engine, [[5] * length], 1)
    new = seen - warmed
    assert len({shape[1:] for shape in new}) <= 1
    assert len(new) <= 5
