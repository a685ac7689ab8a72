"""v2 checkpoints: used where they lie, shared, checked, and equal to what they were made from."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from halogen_kernels import BACKENDS, select
from support import tiny_hf
from support.engine_driver import engine_spec, load_engine, spread
from support.tiny_models import tiny_gemma3, tiny_llama
from support.v2_models import as_v2

from halogend.checkpoint import errors
from halogend.checkpoint.adoption import TAKEN, adopt
from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.sizes import mapped_bytes, read_bytes, weight_bytes
from halogend.checkpoint.v2.digests import Chunk
from halogend.engine import loading
from halogend.engine.checking import check_share, checked_bytes
from halogend.engine.interface import Loaded
from halogend.engine.progress import Progress
from halogend.sched.step import StepItem, StepPlan

PROMPT = [5, 17, 200, 31, 8, 90]
QUANTISED = {"compute_dtype": "fp32", "kv_cache_dtype": "fp32"}


def logits(engine: Loaded) -> torch.Tensor:
    item = StepItem(1, 0, 0, tuple(PROMPT), from_slot=False, blocks=spread(engine, [1]), samples=True)
    return engine.runner.forward(StepPlan(0, (item,)), torch.zeros(1, dtype=torch.int64)).clone()


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-4, atol=1e-4)


def maps_of(path: Path) -> list[str]:
    """This process's mappings of a file, as the kernel tells them."""
    blocks = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    return [block for block in blocks if str(path) in block.partition("\n")[0]]


# --- what comes out of it -------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["int8", "int4"])
@pytest.mark.parametrize("make", [tiny_llama, tiny_gemma3])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_weights_used_as_they_lie_give_the_same_logits(
    tmp_path: Path, make: Callable, precision: str, share: float
) -> None:
    source = make(tmp_path / "a.gguf", seed=1).path
    path = as_v2(source, tmp_path / "a.hgn2", precision)
    engine = load_engine(path, precision=precision, mmap_threshold=share, **QUANTISED)
    assert close(logits(engine), logits(load_engine(source, precision=precision, **QUANTISED)))
    checkpoint = open_checkpoint(path)
    adoption = adopt(checkpoint, precision, share)
    assert engine.mapped_bytes == sum(mapped_bytes(checkpoint, adoption).values())
    assert engine.weights_bytes - engine.mapped_bytes == weight_bytes(checkpoint, precision, "fp32", adoption)
    assert bool(engine.mapped_bytes) == bool(maps_of(path)) == (share > 0)


@pytest.mark.parametrize("name", ["qwen3_moe", "phi3"])
def test_directories_of_other_families(tmp_path: Path, name: str) -> None:
    """Heads that are paired anew, norms of heads, experts, fused matrices."""
    source = tiny_hf.make(name, tmp_path / "source", seed=2).path
    path = as_v2(source, tmp_path / "a.hgn2", "int8")
    wanted = logits(load_engine(source, precision="int8", **QUANTISED))
    assert close(logits(load_engine(path, precision="int8", **QUANTISED)), wanted)


def test_numbers_are_packed_as_those_of_other_formats(tmp_path: Path) -> None:
    source = tiny_llama(tmp_path / "a.gguf", seed=3).path
    path = as_v2(source, tmp_path / "a.hgn2", "fp32")
    assert torch.equal(logits(load_engine(path)), logits(load_engine(source)))
    engine = load_engine(as_v2(source, tmp_path / "b.hgn2", "bf16"), precision="bf16")
    assert torch.equal(logits(engine), logits(load_engine(source, precision="bf16")))
    assert engine.mapped_bytes > 0, "the embedding"


@pytest.mark.parametrize("kind", ["int8", "int4", "fp8"])
@pytest.mark.parametrize("load_threads", [0, 1, 3])
def test_another_precision_than_the_file_s_is_decoded(tmp_path: Path, kind: str, load_threads: int) -> None:
    source = tiny_llama(tmp_path / "a.gguf", seed=4, hidden=96, heads=6).path
    path = as_v2(source, tmp_path / "a.hgn2", kind, block=16)
    found = logits(load_engine(path, precision="fp32", load_threads=load_threads))
    if kind == "fp8":
        assert torch.nn.functional.cosine_similarity(found, logits(load_engine(source)), dim=-1).min() > 0.98
    else:
        assert close(found, logits(load_engine(path, precision=kind, **QUANTISED)))


def test_parts_of_a_manifest_are_mapped_one_by_one(tmp_path: Path) -> None:
    source = tiny_llama(tmp_path / "a.gguf", seed=5).path
    whole = load_engine(as_v2(source, tmp_path / "a.hgn2"), precision="int8", **QUANTISED)
    path = as_v2(source, tmp_path / "b.hgn2", part_bytes=40_000)
    parts = load_engine(path, precision="int8", mmap_threshold=1.0, **QUANTISED)
    assert torch.equal(logits(parts), logits(whole))
    assert len(mapped_bytes(open_checkpoint(path), adopt(open_checkpoint(path), "int8", 1.0))) > 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("weights", ["plain", "int8", "fp8", "int4"])
def test_kernels_take_what_plans_say_they_take(backend: str, weights: str) -> None:
    kernels = select(backend, torch.float32, flash_attention=True, weights=weights)  # type: ignore[arg-type]  # as above
    wanted = {TAKEN[weights]} if weights in TAKEN else set()
    assert kernels.takes & set(TAKEN.values()) == wanted


# --- how it lies in memory ------------------------------------------------------------------------


def test_c6_what_is_mapped_is_in_memory_before_it_serves_shared_and_never_written(tmp_path: Path) -> None:
    path = as_v2(tiny_llama(tmp_path / "a.gguf", extra_vocab=3000).path, tmp_path / "a.hgn2")
    engines = [load_engine(path, precision="int8", mmap_threshold=1.0, **QUANTISED) for _ in range(2)]
    before = [logits(engine) for engine in engines]
    mapped = maps_of(path)
    assert {block.split()[1] for block in mapped} == {"r--p"}
    resident = [int(kib) << 10 for block in mapped for kib in re.findall(r"^Rss: +(\d+) kB", block, re.MULTILINE)]
    assert sum(resident) >= 2 * engines[0].mapped_bytes
    dirty = re.compile(r"^(?:Private|Shared)_Dirty: +(\d+)", re.MULTILINE)
    assert sum(int(kib) for block in mapped for kib in dirty.findall(block)) == 0
    assert torch.equal(*before)


def test_a_file_that_is_replaced_changes_nothing_for_whoever_serves_from_it(tmp_path: Path) -> None:
    source, other = tiny_llama(tmp_path / "a.gguf", seed=6).path, tiny_llama(tmp_path / "b.gguf", seed=7).path
    path = as_v2(source, tmp_path / "a.hgn2")
    engine = load_engine(path, precision="int8", mmap_threshold=1.0, **QUANTISED)
    before = logits(engine)
    as_v2(other, path)
    assert torch.equal(logits(engine), before)
    assert not close(logits(load_engine(path, precision="int8", **QUANTISED)), before)


# --- what is told and what is refused -------------------------------------------------------------


@pytest.mark.parametrize("verify", ["header", "full"])
@pytest.mark.parametrize("load_threads", [0, 1])
def test_progress_ends_where_it_was_said_to(tmp_path: Path, verify: str, load_threads: int) -> None:
    path = as_v2(tiny_gemma3(tmp_path / "a.gguf").path, tmp_path / "a.hgn2", "int4")
    spec = engine_spec(path, precision="int4", verify=verify, load_threads=load_threads, **QUANTISED)
    progress, ends = Progress(), []
    begin = progress.begin

    def record(stage: str, total: int = 0) -> None:
        ends.append((progress.stage, progress.done, progress.total))
        begin(stage, total)

    progress.begin = record  # type: ignore[method-assign]  # listens in
    loading.load(spec, progress)
    (_, (stage, done, total)) = ends
    assert (stage, done) == ("loading", total)
    checkpoint = open_checkpoint(path)
    later = 0 if load_threads == 1 else checkpoint.weights["token_embd"].nbytes
    assert checkpoint.v2 is not None
    assert total == read_bytes(checkpoint) - later + (checked_bytes(checkpoint.v2) if verify == "full" else 0)


def test_c2_a_flipped_bit_is_found_where_it_is_asked_for(tmp_path: Path) -> None:
    path = as_v2(tiny_llama(tmp_path / "a.gguf").path, tmp_path / "a.hgn2")
    tensor = open_checkpoint(path).weights["blk.1.ffn_up"].pieces[0].encoded.tensors[0]
    with path.open("r+b") as file:
        file.seek(tensor.offset + 100)
        (byte,) = file.read(1)
        file.seek(tensor.offset + 100)
        file.write(bytes([byte ^ 4]))
    load_engine(path, precision="int8", **QUANTISED)
    with pytest.raises(CheckpointError, match="their digest does not match") as caught:
        load_engine(path, precision="int8", verify="full", load_threads=2, **QUANTISED)
    assert caught.value.code == errors.DIGEST_MISMATCH


@pytest.mark.parametrize("load_threads", [0, 1])
def test_a_file_cut_short_while_it_is_loaded_is_refused(tmp_path: Path, load_threads: int) -> None:
    path = as_v2(tiny_llama(tmp_path / "a.gguf", extra_vocab=3000).path, tmp_path / "a.hgn2")
    progress = Progress()
    begin = progress.begin

    def cut(stage: str, total: int = 0) -> None:
        begin(stage, total)
        if stage == "loading":
            os.truncate(path, path.stat().st_size // 2)

    progress.begin = cut  # type: ignore[method-assign]  # something happens at that moment
    spec = engine_spec(path, precision="int8", mmap_threshold=1.0, load_threads=load_threads, **QUANTISED)
    with pytest.raises(CheckpointError, match="the file ends inside tensor") as caught:
        loading.load(spec, progress)
    assert caught.value.code == errors.TRUNCATED


def test_ranks_check_each_its_own_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank i of n every n-th from the i-th on: together all of them, none twice."""
    path = as_v2(tiny_llama(tmp_path / "a.gguf").path, tmp_path / "a.hgn2")
    file = open_checkpoint(path).v2
    assert file is not None
    places = [(number, file.header.data_start + number * 10_000) for number in range(5)]
    data = path.read_bytes()
    chunks = [Chunk(n, 0, at, 10_000, hashlib.sha256(data[at : at + 10_000]).hexdigest()) for n, at in places]
    monkeypatch.setattr("halogend.engine.checking.chunks_of", lambda _: chunks)
    told: list[int] = []
    with path.open("r+b", buffering=0) as damaged:
        damaged.seek(chunks[1].offset + 5)
        damaged.write(bytes([data[chunks[1].offset + 5] ^ 1]))
        check_share(file, [damaged.fileno()], 2, told.append, share=(0, 2))
        with pytest.raises(CheckpointError, match="their digest does not match"):
            check_share(file, [damaged.fileno()], 2, lambda _: None, share=(1, 2))
    assert (sum(told), checked_bytes(file)) == (30_000, 50_000)
